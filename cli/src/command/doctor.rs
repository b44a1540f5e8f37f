//! `tierfeed doctor`: what of this host is usable, what not, and the fix.

use std::{fmt::Write as _, fs, path::Path};

use serde::Serialize;
use tierfeed_core::{tier::Kind, units::Bytes};
use tierfeed_resource_gatherer::{Inventory, Sysroot};

use crate::{arguments::Doctor, failure::Failure, output};

#[derive(Serialize)]
struct Finding {
    subject: &'static str,
    usable: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

pub(crate) fn run(arguments: &Doctor) -> Result<(), Failure> {
    let inventory = Inventory::read(Sysroot(Path::new("/"))).map_err(Failure::work)?;
    let findings = findings(&inventory);
    if arguments.json {
        return output::json(&findings);
    }
    let mut text = String::new();
    for finding in &findings {
        let mark = if finding.usable { "yes" } else { "no " };
        writeln!(text, "{mark} {:<22}{}", finding.subject, finding.found)
            .expect("writing to a string cannot fail");
        if let Some(fix) = finding.fix {
            writeln!(text, "{:<26}{fix}", "").expect("writing to a string cannot fail");
        }
    }
    output::lines(&text)
}

fn findings(inventory: &Inventory) -> Vec<Finding> {
    let nodes: Vec<_> = inventory.memory_nodes().collect();
    let cxl = nodes.iter().filter(|node| node.kind.tier_kind() == Kind::CxlMemory).count();
    let has_cxl = cxl > 0;
    vec![
        Finding {
            subject: "memory",
            usable: true,
            found: format!(
                "{} of {} available",
                Bytes(inventory.memory.available_bytes),
                Bytes(inventory.memory.total_bytes)
            ),
            fix: None,
        },
        Finding {
            subject: "NUMA nodes with memory",
            usable: true,
            found: nodes.len().to_string(),
            fix: None,
        },
        Finding {
            subject: "CXL memory",
            usable: has_cxl,
            found: format!("{cxl} nodes"),
            fix: (!has_cxl).then_some(
                "a job may play it: tiers.cxl-memory with emulate: { latency, bandwidth }",
            ),
        },
        Finding {
            subject: "topology by hwloc",
            usable: inventory.hwloc,
            found: if inventory.hwloc { "yes" } else { "sysfs only" }.to_owned(),
            fix: (!inventory.hwloc).then_some("build with the feature hwloc (libhwloc-dev)"),
        },
        huge_pages(),
        pressure(),
    ]
}

fn huge_pages() -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let text = fs::read_to_string(path).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let chosen = chosen.map_or("unknown", |(chosen, _)| chosen);
    let usable = matches!(chosen, "always" | "within_size" | "advise" | "force");
    Finding {
        subject: "huge pages for memfds",
        usable,
        found: chosen.to_owned(),
        fix: (!usable).then_some("echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"),
    }
}

fn pressure() -> Finding {
    let usable = Path::new("/proc/pressure/memory").exists();
    Finding {
        subject: "memory pressure (PSI)",
        usable,
        found: if usable { "yes" } else { "not in this kernel" }.to_owned(),
        fix: (!usable).then_some("boot with psi=1"),
    }
}
