//! The outcome of a campaign, as JSON and as text.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use crate::{
    checks::Growth,
    interference::Interference,
    pace::{self, Costs},
    traffic::Traffic,
};

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) time_s: f64,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) fault_count: u64,
    /// Faults that could not be injected here, with the reason.
    pub(crate) left_out: Vec<String>,
    pub(crate) batches: u64,
    /// Samples that trainers used and compared.
    pub(crate) samples: u64,
    pub(crate) batches_by_origin: BTreeMap<&'static str, u64>,
    /// xxh3-64 of the samples that were used.
    pub(crate) digest: String,
    /// xxh3-64 of the samples of the order.
    pub(crate) digest_expected: String,
    pub(crate) panics: BTreeMap<&'static str, u64>,
    /// Injected failures of system calls, by call and error.
    pub(crate) failed_calls: BTreeMap<String, u64>,
    pub(crate) starts: BTreeMap<String, u32>,
    /// The longest time until every rank was served again after all faults ended, in seconds.
    pub(crate) recovery_s_max: f64,
    /// On several nodes: the cost of faults that were injected alone, by kind.
    pub(crate) costs: BTreeMap<&'static str, Costs>,
    /// On several nodes: the sources of the bytes of their batches before the first fault.
    pub(crate) undisturbed: Traffic,
    /// The same in the second half of the phase without faults, after all.
    pub(crate) quiet: Traffic,
    /// The waits of trainers while one client was hostile and no fault was active.
    #[serde(rename = "sieges")]
    pub(crate) interference: Interference,
    /// The last line of each agent that did not start while its tier was full or gone.
    pub(crate) excused: Vec<String>,
    /// The growth of the longest-lived process of each role: of the agent with faults, of the others without.
    /// Chunks of tiers are compared with the metrics of the agent instead.
    pub(crate) growth: Vec<Growth>,
    /// The number of times that the last agent gave memory back because too little was free.
    pub(crate) memory_given_back: usize,
    /// Sentences about promises that were not kept; empty if all were.
    pub(crate) violations: Vec<String>,
}

fn list<K: std::fmt::Display>(counts: &BTreeMap<K, u64>) -> String {
    let each: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

fn interference_line(interference: &Interference) -> String {
    let Interference { count, batches, wait_s_max, wait_s_max_before, wait_share_max, .. } =
        interference;
    format!(
        "{count} times beside a hostile client and at least {} silent connections: {batches} batches, \
         the longest wait {:.0} ms, {:.0} ms before, at most {:.0} % of what is allowed (500 ms, or four \
         times the longest before); metrics within {:.0} ms\n",
        interference.silent_min,
        wait_s_max * 1e3,
        wait_s_max_before * 1e3,
        wait_share_max * 1e2,
        interference.answer_s_max * 1e3
    )
}

fn growth_line(growth: &Growth) -> String {
    let Growth { role, over_s, first, last } = growth;
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{role} over {over_s:.0} s: {} to {} MiB and {} to {} MiB of chunks, {} to {} descriptors, \
             {} to {} unnamed files, {} to {} threads\n",
        mib(first.memory_bytes),
        mib(last.memory_bytes),
        mib(first.cache_bytes),
        mib(last.cache_bytes),
        first.descriptors,
        last.descriptors,
        first.files,
        last.files,
        first.threads,
        last.threads
    )
}

pub(crate) fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    _ = writeln!(
        text,
        "seed {}, {:.0} s, {} faults:",
        outcome.seed, outcome.time_s, outcome.fault_count
    );
    for (name, count) in &outcome.faults {
        _ = writeln!(text, "  {name:<22}{count:>6}");
    }
    for reason in &outcome.left_out {
        _ = writeln!(text, "  left out: {reason}");
    }
    let starts: Vec<_> = outcome.starts.iter().map(|(name, it)| format!("{name} {it}")).collect();
    _ = writeln!(text, "started: {}", starts.join(", "));
    let origins: Vec<_> =
        outcome.batches_by_origin.iter().map(|(name, it)| format!("{name} {it}")).collect();
    _ = writeln!(text, "{} batches used ({})", outcome.batches, origins.join(", "));
    _ = writeln!(
        text,
        "{} samples compared with their checksums; digest {}, of the order {}",
        outcome.samples, outcome.digest, outcome.digest_expected
    );
    _ = writeln!(text, "slowest recovery {:.1} s", outcome.recovery_s_max);
    for (what, counts) in [
        ("panics at failpoints", list(&outcome.panics)),
        ("injected failures of calls", list(&outcome.failed_calls)),
        ("a hostile client", list(&outcome.interference.moves)),
    ] {
        _ = writeln!(text, "{what}: {counts}");
    }
    if outcome.interference.count > 0 {
        text.push_str(&interference_line(&outcome.interference));
    }
    if !outcome.costs.is_empty() {
        text.push_str("faults alone:\n");
        text.push_str(&pace::table(&outcome.costs));
    }
    for (when, traffic) in [("before", outcome.undisturbed), ("after", outcome.quiet)] {
        let percent = |bytes| 1e2 * traffic.share(bytes);
        let (cold, peers) = (percent(traffic.cold), percent(traffic.peer));
        _ = writeln!(
            text,
            "{when} all faults: {cold:.1} % read cold, {peers:.1} % from other nodes"
        );
    }
    for line in &outcome.excused {
        _ = writeln!(text, "an agent did not start without its tier: {line}");
    }
    _ = writeln!(text, "memory given back {} times", outcome.memory_given_back);
    outcome.growth.iter().for_each(|it| text.push_str(&growth_line(it)));
    if !outcome.growth.iter().any(|it| it.role.starts_with("agent")) {
        text.push_str("no agent ran long enough to measure growth\n");
    }
    match outcome.violations.len() {
        0 => text.push_str(
            "no wrong byte, no lost or doubled sample, order unchanged, nothing left behind\n",
        ),
        count => {
            _ = writeln!(text, "{count} violations (repeat with --seed {}):", outcome.seed);
            outcome.violations.iter().for_each(|it| _ = writeln!(text, "  {it}"));
        }
    }
    text
}
