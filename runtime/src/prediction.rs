//! What a job will do on this node, from the same core that the agent runs.

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::{
    policy, session,
    simulator::{EpochOutcome, Model, Outcome, simulate},
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::Report;

use crate::places::{Layout, Place};

/// A link that is never waited for.
pub const UNLIMITED: Speed = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(0) };

/// What one policy will do, as `tierfeed plan --simulate --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The rule of retention.
    pub policy: &'static str,
    /// Epoch by epoch.
    pub epochs: Vec<Epoch>,
    /// Equal plans have equal digests: a hash of every command in order, in hexadecimal digits.
    pub digest: String,
}

/// One predicted epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Epoch {
    /// Which one.
    pub epoch: u32,
    /// Steps of each rank.
    pub steps: u32,
    /// Bytes that the ranks of the node take.
    pub demand_bytes: u64,
    /// Bytes read from the cold store.
    pub cold_read_bytes: u64,
    /// Bytes by the tier that they are read from.
    pub tier_read_bytes: BTreeMap<&'static str, u64>,
    /// The share of the demand that needs no cold read.
    pub hit_ratio: f64,
    /// The share of the demand that is ready when it is asked for.
    pub ready_ratio: f64,
    /// Time for which training stands still.
    pub stall_s: f64,
    /// From the first request to the end of the last step.
    pub duration_s: f64,
    /// What no policy can undercut.
    pub lower_bound_s: f64,
    /// Bytes that no policy can avoid to read from the cold store.
    pub minimal_cold_bytes: u64,
}

impl Prediction {
    /// Runs the session of `settings` with `policy` against `model`.
    #[must_use]
    pub fn of(settings: &session::Settings, policy: policy::Kind, model: &Model) -> Self {
        let settings = session::Settings { policy, ..settings.clone() };
        let Outcome { epochs, digest } = simulate(&settings, model);
        let kinds: Vec<_> = settings.tiers.iter().map(|tier| tier.kind.name()).collect();
        Self {
            policy: policy.name(),
            epochs: epochs.iter().map(|it| epoch(it, &kinds)).collect(),
            digest: format!("{digest:016x}"),
        }
    }
}

fn epoch(outcome: &EpochOutcome, kinds: &[&'static str]) -> Epoch {
    let read = &outcome.read;
    let mut tier_read_bytes: BTreeMap<_, _> = kinds.iter().map(|kind| (*kind, 0)).collect();
    for (kind, bytes) in kinds.iter().zip(&read.from_tier) {
        *tier_read_bytes.entry(*kind).or_default() += bytes.0;
    }
    Epoch {
        epoch: outcome.epoch.0,
        steps: outcome.steps,
        demand_bytes: read.demand.0,
        cold_read_bytes: read.cold.0,
        tier_read_bytes,
        hit_ratio: 1.0 - share(read.cold, read.demand).min(1.0),
        ready_ratio: share(read.ready, read.demand),
        stall_s: seconds(outcome.stall),
        duration_s: seconds(outcome.duration),
        lower_bound_s: seconds(outcome.lower_bound),
        minimal_cold_bytes: outcome.minimal_cold.0,
    }
}

/// The speed of each tier of `layout`: what the job imposes, else what was measured, else unlimited.
#[must_use]
pub fn tier_speeds(layout: &Layout, measured: Option<&Report>) -> Vec<Speed> {
    layout.places.iter().map(|place| tier_speed(place, measured)).collect()
}

fn tier_speed(place: &Place, measured: Option<&Report>) -> Speed {
    if let Some(speed) = place.settings.emulated {
        return speed;
    }
    let kind = place.settings.kind;
    let tier = measured.and_then(|report| report.tiers.iter().find(|tier| tier.kind == kind));
    let rate = tier.and_then(|tier| tier.copy_bytes_per_s.or(tier.read_bytes_per_s));
    Speed { bandwidth: BytesPerSecond(rate.unwrap_or(0)), ..UNLIMITED }
}

#[expect(clippy::cast_precision_loss, reason = "a prediction needs no more than 53 bits")]
fn seconds(time: Nanoseconds) -> f64 {
    time.0 as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a prediction needs no more than 53 bits")]
fn share(part: Bytes, whole: Bytes) -> f64 {
    if whole.0 == 0 { 0.0 } else { part.0 as f64 / whole.0 as f64 }
}
