//! The turns of sides, and what is measured of a turn.

use std::{collections::BTreeMap, ops::Range};

use serde::Deserialize;
use tierfeed_harness::statistics::percentile;

use crate::{
    figure::Value,
    ranks::Ranked,
    training::{Trained, mean},
};

/// The epochs of nodes that count: the first is cold, and in the last nothing is read ahead for a next one.
const COUNTED: Range<usize> = 1..3;
/// A step is imbalanced if a rank waits for its batch longer than another by more than this share of a step.
pub(super) const IMBALANCE: f64 = 0.1;
/// A batch of nodes, or of slow samples, counts as ready if the wait for it is no longer than this, the time to hand
/// it over.
const READY_S: f64 = 0.002;
const READY_WITH_SLOW_S: f64 = 0.005;
/// The epoch in which a node is lost.
const LOST_IN: usize = 2;
const PERCENTILES: [usize; 5] = [10, 50, 90, 95, 99];
/// The batches of a phase that are not counted: they may have been prepared in the phase before.
pub(super) const SKIPPED: usize = 6;

#[derive(Debug, Clone)]
pub(super) enum Ran {
    One(Box<One>),
    Ranks(Ranked),
    /// A stopwatch, in bytes a second.
    Rate(f64),
}

/// A training, and what is known of it beside.
#[derive(Debug, Clone)]
pub(super) struct One {
    pub(super) trained: Trained,
    /// Seconds in which its data were copied before it.
    pub(super) copy_s: f64,
    /// In the bucket of DELI: the share of samples that no cache held, by epoch, and the dollars with each model.
    pub(super) missed: Vec<f64>,
    pub(super) dollars: [f64; 2],
}

/// What measures need to know beside the turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Setting {
    pub(super) photographs: f64,
    pub(super) megabytes: f64,
    pub(super) epochs: u32,
    /// Seconds that a step, and an epoch, compute.
    pub(super) step_s: f64,
    pub(super) computed_s: f64,
    /// No wait of a phase counts as shorter, and an epoch has so many phases.
    pub(super) ready_s: f64,
    pub(super) phases: usize,
}

/// A trial that ran.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) setting: Setting,
    /// What texts name.
    pub(super) told: BTreeMap<&'static str, String>,
    /// By the names of sides.
    pub(super) turns: BTreeMap<String, Vec<Ran>>,
}

/// A figure, or several, of a turn. Those of epochs are of the later ones, by the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// Seconds of all epochs, with those of a copy before, and without.
    TotalS,
    TotalWithoutCopyS,
    FirstS,
    FirstWithoutCopyS,
    EpochS,
    /// Of epochs after the one in which a node was lost.
    EpochAfterLossS,
    /// From the start of the process.
    JobS,
    /// Seconds in which training waits for its batches, in all epochs.
    WaitedS,
    ImagesPerS,
    MegabytesPerS,
    /// The share of time in which is computed, and how much faster than this no loader is.
    Used,
    Possible,
    /// The share of batches that are there when they are asked for.
    Ready,
    ReadyWithSlow,
    ReadyWithoutSlow,
    /// The share of bytes in memory when they are asked for, by the reports of tierfeed.
    ReadyBytes,
    /// The share of bytes that is not read from the disk again.
    Kept,
    /// The share of steps in which ranks wait for others.
    Imbalanced,
    /// Of all phases, of each.
    MeanWaitMs,
    WaitsMs,
    /// By epoch.
    Seconds,
    WaitedByEpochS,
    /// From the start of the process: to that of the first epoch, and to the end of each.
    SinceStartS,
    /// Of a step, at [`PERCENTILES`].
    StepPercentilesS,
    /// Seconds of the second epoch, by rank.
    WaitedByRankS,
    ComputedByRankS,
    IdleByRankS,
    /// By step of the second epoch.
    #[serde(rename = "waits-of-rank-0")]
    WaitsOfRank0,
    #[serde(rename = "waits-of-rank-1")]
    WaitsOfRank1,
    #[serde(rename = "waits-of-rank-2")]
    WaitsOfRank2,
    /// The share of samples that no cache held, by epoch, and in the second one.
    Missed,
    MissedLater,
    /// The cost of two epochs with a model.
    DollarsMnist,
    DollarsCifar,
    /// Kilobytes a second that a stopwatch read.
    Rate,
}

