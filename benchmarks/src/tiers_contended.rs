//! `tierfeed-bench tiers-contended`: the figures of the probe on a quiet machine and while a thread computes
//! on every core, in alternating turns.
//!
//! Two things are promised and looked at here: every figure that was taken from a contended CPU says so,
//! and idle latency, which is then taken by CPU time, is still right within 10 %. The figures are taken
//! by the probe itself ([`tierfeed_resource_gatherer::probe::memory::single`]).
//!
//! A turn without load that was contended by other programs shows nothing, and its pair does not count.

mod burner;

use std::fmt::Write as _;

use serde::Serialize;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_harness::judgement::Judgement;
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
    paired::{PAIRS_MIN, Ratio, Reason, Verdict, judge_ratios, median_interval},
};

/// The largest relative difference of idle latency under load and without load.
const TOLERANCE: f64 = 0.1;
const SAMPLE: Nanoseconds = Nanoseconds(10_000_000);

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Pairs that count, at least six.
    pub pairs: usize,
    /// The longest time of sampling one figure in one turn.
    pub time: Nanoseconds,
    /// `None` for four times the last-level cache.
    pub buffer: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub burned_cpus: usize,
    pub figures: Vec<Contended>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contended {
    pub what: &'static str,
    /// The unit: `ns` or `bytes_per_s`.
    pub unit: &'static str,
    pub threads: usize,
    /// Figures under load that say `contended`.
    pub flagged: usize,
    /// Figures without load that say so, too; their pairs do not count.
    pub flagged_in_peace: usize,
    /// The figure under load over that without load, within pairs that count.
    pub ratio: Option<Ratio>,
    /// The largest distance of the ratio from one; `None` where CPU time cannot stand in, and only the flag
    /// is promised.
    pub tolerance: Option<f64>,
    /// `agrees`, `differs` or `inconclusive`.
    pub verdict: &'static str,
    pub reason: Option<String>,
    pub pairs: Vec<Turns>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Turns {
    pub peace: Estimate,
    /// The figure with a thread that computes on every core.
    pub load: Estimate,
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
        let start = Judgement::default();
        self.figures
            .iter()
            .fold(start, |judged, it| judged.verdict(it.what.to_string(), it.verdict))
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

/// # Errors
///
/// If memory is short, or no thread can be started.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
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
        progress(&format!("{}, {} threads", row.what, row.threads));
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
        let (ratio, verdict) = match self.tolerance {
            Some(tolerance) => judge_ratios(&ratios, tolerance),
            None => match median_interval(&ratios) {
                Some(ratio) => (Some(ratio), Verdict::Agrees),
                None => (None, Verdict::Inconclusive(Reason::Few { pairs: ratios.len() })),
            },
        };
        let unflagged = pairs.len() - flagged;
        let (verdict, reason) = match verdict {
            // A burner ran, and the figure does not say so: that counts also in a turn that was disturbed
            // otherwise.
            _ if unflagged > 0 => {
                (Verdict::Differs, Some(format!("{unflagged} figures under load are not flagged")))
            }
            Verdict::Inconclusive(reason) => {
                let reason = match reason {
                    Reason::Few { pairs: few } => format!(
                        "it was quiet in {few} of {} pairs without the burner, {PAIRS_MIN} are needed",
                        pairs.len()
                    ),
                    reason => reason.to_string(),
                };
                (Verdict::Inconclusive(Reason::NoFigures(reason.clone())), Some(reason))
            }
            verdict => (verdict, None),
        };
        Contended {
            what: self.what,
            unit: self.unit,
            threads: self.threads,
            flagged,
            flagged_in_peace: pairs.iter().filter(|pair| pair.peace.contended).count(),
            ratio,
            tolerance: self.tolerance,
            verdict: verdict.name(),
            reason,
            pairs,
        }
    }
}

