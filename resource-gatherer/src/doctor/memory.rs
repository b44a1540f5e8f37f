//! Judges memory: how much there is, in which pages, who limits it and who moves it.

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::capacity::kept_free;

use super::{Facts, Finding, FixPlace};
use crate::{
    inventory::placement::Balancing,
    sysroot::{Sysroot, entries, optional, optional_number},
};

/// Huge pages that only `hugetlbfs` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    pub page: Bytes,
    pub pages: u64,
}

impl Pool {
    pub(super) fn read_all(sysroot: Sysroot<'_>) -> Vec<Self> {
        let root = sysroot.join("sys/kernel/mm/hugepages");
        let sizes = entries(&root).into_iter().filter_map(|name| {
            let kibibytes: u64 =
                name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let pages = optional_number(&root.join(&name).join("nr_hugepages"))?;
            Some(Self { page: Bytes(kibibytes << 10), pages })
        });
        sizes.filter(|pool| pool.pages > 0).collect()
    }
}

/// A line such as `/swapfile  file  2097148  0  -2`, in KiB, below a line of titles.
pub(super) fn swap_of(sysroot: Sysroot<'_>) -> Bytes {
    let text = optional(&sysroot.join("proc/swaps")).unwrap_or_default();
    let sizes = text.lines().skip(1).filter_map(|line| {
        let kibibytes: u64 = line.split_whitespace().nth(2)?.parse().ok()?;
        kibibytes.checked_mul(1024)
    });
    Bytes(sizes.fold(0, u64::saturating_add))
}

/// The staging of one rank alone takes most of any smaller amount.
const LITTLE: Bytes = Bytes::mib(256);

/// By default a job takes a fifth; a fifth of less than this is staging and a small cache.
const MODEST: Bytes = Bytes::mib(2048);

/// A pool of huge pages above this share of memory is reported.
const POOL_PERCENT: u64 = 5;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![free(facts), control_group(facts), nodes(facts)];
    findings.extend([huge_pages(facts), huge_pages_shared(facts), huge_page_pool(facts)]);
    findings.extend([swap(facts), pressure(facts), overcommit(facts)]);
    findings.extend([balancing(facts), demotion(facts)]);
    findings
}

fn free(facts: &Facts) -> Finding {
    let (available, total) = (facts.available(), Bytes(facts.inventory.memory.total_bytes));
    let usable = Bytes(available.0 - kept_free(total, available).0);
    let found = format!("{available} of {total}, of which tierfeed takes at most {usable}");
    let finding = Finding::ok("free memory", found);
    if usable > MODEST {
        return finding;
    }
    let finding = if usable > LITTLE {
        finding
            .degraded("staging takes much of it, and little is left to cache samples")
            .fix(FixPlace::Job, "tiers: { main-memory: { reserve: 60 % } }")
    } else {
        finding.missing("few batches can be staged").fix(FixPlace::Job, "prefetch: { batches: 2 }")
    };
    finding.fix(FixPlace::Slurm, "--mem=0")
}

fn control_group(facts: &Facts) -> Finding {
    const SUBJECT: &str = "limit of the control group";
    let total = facts.inventory.memory.total_bytes;
    let Some(group) = &facts.inventory.cgroup else {
        return Finding::ok(SUBJECT, "no memory controller");
    };
    let Some(limit) = group.limit_bytes.filter(|limit| *limit < total) else {
        return Finding::ok(SUBJECT, "none");
    };
    let (of, used) = (Bytes(total), Bytes(group.usage_bytes));
    let found = format!("{} of {of}, {used} used ({})", Bytes(limit), group.path.display());
    let finding = Finding::ok(SUBJECT, found);
    if limit >= total / 2 {
        return finding;
    }
    let mebibytes = (total / 100 * 90) >> 20;
    finding
        .degraded(
            "tiers in memory and RAM disks share this limit with the trainers and stay smaller",
        )
        .fix(FixPlace::Container, format!("--memory {mebibytes}m"))
        .fix(FixPlace::Kubernetes, format!("resources: {{ limits: {{ memory: {mebibytes}Mi }} }}"))
        .fix(FixPlace::Systemd, "MemoryMax=90%")
        .fix(FixPlace::Slurm, "--mem=0")
}

fn nodes(facts: &Facts) -> Finding {
    let nodes = facts.inventory.nodes.iter().filter(|it| it.memory_total_bytes > 0);
    let words = nodes.map(|node| {
        let cpus = if node.cpus.is_empty() { ", no CPUs" } else { "" };
        format!("node {} ({}{cpus})", node.id, Bytes(node.memory_total_bytes))
    });
    Finding::ok("NUMA nodes with memory", words.collect::<Vec<_>>().join(", "))
}

