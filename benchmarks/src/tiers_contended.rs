//! `tierfeed-bench tiers-contended`: the figures of the probe on a quiet machine and while a thread computes
//! on every core, in alternating turns.
//!
//! Two things are promised and looked at here: every figure that was taken from a contended CPU says so,
//! and idle latency, which is then taken by CPU time, is still right within 10 %. The figures are taken
//! by the probe itself ([`tierfeed_resource_gatherer::probe::memory::single`]).
//!
//! A turn without load that was contended by other programs shows nothing, and its pair does not count.

mod burner;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_harness::{
    bench::Bench,
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
};
use tierfeed_numa_memory::affinity;
use tierfeed_resource_gatherer::{
    probe::{
        estimate::Estimate,
        memory::{Request, Subject, single},
    },
    report::Traffic,
};

use self::burner::Burner;
use crate::tiers_accuracy::{
    machine::Machine,
    paired::{PAIRS_MIN, Ratio, Verdict, judge_ratios, median_interval},
};

/// The largest relative difference of idle latency under load and without load.
const TOLERANCE: f64 = 0.1;
const SAMPLE: Nanoseconds = Nanoseconds(10_000_000);

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// Pairs of turns, at least 6; pairs that were not quiet are repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 9)]
    pub(crate) pairs: usize,
    /// The longest that one figure is sampled.
    #[arg(long, value_name = "TIME", default_value = "600 ms")]
    pub(crate) time: Nanoseconds,
    /// The size of each buffer, such as "512 MiB" [default: four times the last-level cache].
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) burned_cpus: usize,
    pub(crate) figures: Vec<Contended>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Contended {
    pub(crate) what: &'static str,
    /// The unit: `ns` or `bytes_per_s`.
    pub(crate) unit: &'static str,
    pub(crate) threads: usize,
    /// Figures under load that say `contended`.
    pub(crate) flagged: usize,
    /// Figures without load that say so, too; their pairs do not count.
    pub(crate) flagged_in_peace: usize,
    /// The figure under load over that without load, within pairs that count.
    pub(crate) ratio: Option<Ratio>,
    /// The largest distance of the ratio from one; `None` where CPU time cannot stand in, and only the flag
    /// is promised.
    pub(crate) tolerance: Option<f64>,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) pairs: Vec<Turns>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Turns {
    pub(crate) peace: Estimate,
    /// The figure with a thread that computes on every core.
    pub(crate) load: Estimate,
}

impl Judged for Outcome {
    const DETAILS: &'static [&'static str] = &["pairs"];

    fn judged(&self) -> Judgement {
        let start = Judgement::default();
        self.figures
            .iter()
            .fold(start, |judged, it| judged.verdict(it.what.to_owned(), it.verdict.name))
    }
}

#[derive(Debug, Clone, Copy)]
struct Row {
    what: &'static str,
    unit: &'static str,
    subject: Subject,
    threads: usize,
    tolerance: Option<f64>,
}

fn rows(cpus: usize) -> Vec<Row> {
    let read = |threads| Row {
        what: "read bandwidth",
        unit: "bytes_per_s",
        subject: Subject::Bandwidth { traffic: Traffic::Read, threads },
        threads,
        tolerance: None,
    };
    let idle = Row {
        what: "idle latency",
        unit: "ns",
        subject: Subject::IdleLatency,
        threads: 1,
        tolerance: Some(TOLERANCE),
    };
    let mut rows = vec![idle, read(1), read(cpus)];
    rows.dedup_by_key(|row| (row.what, row.threads));
    rows
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        Ok(measure(&self)?)
    }
}

fn measure(settings: &Settings) -> anyhow::Result<Outcome> {
    ensure!(
        settings.pairs >= PAIRS_MIN,
        "{} pairs have no 95 % interval; at least {PAIRS_MIN}",
        settings.pairs
    );
    let machine = Machine::find()?;
    let buffer = machine.array(settings.buffer, 3)?;
    let node = machine.node.0;
    let take = |subject| {
        let (sample, time) = (SAMPLE, settings.time);
        single::estimate(&Request { initiator: node, target: node, subject, buffer, sample, time })
    };
    let cpus = affinity::allowed_cpus()?;
    let mut figures = Vec::new();
    for row in rows(machine.cpus.len()) {
        step(&format!("{}, {} threads", row.what, row.threads));
        let mut pairs = Vec::new();
        while pairs.len() < 2 * settings.pairs && counted(&pairs).count() < settings.pairs {
            let peace = take(row.subject)?;
            let burner = Burner::start(&cpus)?;
            let load = take(row.subject)?;
            drop(burner);
            pairs.push(Turns { peace, load });
        }
        figures.push(row.judged(pairs));
    }
    Ok(Outcome { burned_cpus: cpus.len(), figures })
}

