//! The figures of this host: those of the last probe if they are still right, else new ones.

use std::path::PathBuf;

use clap::ValueEnum;
use tierfeed_core::{
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds, whole},
};
use tierfeed_resource_gatherer::{
    Inventory, Report, Sysroot, freshness,
    report::{self, Tier},
};

use crate::{command::tiers, environment, failure::Failure};

/// When the tiers are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeTiers {
    /// If there is no report, or the host has changed since.
    Auto,
    /// In any case; within 30 s.
    Always,
    /// Not; the job file then has no figures.
    Never,
}

#[derive(Debug)]
pub(super) struct Figures {
    pub(super) report: Report,
    pub(super) file: PathBuf,
    pub(super) age: Age,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    Measured,
    Kept,
}

/// `None` if the user wants none.
pub(super) fn of_host(when: ProbeTiers) -> Result<Option<Figures>, Failure> {
    let file = match (when, environment::tiers_report(None)) {
        (ProbeTiers::Never, _) => return Ok(None),
        (_, file) => file?,
    };
    if let (ProbeTiers::Auto, Ok(report)) = (when, report::read(&file)) {
        let now = Inventory::read(Sysroot::live())?;
        let is_memory = |tier: &&Tier| tier.path.is_none() && !tier.emulated;
        let changed = report.tiers.iter().filter(is_memory);
        let changed =
            changed.map(|it| freshness::tier(&report.inventory, &now, it)).find_map(Result::err);
        match changed {
            None => return Ok(Some(Figures { report, file, age: Age::Kept })),
            Some(reason) => tracing::info!("the tiers are measured anew: {reason}"),
        }
    }
    tracing::info!("the tiers of this host are measured once, within 30 s");
    let report = tiers::probe_quickly(&file)?;
    Ok(Some(Figures { report, file, age: Age::Measured }))
}

/// The lines of a job file about tiers, with the measurements of each.
pub(super) fn lines(figures: Option<&Figures>) -> Vec<String> {
    let Some(Figures { report, .. }) = figures else {
        return vec![
            "# tiers: 20 % of the free main memory, and of memory behind CXL if there is some"
                .to_owned(),
        ];
    };
    let mut lines = vec!["tiers:".to_owned()];
    let of = |kind: Kind| report.tiers.iter().find(move |tier| tier.kind == kind && !tier.emulated);
    if let Some(tier) = of(Kind::MainMemory) {
        lines.push(format!("  # {}", measured(tier)));
    }
    lines.push("  main-memory: { reserve: 20 % }".to_owned());
    match of(Kind::CxlMemory) {
        Some(tier) => {
            lines.push(format!("  # {}", measured(tier)));
            let nodes: Vec<_> = tier.numa_nodes.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "  cxl-memory: {{ numa_nodes: [{}], reserve: 20 % }}",
                nodes.join(", ")
            ));
            lines.push("  # A RAM disk of the agent, behind CXL:".to_owned());
            lines.push("  # scratch: { reserve: 20 % }".to_owned());
        }
        None => lines.push("  # cxl-memory: this host has none".to_owned()),
    }
    if let Some(tier) = of(Kind::Storage) {
        lines.push(format!(
            "  # Local storage wears out, so it is used only where it is named. {}",
            measured(tier)
        ));
        let path = tier.path.as_deref().unwrap_or("/var/tmp".as_ref());
        lines.push(format!("  # storage: {{ path: {}, reserve: 50 % }}", path.display()));
    }
    lines
}

pub(super) fn measured(tier: &Tier) -> String {
    let mut parts = Vec::new();
    parts.extend(tier.capacity_bytes.map(|bytes| Bytes(bytes).to_string()));
    parts.extend(tier.read_bytes_per_s.map(|rate| format!("reads {}", BytesPerSecond(rate))));
    parts.extend(tier.idle_latency_ns.map(|ns| format!("latency {}", Nanoseconds(whole(ns)))));
    format!("{}: {}", tier.name, parts.join(", "))
}