fn huge_pages(facts: &Facts) -> Finding {
    const SMALL: &str =
        "main memory is in small pages, and copies lose time to page faults and TLB misses";
    let Some(word) = facts.huge_pages.as_deref() else {
        return Finding::ok("huge pages", "not in this kernel")
            .degraded(SMALL)
            .fix(FixPlace::Host, "boot a kernel built with CONFIG_TRANSPARENT_HUGEPAGE=y");
    };
    let finding = Finding::ok("huge pages", format!("transparent_hugepage/enabled is {word}"));
    if matches!(word, "always" | "madvise") {
        return finding;
    }
    finding
        .degraded(SMALL)
        .fix(FixPlace::Host, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
        .fix(FixPlace::Boot, "transparent_hugepage=madvise")
}

fn huge_pages_shared(facts: &Facts) -> Finding {
    let word = facts.huge_pages_shared.as_deref();
    let found = word.map_or_else(
        || "not in this kernel".to_owned(),
        |word| format!("transparent_hugepage/shmem_enabled is {word}"),
    );
    let finding = Finding::ok("huge pages for memfds", found);
    if are_shared_pages_huge(facts) {
        return finding;
    }
    finding
        .degraded("staging and memory tiers, which are shared, are in small pages")
        .fix(FixPlace::Host, "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled")
}

/// Whether memory that processes share, as staging and tiers are, gets transparent huge pages.
fn are_shared_pages_huge(facts: &Facts) -> bool {
    let word = facts.huge_pages_shared.as_deref();
    matches!(word, Some("always" | "within_size" | "advise" | "force"))
}

fn huge_page_pool(facts: &Facts) -> Finding {
    const SUBJECT: &str = "pools of huge pages";
    let pools = &facts.huge_page_pools;
    let words: Vec<_> = pools.iter().map(|it| format!("{} of {}", it.pages, it.page)).collect();
    let words = words.join(", ");
    let sizes = pools.iter().map(|pool| pool.pages.saturating_mul(pool.page.0));
    let held = sizes.fold(0, u64::saturating_add);
    match held {
        0 if are_shared_pages_huge(facts) => {
            Finding::ok(SUBJECT, "none; staging lies in transparent huge pages")
        }
        0 => Finding::ok(SUBJECT, "none"),
        _ if held <= facts.inventory.memory.total_bytes / 100 * POOL_PERCENT => {
            Finding::ok(SUBJECT, words)
        }
        _ => Finding::ok(SUBJECT, format!("{} set apart: {words}", Bytes(held)))
            .degraded(
                "staging lies in them if they are enough for it; the rest is lost to the tiers",
            )
            .fix(FixPlace::Host, "sysctl -w vm.nr_hugepages=0"),
    }
}

fn swap(facts: &Facts) -> Finding {
    if facts.swap == Bytes(0) {
        return Finding::ok("swap", "none");
    }
    Finding::ok("swap", facts.swap.to_string())
        .degraded("cached samples may be moved to disk, and a hit then costs a disk read")
        .fix(FixPlace::Host, "swapoff -a")
        .fix(FixPlace::Systemd, "MemorySwapMax=0")
}

fn pressure(facts: &Facts) -> Finding {
    const SUBJECT: &str = "memory pressure (PSI)";
    if facts.counts_pressure {
        return Finding::ok(SUBJECT, "counted");
    }
    Finding::ok(SUBJECT, "/proc/pressure is missing")
        .missing("tiers shrink by free memory alone, and do not see that others wait for memory")
        .fix(FixPlace::Boot, "psi=1")
}

fn overcommit(facts: &Facts) -> Finding {
    const SUBJECT: &str = "overcommit";
    let Some(value) = facts.overcommit else { return Finding::ok(SUBJECT, "unknown") };
    let finding = Finding::ok(SUBJECT, format!("vm.overcommit_memory is {value}"));
    if value != 2 {
        return finding;
    }
    finding
        .degraded("address space counts as memory, and chunks are refused although memory is free")
        .fix(FixPlace::Host, "sysctl -w vm.overcommit_memory=0")
}

fn balancing(facts: &Facts) -> Finding {
    const SUBJECT: &str = "NUMA balancing";
    let mode = match facts.inventory.placement.balancing {
        None => return Finding::ok(SUBJECT, "not in this kernel"),
        Some(Balancing::Off) => return Finding::ok(SUBJECT, "off"),
        Some(Balancing::Nodes) => "between nodes",
        Some(Balancing::Tiers) => "between tiers",
        Some(Balancing::NodesAndTiers) => "between nodes and tiers",
    };
    if facts.inventory.memory_nodes().count() < 2 {
        return Finding::ok(SUBJECT, format!("on, {mode}, without effect on one node"));
    }
    Finding::ok(SUBJECT, format!("on, {mode}"))
        .degraded("the kernel moves pages while they are measured and copied, and faults cost time")
        .fix(FixPlace::Host, "sysctl -w kernel.numa_balancing=0")
}

fn demotion(facts: &Facts) -> Finding {
    const SUBJECT: &str = "demotion by the kernel";
    match facts.inventory.placement.demotion {
        None => Finding::ok(SUBJECT, "not in this kernel"),
        Some(false) => Finding::ok(SUBJECT, "off"),
        Some(true) if facts.inventory.memory_nodes().count() < 2 => {
            Finding::ok(SUBJECT, "on, without effect on one node")
        }
        Some(true) => Finding::ok(SUBJECT, "on")
            .degraded(
                "short of memory the kernel moves main memory to slower nodes, tiers included",
            )
            .fix(FixPlace::Host, "echo false > /sys/kernel/mm/numa/demotion_enabled"),
    }
}
