//! Which samples a batch may name where they are cached, instead of a copy of them.
//!
//! A sample is read in place if its tier is one that trainers map, if it lies in one piece, and if the
//! policy lets it stay there. Nothing moves then: the batch is complete as soon as the sample is in its
//! place. A pin keeps the place until the batch is gone. It is held by the cache and is not
//! an operation that others wait for: a trainer may hold one batch while it asks for the next.
//!
//! A sample that the policy may give up when it is read again is copied in the last steps of an epoch.
//! Batches of the next epoch are staged beside these, and room that is freed only when a trainer gives its
//! batch back would make decisions depend on when that is. In the last epoch no sample needs room any more,
//! so even one that the policy gives up is read in place.

use super::Settings;
use crate::{
    id::{BatchId, TierId},
    order::Spec,
    retention::policy::Stay,
};

/// The number of steps at the end of an epoch, for each batch that is staged ahead, in which no sample that
/// may leave its tier in the next epoch is read in place. Where batches are small, more of them fit.
const STEPS_PER_STAGED: u32 = 2;

/// Whether a batch may name a sample that is cached in `tier`.
pub(super) fn is_allowed(settings: &Settings, batch: BatchId, tier: TierId) -> bool {
    let spec = &settings.order;
    if !settings.in_place_tiers.contains(&tier) {
        return false;
    }
    match settings.policy.stay(spec.shuffle) {
        Stay::ForGood => true,
        Stay::UntilRead => {
            let last = settings.staged_max().saturating_mul(STEPS_PER_STAGED);
            let is_near_end = batch.step.0.saturating_add(last) >= spec.steps_in(batch.epoch);
            is_last_epoch(spec, batch) || !is_near_end
        }
        Stay::Unknown => false,
    }
}

/// Whether a batch is one of the last epoch, after which no sample needs the room of another.
pub(super) fn is_last_epoch(spec: &Spec, batch: BatchId) -> bool {
    batch.epoch.0 + 1 >= spec.epochs
}
