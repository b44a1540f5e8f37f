//! The result of a training of several ranks: the times of waits and steps, and the reports of agents.

use std::ops::Range;

use serde::Deserialize;
use tierfeed_core::units::Bytes;

use crate::{machine::Used, prediction};

#[derive(Debug, Clone)]
pub(crate) struct Ranked {
    /// The epochs, by rank.
    pub(crate) ranks: Vec<Vec<Epoch>>,
    /// By node.
    pub(crate) used: Vec<Used>,
    pub(crate) reports: Vec<Report>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Epoch {
    pub(crate) seconds: f64,
    /// Seconds for which the rank waited for each batch.
    pub(crate) waits: Vec<f64>,
    /// Seconds after each step until all other ranks had done it too.
    pub(crate) idles: Vec<f64>,
    pub(crate) images: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(super) run: prediction::Report,
    epochs: Vec<ReportedEpoch>,
    tiers: Vec<ReportedTier>,
}

#[derive(Debug, Clone, Deserialize)]
struct ReportedEpoch {
    ready_ratio: f64,
    cold_read_bytes: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct ReportedTier {
    name: String,
    cache_bytes: u64,
}

impl Report {
    /// Bytes that were read cold from an epoch on.
    pub(super) fn cold_bytes(&self, from: usize) -> u64 {
        self.epochs.iter().skip(from).map(|epoch| epoch.cold_read_bytes).sum()
    }

    pub(super) fn cached_in_main_memory(&self) -> Bytes {
        let main = self.tiers.iter().find(|tier| tier.name == "main-memory");
        Bytes(main.map_or(0, |tier| tier.cache_bytes))
    }
}

impl Ranked {
    /// Seconds of all epochs, and of the reading by agents before them: the head start of the earliest.
    pub(crate) fn total_s(&self) -> f64 {
        let head_starts = self.reports.iter().map(|report| report.run.head_start_s());
        let epochs: f64 = self.ranks[0].iter().map(|epoch| epoch.seconds).sum();
        head_starts.fold(0.0, f64::max) + epochs
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of steps")]
    pub(super) fn steps_count(&self, from: usize) -> f64 {
        self.ranks[0][from..].iter().map(|epoch| epoch.waits.len()).sum::<usize>() as f64
    }

    pub(crate) fn epoch_s(&self, epochs: Range<usize>) -> f64 {
        mean(self.ranks[0][epochs].iter().map(|epoch| epoch.seconds))
    }

    /// For each step of these epochs, the waits of the ranks for their batches.
    fn steps(&self, epochs: Range<usize>) -> impl Iterator<Item = Vec<f64>> {
        epochs.flat_map(move |number| {
            let of_step = move |step: usize| {
                let waits = self.ranks.iter().map(|rank| rank[number].waits.get(step).copied());
                waits.map(Option::unwrap_or_default).collect()
            };
            (0..self.ranks[0][number].waits.len()).map(of_step)
        })
    }

    /// The share of steps in which the longest wait of a rank for its batch exceeds the shortest by more than
    /// `tolerance_s`.
    pub(crate) fn imbalanced(&self, epochs: Range<usize>, tolerance_s: f64) -> f64 {
        let spread = |waits: Vec<f64>| {
            let most = waits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            most - waits.iter().copied().fold(f64::INFINITY, f64::min)
        };
        mean(self.steps(epochs).map(|waits| f64::from(spread(waits) > tolerance_s)))
    }

    /// The share of batches with a wait of at most `at_most_s`.
    pub(crate) fn ready(&self, epochs: Range<usize>, at_most_s: f64) -> f64 {
        mean(self.steps(epochs).flatten().map(|wait| f64::from(wait <= at_most_s)))
    }

    /// Seconds of each step of the first rank, in which it computed for `step_s`.
    pub(crate) fn step_seconds(&self, epochs: Range<usize>, step_s: f64) -> Vec<f64> {
        let epochs = self.ranks[0][epochs].iter();
        let waited = epochs.flat_map(|epoch| epoch.waits.iter().zip(&epoch.idles));
        waited.map(|(wait, idle)| wait + step_s + idle).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn read_megabytes(&self) -> f64 {
        self.used.iter().map(|used| used.read.0 as f64 / 1e6).sum()
    }

    /// The share of bytes that lay in memory when they were asked for, by the reports of tierfeed.
    pub(crate) fn ready_bytes(&self, epochs: Range<usize>) -> Option<f64> {
        let reported = self.reports.iter().map(|report| report.epochs.get(epochs.clone()));
        let reported: Option<Vec<_>> = reported.collect();
        let reported = reported.filter(|of_nodes| !of_nodes.is_empty())?;
        Some(mean(reported.into_iter().flatten().map(|epoch| epoch.ready_ratio)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "few values")]
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks, whose second epoch has three steps.
    fn ranked() -> Ranked {
        let epoch = |waits: [f64; 3], idles: [f64; 3]| Epoch {
            seconds: 1.0,
            waits: waits.to_vec(),
            idles: idles.to_vec(),
            images: 3,
        };
        let cold = epoch([9.0; 3], [9.0; 3]);
        let ranks =
            [epoch([0.0, 0.1, 0.5], [0.2, 0.0, 0.0]), epoch([0.2, 0.1, 0.0], [0.0, 0.0, 0.5])];
        Ranked {
            ranks: ranks.map(|second| vec![cold.clone(), second]).to_vec(),
            used: Vec::new(),
            reports: Vec::new(),
        }
    }

    #[test]
    fn a_step_is_imbalanced_by_the_waits_of_its_ranks() {
        let imbalanced = |tolerance_s| ranked().imbalanced(1..2, tolerance_s);
        let found = [imbalanced(0.15), imbalanced(0.3), imbalanced(0.6)];
        assert!(are_near(&found, &[2.0 / 3.0, 1.0 / 3.0, 0.0]), "{found:?}");
    }

    fn are_near(found: &[f64], expected: &[f64]) -> bool {
        found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9)
    }

    #[test]
    fn batches_and_steps_are_those_of_the_epochs_that_count() {
        let ready = ranked().ready(1..2, 0.1);
        assert!(are_near(&[ready], &[4.0 / 6.0]), "{ready}");
        let seconds = ranked().step_seconds(1..2, 1.0);
        assert!(are_near(&seconds, &[1.2, 1.1, 1.5]), "{seconds:?}");
        assert_eq!(ranked().ready_bytes(1..2), None);
    }
}
