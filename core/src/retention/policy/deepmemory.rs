//! The retention part of algorithm 1 of DeepMemoryDL (ICPP 2022, doi:10.1145/3545008.3545054).
//!
//! How its lines are carried out here:
//!
//! - Lines 1 and 2, for each worker, "determine location for n batches": a session places the batches of
//!   its ranks in turn ([`crate::session`]). `n` is what the ranks of the node read in a step.
//! - Lines 3 to 8, `n` batches to tier `t`, or if space is short `n - k` there and `k` one tier lower:
//!   the way to main memory is the session's staging; into the buffers of the tiers it is here, where
//!   each sample of the `n` batches goes to the fastest tier that has space.
//! - Lines 9 to 15, in every step and for every tier: while its buffer is filled to the threshold, the
//!   sample that came first ("data is evicted in FIFO order") goes one tier down if it is needed in the
//!   upcoming `i` iterations, else out. Batches are mixed anew in each epoch, so this asks for each
//!   sample, as section 3.3.4 does ("samples within a batch that are marked for prefetching will be cached
//!   to a lower memory tier").
//!
//! The paper leaves three things open: the threshold, here the fill level at which the `n` batches
//! of a step do not fit any more, but at least [`FILLED_PERCENT`]; `i`, here the steps that the
//! buffers can hold, which is how the paper bounds the batches scheduled onto a tier; and what
//! happens when the tier below has no space although lines 9 to 15 visited it before: it evicts its
//! own oldest, by lines 10 to 14. The buffers are as large as the job says, 20 % of what is free
//! unless it says otherwise, and may change while it runs.

use super::{Policy, Read, Setting, first_with_room, queue::Queues};
use crate::{
    id::{SampleId, TierId},
    retention::{
        future_accesses::{FutureAccesses, NextUse, NextUses, Use},
        residency::Residency,
    },
    units::Bytes,
};

/// Below this fill level a buffer evicts nothing, however large a step is.
const FILLED_PERCENT: u128 = 90;

/// Keeps what is needed before the buffers have turned over once.
#[derive(Debug)]
pub(super) struct DeepMemory {
    queues: Queues,
    bytes_per_step: Bytes,
    /// The previous read.
    last: Option<Use>,
}

impl DeepMemory {
    pub(super) fn new(setting: &Setting) -> Self {
        let queues = Queues::new(setting.sizes.len(), setting.capacities.len());
        Self { queues, bytes_per_step: setting.bytes_per_step(), last: None }
    }

    fn is_over_threshold(&self, tier: TierId, residency: &Residency) -> bool {
        let level = residency.levels()[usize::from(tier.0)];
        let is_filled =
            u128::from(level.used.0) * 100 >= u128::from(level.capacity.0) * FILLED_PERCENT;
        is_filled && level.used.0 > 0 && level.free() < self.bytes_per_step
    }

    /// Lines 9 to 15, the slowest tier first: its evictions make room for demotions from the tier
    /// above.
    fn evict(&mut self, now: Use, future: &FutureAccesses, residency: &mut Residency) {
        let iterations = iterations(self.bytes_per_step, residency);
        let mut is_needed = |sample| steps_until(sample, now, future) <= iterations;
        for tier in residency.tiers().rev() {
            while self.is_over_threshold(tier, residency)
                && self.queues.give_up_oldest(tier, residency, &mut is_needed)
            {}
        }
    }
}

impl Policy for DeepMemory {
    fn next_uses(&self) -> NextUses {
        NextUses::Asked
    }

    fn read(&mut self, read: Read, future: &FutureAccesses, residency: &mut Residency) {
        let last = self.last.replace(read.at);
        if last.is_none_or(|last| !is_one_step(last, read.at, future)) {
            self.evict(read.at, future, residency);
        }
        if residency.tier_of(read.sample).is_none()
            && let Some(tier) = first_with_room(read.sample, residency)
            && residency.put(read.sample, tier).is_ok()
        {
            self.queues.enter(read.sample, tier);
        }
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.queues.displaced(sample, from, to);
    }
}

/// The look-ahead `i` of the paper, in steps.
fn iterations(bytes_per_step: Bytes, residency: &Residency) -> u32 {
    let capacities = residency.levels().iter().map(|level| level.capacity.0);
    let capacity = capacities.fold(0_u64, u64::saturating_add);
    u32::try_from(capacity / bytes_per_step.0.max(1)).unwrap_or(u32::MAX)
}

/// Whether both belong to one iteration of the node.
fn is_one_step(one: Use, other: Use, future: &FutureAccesses) -> bool {
    let start = Use { place: 0, ..one };
    one.epoch == other.epoch
        && future.steps_between(start, one) == future.steps_between(start, other)
}

/// Steps until the next use. An unknown next use counts as an epoch away: that is its mean distance
/// if the trainer publishes the order of each epoch before it.
fn steps_until(sample: SampleId, now: Use, future: &FutureAccesses) -> u32 {
    match future.next_use(sample, now) {
        NextUse::At(next) => future.steps_between(now, next),
        NextUse::Later => future.spec().steps_per_epoch(),
        NextUse::Never => u32::MAX,
    }
}