impl Outcome {
    /// The values of a measure of a side, over its turns; none if it did not run.
    pub(super) fn values(&self, side: &str, measure: Measure) -> Vec<Option<Value>> {
        let turns = self.turns.get(side).map_or(&[][..], Vec::as_slice);
        self.of_turns(turns, measure)
    }

    pub(super) fn of_turns(&self, turns: &[Ran], measure: Measure) -> Vec<Option<Value>> {
        let turns: Vec<Vec<f64>> = turns.iter().map(|it| measure.of(it, &self.setting)).collect();
        let count = turns.iter().map(Vec::len).min().unwrap_or_default();
        (0..count).map(|at| Value::of(&turns.iter().map(|it| it[at]).collect::<Vec<_>>())).collect()
    }
}

impl Measure {
    /// Nothing where there is no such figure.
    pub(super) fn of(self, ran: &Ran, setting: &Setting) -> Vec<f64> {
        match ran {
            Ran::One(one) => self.of_one(one, setting),
            Ran::Ranks(ranked) => self.of_ranks(ranked, setting),
            Ran::Rate(rate) => vec![rate / 1e3],
        }
    }

    fn of_one(self, one: &One, setting: &Setting) -> Vec<f64> {
        let One { trained: it, copy_s, missed, dollars } = one;
        let waited = |waits: &Vec<f64>| waits.iter().sum::<f64>();
        vec![match self {
            Self::TotalS => copy_s + it.total_s(),
            Self::TotalWithoutCopyS => it.total_s(),
            Self::FirstS => copy_s + it.seconds[0],
            Self::FirstWithoutCopyS => it.seconds[0],
            Self::EpochS => it.epoch_s(1),
            Self::EpochAfterLossS => it.epoch_s(LOST_IN + 1),
            Self::JobS => it.job_s,
            Self::WaitedS => it.waits.iter().map(waited).sum(),
            Self::ImagesPerS => setting.photographs / it.epoch_s(1),
            Self::MegabytesPerS => setting.megabytes / it.epoch_s(1),
            Self::Used => setting.computed_s / it.epoch_s(1),
            Self::Possible => it.epoch_s(1) / setting.computed_s,
            Self::ReadyWithSlow => ready(it, true),
            Self::ReadyWithoutSlow => ready(it, false),
            Self::DollarsMnist => dollars[0],
            Self::DollarsCifar => dollars[1],
            Self::Missed => return missed.clone(),
            Self::MissedLater => return missed.iter().skip(1).copied().collect(),
            Self::Seconds => return it.seconds.clone(),
            Self::WaitedByEpochS => return it.waits.iter().map(waited).collect(),
            Self::SinceStartS => {
                let after = |done: usize| it.job_s - it.seconds[done..].iter().sum::<f64>();
                return (0..=it.seconds.len()).map(after).collect();
            }
            Self::WaitsMs => return waits_ms(it, setting).unwrap_or_default(),
            Self::MeanWaitMs => return waits_ms(it, setting).iter().map(|it| mean(it)).collect(),
            _ => return Vec::new(),
        }]
    }

    fn of_ranks(self, it: &Ranked, setting: &Setting) -> Vec<f64> {
        let of_rank = |rank: usize| it.ranks[rank][1].waits.clone();
        let by_rank = |seconds: &dyn Fn(usize) -> f64| (0..it.ranks.len()).map(seconds).collect();
        vec![match self {
            Self::TotalS => it.total_s(),
            Self::EpochS => it.epoch_s(COUNTED),
            Self::Used => setting.computed_s / it.epoch_s(COUNTED),
            Self::Imbalanced => it.imbalanced(COUNTED, IMBALANCE * setting.step_s),
            Self::Ready => it.ready(COUNTED, READY_S),
            Self::Kept => {
                let again = it.read_megabytes() - setting.megabytes;
                1.0 - again / (setting.megabytes * f64::from(setting.epochs - 1))
            }
            Self::ReadyBytes => return it.ready_bytes(COUNTED).into_iter().collect(),
            Self::StepPercentilesS => {
                let times = it.step_seconds(COUNTED, setting.step_s);
                let at = |percent| percentile(&times, percent).unwrap_or(f64::NAN);
                return PERCENTILES.map(at).to_vec();
            }
            Self::WaitedByRankS => return by_rank(&|rank| of_rank(rank).iter().sum()),
            Self::ComputedByRankS => {
                return by_rank(&|rank| of_rank(rank).iter().map(|_| setting.step_s).sum());
            }
            Self::IdleByRankS => return by_rank(&|rank| it.ranks[rank][1].idles.iter().sum()),
            Self::WaitsOfRank0 => return of_rank(0),
            Self::WaitsOfRank1 => return of_rank(1),
            Self::WaitsOfRank2 => return of_rank(2),
            _ => return Vec::new(),
        }]
    }
}

