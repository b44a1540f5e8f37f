//! Judges the limits of this process: locked memory, open files, CPUs and nodes that it may use.

use tierfeed_core::units::Bytes;

use super::{Facts, Finding, FixPlace};

/// `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

impl Limit {
    /// A line such as `Max open files            1024                 524288               files`.
    pub(super) fn parse(limits: &str, name: &str) -> Self {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let mut values = line.split_whitespace().map(|word| word.parse().ok());
        Self { soft: values.next().flatten(), hard: values.next().flatten() }
    }
}

/// `CAP_IPC_LOCK` of `linux/capability.h`: its holder may lock what it likes.
const IPC_LOCK: u32 = 14;

/// The unit in which tiers take memory: less than this cannot be locked in one piece.
const CHUNK: Bytes = Bytes::mib(512);

/// Enough for the files of the sources, one socket and one memfd for each of hundreds of trainers.
const OPEN_FILES: u64 = 4_096;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![locked_memory(facts), open_files(facts), nodes_allowed(facts), cpus_allowed(facts)]
}

fn locked_memory(facts: &Facts) -> Finding {
    let Limit { soft, hard } = facts.locked_memory;
    let is_lifted = facts.has_capability(IPC_LOCK);
    let mut found = match soft {
        None => "RLIMIT_MEMLOCK is unlimited".to_owned(),
        Some(soft) => format!("RLIMIT_MEMLOCK is {}, at most {}", Bytes(soft), of_bytes(hard)),
    };
    if is_lifted {
        found += "; CAP_IPC_LOCK lifts it";
    }
    let mut finding = Finding::ok("locked memory", found);
    if is_lifted || soft.is_none_or(|soft| soft >= CHUNK.0) {
        return finding;
    }
    finding = finding.degraded(
        "what should stay in memory is touched again and again instead of locked, and may be swapped; \
         rings read into memory that is not registered",
    );
    if hard.is_none() {
        finding = finding.fix(FixPlace::Shell, "ulimit -l unlimited");
    }
    finding
        .fix(FixPlace::Host, "echo '* - memlock unlimited' > /etc/security/limits.d/tierfeed.conf")
        .fix(FixPlace::Systemd, "LimitMEMLOCK=infinity")
        .fix(FixPlace::Container, "--ulimit memlock=-1")
}

fn open_files(facts: &Facts) -> Finding {
    let Limit { soft, hard } = facts.open_files;
    let found = match soft {
        None => "RLIMIT_NOFILE is unlimited".to_owned(),
        Some(soft) => {
            let most = hard.map_or_else(|| "without a bound".to_owned(), |hard| hard.to_string());
            format!("RLIMIT_NOFILE is {soft}, which the agent raises to {most}")
        }
    };
    let finding = Finding::ok("open files", found);
    // The agent raises the soft limit itself.
    if soft.is_none() || hard.is_none_or(|hard| hard >= OPEN_FILES) {
        return finding;
    }
    finding
        .degraded("with many ranks the agent cannot accept all trainers")
        .fix(FixPlace::Host, "echo '* - nofile 65536' > /etc/security/limits.d/tierfeed.conf")
        .fix(FixPlace::Systemd, "LimitNOFILE=65536")
        .fix(FixPlace::Container, "--ulimit nofile=65536")
}

fn nodes_allowed(facts: &Facts) -> Finding {
    const SUBJECT: &str = "nodes allowed";
    let inventory = &facts.inventory;
    let with_memory = inventory.nodes.iter().filter(|node| node.memory_total_bytes > 0);
    let (allowed, denied): (Vec<u32>, Vec<u32>) =
        with_memory.map(|node| node.id).partition(|node| inventory.allowed.has_node(*node));
    if denied.is_empty() {
        return Finding::ok(SUBJECT, format!("all nodes with memory: {}", list(&allowed)));
    }
    let all = list(&[allowed.as_slice(), denied.as_slice()].concat());
    let found = format!("the cpuset allows memory of {}, not of {}", list(&allowed), list(&denied));
    Finding::ok(SUBJECT, found)
        .degraded("the other nodes are listed but neither measured nor used as tiers")
        .fix(FixPlace::Container, format!("--cpuset-mems {all}"))
        .fix(FixPlace::Systemd, format!("AllowedMemoryNodes={all}"))
        .fix(FixPlace::Slurm, "--exclusive --mem=0")
}

fn cpus_allowed(facts: &Facts) -> Finding {
    let online = facts.cpus_online;
    let allowed = facts.inventory.allowed.cpus.as_ref().map_or(online, Vec::len).min(online);
    let last = online.saturating_sub(1);
    let finding = Finding::ok("CPUs allowed", format!("{allowed} of {online}"));
    if allowed == online {
        return finding;
    }
    finding
        .degraded(
            "copies are not pinned to the CPUs that are denied, and bandwidth is that of the others",
        )
        .fix(FixPlace::Container, format!("--cpuset-cpus 0-{last}"))
        .fix(FixPlace::Systemd, format!("AllowedCPUs=0-{last}"))
        .fix(FixPlace::Slurm, "--exclusive")
}

fn of_bytes(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |bytes| Bytes(bytes).to_string())
}

/// `0,2,3`.
fn list(numbers: &[u32]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    let words: Vec<_> = numbers.iter().map(u32::to_string).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(",") }
}
