//! Sums the figures of epochs and nodes, and compares them with the bounds.

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::{
    session::{EpochProgress, StallBreakdown},
    simulator::{EpochOutcome, Model},
    units::{Bytes, Nanoseconds, seconds, share},
};

use crate::observe::{report::seconds_by_cause, total::add};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Steps of each rank.
    pub steps: u64,
    pub samples: u64,
    pub cold_samples: u64,
    pub demand_bytes: u64,
    pub cold_read_bytes: u64,
    pub peer_read_bytes: u64,
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    /// The share of the demand that needs no cold read.
    pub hit_ratio: f64,
    /// The share of the demand that is ready when it is requested.
    pub ready_ratio: f64,
    pub stall_s: f64,
    /// By cause, as in the report of a run.
    pub stall_for_s: BTreeMap<&'static str, f64>,
    /// From the first request to the end of the last step.
    pub duration_s: f64,
    /// A lower bound for every policy: the longest of computing, of reading `minimal_cold_bytes`, and of transforming on
    /// all threads.
    pub lower_bound_s: f64,
    /// Bytes that no policy can avoid to read from the cold store.
    pub minimal_cold_bytes: u64,
    /// The share of the demand that the best policy saves.
    pub best_hit_ratio: f64,
    /// `cold_read_bytes` / `minimal_cold_bytes`; `None` if the latter is 0.
    pub cold_to_minimal: Option<f64>,
    /// `duration_s` / `lower_bound_s`; `None` if the latter is 0.
    pub duration_to_lower_bound: Option<f64>,
}

/// The figures as integers, which can be summed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sums {
    steps: u64,
    read: EpochProgress,
    cold_samples: u64,
    stall: u64,
    causes: StallBreakdown,
    duration: u64,
    lower_bound: u64,
    minimal_cold: u64,
}

impl Sums {
    pub(super) fn of(outcome: &EpochOutcome, minimal_cold: Bytes, model: &Model) -> Self {
        // What a run has read is in its own bound, without what its agent read before the training began.
        let lower_bound = if minimal_cold > outcome.minimal_cold {
            let reading = model.cold.bandwidth.time_for(minimal_cold).0;
            outcome.lower_bound.max(Nanoseconds(reading.saturating_sub(model.cold_burst.0)))
        } else {
            outcome.lower_bound
        };
        Self {
            steps: outcome.steps.into(),
            cold_samples: outcome.read.samples.saturating_sub(
                outcome.read.hits.iter().sum::<u64>() + outcome.read.received_samples,
            ),
            read: outcome.read.clone(),
            stall: outcome.stall.0,
            causes: outcome.causes.clone(),
            duration: outcome.duration.0,
            lower_bound: lower_bound.0,
            minimal_cold: minimal_cold.0,
        }
    }

    /// Adds an epoch that follows.
    pub(super) fn add_epoch(&mut self, next: &Self) {
        self.add_reads(next);
        self.steps = self.steps.saturating_add(next.steps);
        self.stall = self.stall.saturating_add(next.stall);
        self.causes.add(&next.causes);
        self.duration = self.duration.saturating_add(next.duration);
        self.lower_bound = self.lower_bound.saturating_add(next.lower_bound);
    }

    /// Adds another node that runs at the same time: training is as slow as the slowest. So is a whole run: a
    /// node that is ahead in one epoch has its batches for the next, so the whole takes less than the sum of
    /// the slowest of each epoch.
    pub(super) fn add_node(&mut self, other: &Self) {
        self.add_reads(other);
        self.steps = self.steps.max(other.steps);
        if other.stall > self.stall {
            self.stall = other.stall;
            self.causes = other.causes.clone();
        }
        self.duration = self.duration.max(other.duration);
        self.lower_bound = self.lower_bound.max(other.lower_bound);
    }

    fn add_reads(&mut self, other: &Self) {
        add(&mut self.read, &other.read);
        self.cold_samples = self.cold_samples.saturating_add(other.cold_samples);
        self.minimal_cold = self.minimal_cold.saturating_add(other.minimal_cold);
    }

    /// `kinds` are the tiers; those of one kind are summed.
    pub(super) fn figures(&self, kinds: &[&'static str]) -> Figures {
        let mut tier_read_bytes: BTreeMap<_, _> = kinds.iter().map(|kind| (*kind, 0)).collect();
        for (kind, bytes) in kinds.iter().zip(&self.read.from_tier) {
            *tier_read_bytes.entry(*kind).or_default() += bytes.0;
        }
        let EpochProgress { demand, cold, .. } = self.read;
        Figures {
            steps: self.steps,
            samples: self.read.samples,
            cold_samples: self.cold_samples,
            demand_bytes: demand.0,
            cold_read_bytes: cold.0,
            peer_read_bytes: self.read.received.0,
            tier_read_bytes,
            hit_ratio: saved(cold.0, demand.0),
            ready_ratio: share(self.read.ready.0, demand.0),
            stall_s: seconds(Nanoseconds(self.stall)),
            stall_for_s: seconds_by_cause(&self.causes, kinds, 1.0),
            duration_s: seconds(Nanoseconds(self.duration)),
            lower_bound_s: seconds(Nanoseconds(self.lower_bound)),
            minimal_cold_bytes: self.minimal_cold,
            best_hit_ratio: saved(self.minimal_cold, demand.0),
            cold_to_minimal: times(cold.0, self.minimal_cold),
            duration_to_lower_bound: times(self.duration, self.lower_bound),
        }
    }
}

/// The share of `demand` that is not read cold.
fn saved(cold: u64, demand: u64) -> f64 {
    1.0 - share(cold, demand).min(1.0)
}

/// `value` / `least`; 1 if both are 0, `None` if only `least` is.
fn times(value: u64, least: u64) -> Option<f64> {
    match (value, least) {
        (0, 0) => Some(1.0),
        (_, 0) => None,
        _ => Some(share(value, least)),
    }
}