/// The share of ready batches from the second epoch on, among those with a slow sample or among the others.
#[expect(clippy::cast_precision_loss, reason = "counts of batches")]
fn ready(trained: &Trained, slow: bool) -> f64 {
    let waits = trained.waits.iter().skip(1).flatten();
    let marks = trained.slow.iter().skip(1).flatten();
    let waits: Vec<f64> = waits.zip(marks).filter(|it| *it.1 == slow).map(|it| *it.0).collect();
    waits.iter().filter(|wait| **wait <= READY_WITH_SLOW_S).count() as f64 / waits.len() as f64
}

/// The mean wait in each phase of an epoch, of as many batches in each; `None` if the epoch is too short.
fn waits_ms(trained: &Trained, setting: &Setting) -> Option<Vec<f64>> {
    let waits = trained.waits.first()?.iter().map(|wait| 1e3 * wait.max(setting.ready_s));
    let waits: Vec<f64> = waits.collect();
    let steps = waits.len() / setting.phases.max(1);
    let of_phase = |phase| {
        let counted = waits.get(phase * steps + SKIPPED..(phase + 1) * steps)?;
        (!counted.is_empty()).then(|| mean(counted))
    };
    (0..setting.phases).map(of_phase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(waits: &serde_json::Value, slow: &serde_json::Value) -> Ran {
        let trained = serde_json::json!({
            "seconds": [1, 1], "images": [64, 64], "first_batch_s": 1, "cpu_s": [1, 1], "job_s": 2,
            "waits": waits, "slow": slow,
        });
        let trained = serde_json::from_value(trained).unwrap();
        Ran::One(Box::new(One { trained, copy_s: 0.5, missed: Vec::new(), dollars: [0.0; 2] }))
    }

    fn check(measure: Measure, ran: &Ran, setting: &Setting, expected: &[f64]) {
        let found = measure.of(ran, setting);
        let are_near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(found.len() == expected.len() && are_near, "{measure:?}: {found:?}");
    }

    #[test]
    fn batches_with_slow_samples_are_told_from_the_others() {
        let ran = trained(
            &serde_json::json!([[9, 9, 9, 9], [9, 0.001, 0.001, 0.001]]),
            &serde_json::json!([[true, true, true, true], [true, false, true, false]]),
        );
        check(Measure::ReadyWithSlow, &ran, &Setting::default(), &[0.5]);
        check(Measure::ReadyWithoutSlow, &ran, &Setting::default(), &[1.0]);
    }

    #[test]
    fn copies_count_and_waits_do_from_the_start_on() {
        let ran = trained(&serde_json::json!([[1, 2], [3, 4]]), &serde_json::json!([]));
        check(Measure::TotalS, &ran, &Setting::default(), &[2.5]);
        check(Measure::TotalWithoutCopyS, &ran, &Setting::default(), &[2.0]);
        check(Measure::WaitedByEpochS, &ran, &Setting::default(), &[3.0, 7.0]);
        check(Measure::SinceStartS, &ran, &Setting::default(), &[0.0, 1.0, 2.0]);
    }

    #[test]
    fn the_first_batches_of_each_phase_are_not_counted() {
        let phase = |wait: f64| [vec![9.0; SKIPPED], vec![wait; 4]].concat();
        let waits = [0.03, 0.02, 0.01].map(phase).concat();
        let setting = Setting { phases: 3, ready_s: 0.015, ..Setting::default() };
        let ran = trained(&serde_json::json!([waits]), &serde_json::json!([]));
        check(Measure::WaitsMs, &ran, &setting, &[30.0, 20.0, 15.0]);
        check(Measure::MeanWaitMs, &ran, &setting, &[65.0 / 3.0]);
        let short = trained(&serde_json::json!([[1.0, 1.0, 1.0]]), &serde_json::json!([]));
        check(Measure::WaitsMs, &short, &setting, &[]);
    }
}