#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    _ = writeln!(text, "a thread burned on each of {} CPUs", outcome.burned_cpus);
    _ = writeln!(
        text,
        "{:<18}{:>8}{:>14}{:>14}{:>10}{:>10}{:>8}{:>17}  verdict",
        "figure",
        "threads",
        "in peace",
        "under load",
        "flagged",
        "in peace",
        "ratio",
        "95 % interval"
    );
    for figure in &outcome.figures {
        let Contended { what, threads, flagged, flagged_in_peace, pairs, verdict, .. } = figure;
        let shown = |of: fn(&Turns) -> f64| {
            let values: Vec<f64> = pairs.iter().map(of).collect();
            median_interval(&values).map_or("-".to_owned(), |it| value(it.median, figure.unit))
        };
        let (peace, load) = (shown(|it| it.peace.median), shown(|it| it.load.median));
        let (ratio, interval) = figure.ratio.map_or(("-".to_owned(), "-".to_owned()), |ratio| {
            (format!("{:.3}", ratio.median), format!("{:.3} to {:.3}", ratio.low, ratio.high))
        });
        let (flags, early) =
            [flagged, flagged_in_peace].map(|it| format!("{it}/{}", pairs.len())).into();
        _ = writeln!(
            text,
            "{what:<18}{threads:>8}{peace:>14}{load:>14}{flags:>10}{early:>10}{ratio:>8}{interval:>17}  {verdict}"
        );
    }
    for figure in &outcome.figures {
        if let Some(reason) = &figure.reason {
            _ = writeln!(text, "{} ({}): {reason}", figure.what, figure.threads);
        }
    }
    text
}

fn value(value: f64, unit: &str) -> String {
    if unit == "ns" { format!("{value:.1} ns") } else { format!("{:.2} GB/s", value / 1e9) }
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
        assert_eq!((judged.verdict, judged.flagged), ("agrees", 6));
        let ratio = Ratio { median: 1.08, low: 1.08, high: 1.08 };
        assert_eq!(judged.ratio, Some(ratio));
        assert_eq!(idle().judged(vec![pair(100.0, 112.0); 6]).verdict, "differs");
    }

    #[test]
    fn a_figure_under_load_that_is_not_flagged_is_a_difference() {
        let mut pairs = vec![pair(100.0, 100.0); 6];
        pairs[3].load.contended = false;
        let judged = idle().judged(pairs);
        assert_eq!(judged.verdict, "differs");
        assert!(judged.reason.unwrap().contains("1 figures under load are not flagged"));
    }

    #[test]
    fn pairs_that_were_not_quiet_do_not_count() {
        let mut pairs = vec![pair(100.0, 100.0); 7];
        pairs[0] = Turns { peace: estimate(50.0, true), load: estimate(100.0, true) };
        let judged = idle().judged(pairs.clone());
        assert_eq!((judged.verdict, judged.flagged_in_peace), ("agrees", 1));
        assert_eq!(judged.ratio, Some(Ratio { median: 1.0, low: 1.0, high: 1.0 }));
        pairs[1].peace.contended = true;
        let judged = idle().judged(pairs);
        assert_eq!(judged.verdict, "inconclusive");
        assert!(judged.reason.unwrap().contains("quiet in 5 of 7 pairs"));
    }

    #[test]
    fn bandwidth_has_only_its_flag_to_keep() {
        let read = rows(2)[1];
        assert_eq!(read.judged(vec![pair(30e9, 12e9); 6]).verdict, "agrees");
        let mut pairs = vec![pair(30e9, 12e9); 6];
        pairs[0].load.contended = false;
        assert_eq!(read.judged(pairs).verdict, "differs");
    }

    #[test]
    fn one_core_is_measured_once() {
        assert_eq!(rows(1).len(), 2);
        assert_eq!(rows(8).iter().map(|row| row.threads).collect::<Vec<_>>(), [1, 1, 8]);
    }

    #[test]
    fn the_table_shows_flags_and_ratio() {
        let figures = vec![idle().judged(vec![pair(100.0, 104.0); 6])];
        let text = table(&Outcome { burned_cpus: 2, figures });
        for part in ["idle latency", "100.0 ns", "104.0 ns", "6/6", "0/6", "1.040", "agrees"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
