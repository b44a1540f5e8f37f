//! Figure 1: bandwidth of memory near and far by threads, and latency, as `tierfeed tiers probe` measures them.

use std::{fs, path::Path, process::Command};

use serde::Deserialize;
use tierfeed_harness::output::step;

use super::Drawn;
use crate::{
    document,
    figure::{Along, Chart, Headline, Series, Value, Verdict},
    stage::Stage,
};

/// The idle latency of the paper's machine, in ns.
///
/// # Source
///
/// `DeepMemoryDL`, section 2.1.
const PUBLISHED_NEAR_NS: f64 = 70.0;
const PUBLISHED_FAR_NS: f64 = 134.5;

#[derive(Debug, Deserialize)]
struct Probe {
    pairs: Vec<Pair>,
}

/// A node with processors, and one with memory.
#[derive(Debug, Deserialize)]
struct Pair {
    initiator: u32,
    target: u32,
    idle_latency_ns: Estimate,
    bandwidth: Vec<Bandwidth>,
}

#[derive(Debug, Deserialize)]
struct Bandwidth {
    traffic: String,
    threads: u32,
    bytes_per_s: Estimate,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Estimate {
    median: f64,
    low: f64,
    high: f64,
}

impl Estimate {
    fn value(self, unit: f64) -> Value {
        Value { median: self.median / unit, least: self.low / unit, most: self.high / unit }
    }
}

pub(in crate::papers) fn measured(stage: &Stage<'_>) -> anyhow::Result<Drawn> {
    step("a probe of the memory");
    Ok(drawn(&probe(&stage.settings.tierfeed, &stage.made.with_file_name("tiers.json"))?))
}

fn probe(tierfeed: &Path, report: &Path) -> anyhow::Result<Probe> {
    let mut probe = Command::new(tierfeed);
    probe.args(["tiers", "probe", "--quick", "--json", "--output"]).arg(report);
    let measured = document::printed(&mut probe);
    fs::remove_file(report)?;
    measured
}

fn drawn(probe: &Probe) -> Drawn {
    let mut threads: Vec<u32> = probe.pairs.iter().flat_map(Pair::threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let series = probe.pairs.iter().map(|pair| {
        Series::measured(pair.name(), threads.iter().map(|it| pair.triad(*it)).collect())
    });
    let along = Along::Positions(threads.iter().map(|it| f64::from(*it)).collect());
    let chart = Chart::new("threads", "GB/s", along, series.collect()).titled("STREAM triad");
    let far = if probe.pairs.iter().all(Pair::is_near) { EMULATED } else { "" };
    Drawn { charts: vec![chart], claims: claims(probe), told: vec![("far", far.to_owned())] }
}

const EMULATED: &str = "this machine has one memory node: what is far is emulated in all other figures by a tier that \
                        waits 350 ns an access and passes 20 GB/s, which a probe states and does not measure";

impl Pair {
    fn is_near(&self) -> bool {
        self.initiator == self.target
    }

    fn name(&self) -> String {
        let place = if self.is_near() { "near" } else { "far" };
        format!("{place}: node {} to {}", self.initiator, self.target)
    }

    fn threads(&self) -> impl Iterator<Item = u32> {
        self.bandwidth.iter().map(|it| it.threads)
    }

    fn triad(&self, threads: u32) -> Option<Value> {
        let is_meant = |it: &&Bandwidth| it.traffic == "triad" && it.threads == threads;
        self.bandwidth.iter().find(is_meant).map(|it| it.bytes_per_s.value(1e9))
    }
}

/// Latencies are of the machine, so none is better or worse than the paper's.
fn claims(probe: &Probe) -> Vec<Headline> {
    let latency = |is_near: bool| {
        let pair = probe.pairs.iter().find(|pair| pair.is_near() == is_near)?;
        Some(pair.idle_latency_ns)
    };
    let claim = |what: &str, published: String, here: Option<String>| Headline {
        what: what.to_owned(),
        published,
        why: match here {
            Some(_) => "another machine".to_owned(),
            None => "this machine has one memory node".to_owned(),
        },
        here: here.unwrap_or_else(|| "none".to_owned()),
        measured: None,
        verdict: Verdict::NotComparable,
    };
    let nanoseconds =
        |it: Estimate| format!("{:.0} ns ({:.0} to {:.0})", it.median, it.low, it.high);
    let farther = latency(true).zip(latency(false));
    let farther = farther.map(|(near, far)| format!("{:.2} x", far.median / near.median));
    vec![
        claim(
            "idle latency, near",
            format!("{PUBLISHED_NEAR_NS} ns"),
            latency(true).map(nanoseconds),
        ),
        claim(
            "idle latency, far over near",
            format!("{:.2} x", PUBLISHED_FAR_NS / PUBLISHED_NEAR_NS),
            farther,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_one_node_has_no_claim_of_far_memory() {
        let report = r#"{ "pairs": [{
            "initiator": 0, "target": 0,
            "idle_latency_ns": { "median": 90.0, "low": 80.0, "high": 95.0 },
            "bandwidth": [{ "traffic": "triad", "threads": 2,
                            "bytes_per_s": { "median": 2e10, "low": 1e10, "high": 3e10 } }]
        }] }"#;
        let drawn = drawn(&serde_json::from_str(report).unwrap());
        let [near, far] = &drawn.claims[..] else { panic!("{:?}", drawn.claims) };
        assert_eq!((near.here.as_str(), far.here.as_str()), ("90 ns (80 to 95)", "none"));
        assert_eq!(drawn.charts[0].series.len(), 1);
        assert_eq!(drawn.charts[0].series[0].values[0].map(|it| it.median), Some(20.0));
    }
}
