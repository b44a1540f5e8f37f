//! Judges memory: how much there is, in which pages, who limits it and who moves it.

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::capacity::kept_free;

use super::{Facts, Finding, FixPlace};
use crate::inventory::placement::Balancing;

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
    const SUBJECT: &str = "free memory";
    let (available, total) = (facts.available(), Bytes(facts.inventory.memory.total_bytes));
    let usable = Bytes(available.0 - kept_free(total, available).0);
    let found = format!("{available} of {total}, of which tierfeed takes at most {usable}");
    if usable > MODEST {
        return Finding::ok(SUBJECT, found);
    }
    let finding = if usable > LITTLE {
        let why = "staging takes much of it, and little is left to cache samples";
        Finding::degraded(SUBJECT, found, why)
            .fix(FixPlace::Job, "tiers: { main-memory: { reserve: 60 % } }")
    } else {
        Finding::missing(SUBJECT, found, "few batches can be staged")
            .fix(FixPlace::Job, "prefetch: { batches: 2 }")
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
    let found = format!(
        "{} of {}, {} used ({})",
        Bytes(limit),
        Bytes(total),
        Bytes(group.usage_bytes),
        group.path.display()
    );
    if limit >= total / 2 {
        return Finding::ok(SUBJECT, found);
    }
    Finding::degraded(
        SUBJECT,
        found,
        "tiers in memory and RAM disks share this limit with the trainers and stay smaller",
    )
    .fix(FixPlace::Container, format!("--memory {}m", (total / 100 * 90) >> 20))
    .fix(
        FixPlace::Kubernetes,
        format!("resources: {{ limits: {{ memory: {}Mi }} }}", (total / 100 * 90) >> 20),
    )
    .fix(FixPlace::Systemd, "MemoryMax=90%")
    .fix(FixPlace::Slurm, "--mem=0")
}

fn nodes(facts: &Facts) -> Finding {
    const SUBJECT: &str = "NUMA nodes with memory";
    let nodes: Vec<_> =
        facts.inventory.nodes.iter().filter(|it| it.memory_total_bytes > 0).collect();
    let words: Vec<_> = nodes
        .iter()
        .map(|node| {
            let cpus = if node.cpus.is_empty() { ", no CPUs" } else { "" };
            format!("node {} ({}{cpus})", node.id, Bytes(node.memory_total_bytes))
        })
        .collect();
    Finding::ok(SUBJECT, words.join(", "))
}

fn huge_pages(facts: &Facts) -> Finding {
    const SUBJECT: &str = "huge pages";
    let consequence =
        "main memory is in small pages, and copies lose time to page faults and TLB misses";
    match facts.huge_pages.as_deref() {
        Some(word @ ("always" | "madvise")) => {
            Finding::ok(SUBJECT, format!("transparent_hugepage/enabled is {word}"))
        }
        Some(word) => {
            let found = format!("transparent_hugepage/enabled is {word}");
            Finding::degraded(SUBJECT, found, consequence)
                .fix(FixPlace::Host, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
                .fix(FixPlace::Boot, "transparent_hugepage=madvise")
        }
        None => Finding::degraded(SUBJECT, "not in this kernel", consequence)
            .fix(FixPlace::Host, "boot a kernel built with CONFIG_TRANSPARENT_HUGEPAGE=y"),
    }
}

fn huge_pages_shared(facts: &Facts) -> Finding {
    const SUBJECT: &str = "huge pages for memfds";
    let word = facts.huge_pages_shared.as_deref();
    let found = word.map_or_else(
        || "not in this kernel".to_owned(),
        |word| format!("transparent_hugepage/shmem_enabled is {word}"),
    );
    if are_shared_pages_huge(facts) {
        return Finding::ok(SUBJECT, found);
    }
    Finding::degraded(
        SUBJECT,
        found,
        "staging and memory tiers, which are shared, are in small pages",
    )
    .fix(FixPlace::Host, "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled")
}

/// Whether memory that processes share, as staging and tiers are, gets transparent huge pages.
fn are_shared_pages_huge(facts: &Facts) -> bool {
    let word = facts.huge_pages_shared.as_deref();
    matches!(word, Some("always" | "within_size" | "advise" | "force"))
}

fn huge_page_pool(facts: &Facts) -> Finding {
    const SUBJECT: &str = "pools of huge pages";
    let words: Vec<_> = facts
        .huge_page_pools
        .iter()
        .map(|pool| format!("{} of {}", pool.pages, pool.page))
        .collect();
    let sizes = facts.huge_page_pools.iter().map(|pool| pool.pages.saturating_mul(pool.page.0));
    let held = sizes.fold(0, u64::saturating_add);
    match held {
        0 if are_shared_pages_huge(facts) => {
            Finding::ok(SUBJECT, "none; staging lies in transparent huge pages")
        }
        0 => Finding::ok(SUBJECT, "none"),
        _ if held <= facts.inventory.memory.total_bytes / 100 * POOL_PERCENT => {
            Finding::ok(SUBJECT, words.join(", "))
        }
        _ => Finding::degraded(
            SUBJECT,
            format!("{} set apart: {}", Bytes(held), words.join(", ")),
            "staging lies in them if they are enough for it; the rest is lost to the tiers",
        )
        .fix(FixPlace::Host, "sysctl -w vm.nr_hugepages=0"),
    }
}

fn swap(facts: &Facts) -> Finding {
    const SUBJECT: &str = "swap";
    match facts.swap {
        Bytes(0) => Finding::ok(SUBJECT, "none"),
        size => Finding::degraded(
            SUBJECT,
            size.to_string(),
            "cached samples may be moved to disk, and a hit then costs a disk read",
        )
        .fix(FixPlace::Host, "swapoff -a")
        .fix(FixPlace::Systemd, "MemorySwapMax=0"),
    }
}

fn pressure(facts: &Facts) -> Finding {
    const SUBJECT: &str = "memory pressure (PSI)";
    if facts.counts_pressure {
        return Finding::ok(SUBJECT, "counted");
    }
    Finding::missing(
        SUBJECT,
        "/proc/pressure is missing",
        "tiers shrink by free memory alone, and do not see that others wait for memory",
    )
    .fix(FixPlace::Boot, "psi=1")
}

fn overcommit(facts: &Facts) -> Finding {
    const SUBJECT: &str = "overcommit";
    let Some(value) = facts.overcommit else { return Finding::ok(SUBJECT, "unknown") };
    let found = format!("vm.overcommit_memory is {value}");
    match value {
        2 => Finding::degraded(
            SUBJECT,
            found,
            "address space counts as memory, and chunks are refused although memory is free",
        )
        .fix(FixPlace::Host, "sysctl -w vm.overcommit_memory=0"),
        _ => Finding::ok(SUBJECT, found),
    }
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
    Finding::degraded(
        SUBJECT,
        format!("on, {mode}"),
        "the kernel moves pages while they are measured and copied, and faults cost time",
    )
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
        Some(true) => Finding::degraded(
            SUBJECT,
            "on",
            "short of memory the kernel moves main memory to slower nodes, tiers included",
        )
        .fix(FixPlace::Host, "echo false > /sys/kernel/mm/numa/demotion_enabled"),
    }
}