fn counted(pairs: &[Turns]) -> impl Iterator<Item = &Turns> {
    pairs.iter().filter(|pair| !pair.peace.contended)
}

impl Row {
    fn judged(self, pairs: Vec<Turns>) -> Contended {
        let ratios: Vec<f64> =
            counted(&pairs).map(|pair| pair.load.median / pair.peace.median).collect();
        let flagged = pairs.iter().filter(|pair| pair.load.contended).count();
        let unflagged = pairs.len() - flagged;
        let ratio = median_interval(&ratios);
        let verdict = match self.tolerance {
            // A burner ran, and the figure does not say so: that counts also in a turn that was disturbed
            // otherwise.
            _ if unflagged > 0 => Verdict {
                reason: Some(format!("{unflagged} figures under load are not flagged")),
                ..Verdict::DIFFERS
            },
            _ if ratio.is_none() => Verdict::inconclusive(format!(
                "it was quiet in {} of {} pairs without the burner, {PAIRS_MIN} are needed",
                ratios.len(),
                pairs.len()
            )),
            Some(tolerance) => judge_ratios(&ratios, tolerance).1,
            None => Verdict::AGREES,
        };
        Contended {
            what: self.what,
            unit: self.unit,
            threads: self.threads,
            flagged,
            flagged_in_peace: pairs.iter().filter(|pair| pair.peace.contended).count(),
            ratio,
            tolerance: self.tolerance,
            verdict,
            pairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(median: f64, contended: bool) -> Estimate {
        Estimate { contended, samples: 20, ..Estimate::stated(median) }
    }

    fn pair(peace: f64, load: f64) -> Turns {
        Turns { peace: estimate(peace, false), load: estimate(load, true) }
    }

    fn idle() -> Row {
        rows(2)[0]
    }

    #[test]
    fn latency_by_cpu_time_that_is_right_within_a_tenth_agrees() {
        let judged = idle().judged(vec![pair(100.0, 108.0); 6]);
        assert_eq!((judged.verdict.name, judged.flagged), ("agrees", 6));
        let ratio = Ratio { median: 1.08, low: 1.08, high: 1.08 };
        assert_eq!(judged.ratio, Some(ratio));
        assert_eq!(idle().judged(vec![pair(100.0, 112.0); 6]).verdict.name, "differs");
    }

    #[test]
    fn a_figure_under_load_that_is_not_flagged_is_a_difference() {
        let mut pairs = vec![pair(100.0, 100.0); 6];
        pairs[3].load.contended = false;
        let judged = idle().judged(pairs);
        assert_eq!(judged.verdict.name, "differs");
        assert!(judged.verdict.reason.unwrap().contains("1 figures under load are not flagged"));
    }

    #[test]
    fn pairs_that_were_not_quiet_do_not_count() {
        let mut pairs = vec![pair(100.0, 100.0); 7];
        pairs[0] = Turns { peace: estimate(50.0, true), load: estimate(100.0, true) };
        let judged = idle().judged(pairs.clone());
        assert_eq!((judged.verdict.name, judged.flagged_in_peace), ("agrees", 1));
        assert_eq!(judged.ratio, Some(Ratio { median: 1.0, low: 1.0, high: 1.0 }));
        pairs[1].peace.contended = true;
        let judged = idle().judged(pairs);
        assert_eq!(judged.verdict.name, "inconclusive");
        assert!(judged.verdict.reason.unwrap().contains("quiet in 5 of 7 pairs"));
    }

    #[test]
    fn bandwidth_has_only_its_flag_to_keep() {
        let read = rows(2)[1];
        assert_eq!(read.judged(vec![pair(30e9, 12e9); 6]).verdict.name, "agrees");
        let mut pairs = vec![pair(30e9, 12e9); 6];
        pairs[0].load.contended = false;
        assert_eq!(read.judged(pairs).verdict.name, "differs");
    }

    #[test]
    fn one_core_is_measured_once() {
        assert_eq!(rows(1).len(), 2);
        assert_eq!(rows(8).iter().map(|row| row.threads).collect::<Vec<_>>(), [1, 1, 8]);
    }
}
