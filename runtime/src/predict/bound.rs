//! Lower bounds of a node's cold reads for every policy, epoch by epoch.
//!
//! On one node the bound holds in each epoch: a cache saves at most what it holds when the epoch begins. On
//! several nodes the share of reads that can be saved is h* of `docs/demand.md`, the mean over the epochs
//! of a long run; a single epoch may be slightly above or below it.

use tierfeed_core::{
    id::Epoch,
    session::Settings,
    simulator::EpochOutcome,
    units::{Bytes, float},
};
use tierfeed_workload_analyzer::demand::Rule;

/// The minimal cold bytes of every epoch of a run, given the reads of the node's ranks.
#[must_use]
pub fn minimal_cold(settings: &Settings, epochs: &[EpochOutcome]) -> Vec<Bytes> {
    let saved = steady_share(settings);
    let first = settings.order.start.epoch;
    let minimal = |it: &EpochOutcome| it.minimal_cold.max(least(it, first, saved));
    epochs.iter().map(minimal).collect()
}

/// The cold bytes of an epoch if the best share of its demand hits.
fn least(outcome: &EpochOutcome, first: Epoch, saved: Option<f64>) -> Bytes {
    match saved {
        Some(share) if outcome.epoch > first => part_of(outcome.read.demand, 1.0 - share),
        _ => Bytes(0),
    }
}

/// The best hit share on one of several nodes, whose samples another node may read next. `None` on one
/// node, and where nodes share what they keep: there the simulator's bound is exact.
fn steady_share(settings: &Settings) -> Option<f64> {
    let nodes = settings.order.world.nodes;
    let chunks: u64 = settings.tiers.iter().map(|tier| u64::from(tier.chunks_max)).sum();
    let capacity = Bytes(chunks.saturating_mul(settings.chunk.0));
    let dataset = Bytes(settings.sizes.iter().map(|len| len.0).sum());
    let is_alone = !settings.policy.shares();
    (nodes > 1 && is_alone).then(|| Rule::Gap.hit_share(share(capacity, dataset), nodes))
}

/// `part` as a share of `whole`, at most 1.
fn share(part: Bytes, whole: Bytes) -> f64 {
    if part >= whole { 1.0 } else { float(part.0) / float(whole.0) }
}

/// A share of `whole`, rounded down: a limit must not be too high.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is between 0 and 1, and the cast of a float saturates"
)]
fn part_of(whole: Bytes, share: f64) -> Bytes {
    Bytes((float(whole.0) * share) as u64)
}
