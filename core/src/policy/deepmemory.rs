//! The caching half of Algorithm 1 of DeepMemoryDL (ICPP 2022, doi:10.1145/3545008.3545054).
//!
//! Buffers are FIFO. What a full buffer gives up goes one tier down if it is needed in the upcoming
//! `i` iterations, else out (lines 9 to 14). The paper does not say what `i` is; here it is what the
//! buffers can hold, in steps, which is how the paper bounds the batches scheduled onto a tier.
//! The prefetching half (lines 2 to 8: `n` batches to tier `t`, `k` of them one tier lower) is the
//! session's staging, which never runs further ahead than staging memory allows.

use super::{Policy, Read, Setting, queue::Queues};
use crate::{
    books::Books,
    horizon::{Horizon, NextUse, Use},
    id::{SampleId, TierId},
    units::Bytes,
};

/// Wants what is needed before the buffers have turned over once.
#[derive(Debug)]
pub(super) struct DeepMemory {
    queues: Queues,
    bytes_per_step: Bytes,
}

impl DeepMemory {
    pub(super) fn new(setting: &Setting) -> Self {
        let queues = Queues::new(setting.sizes.len(), setting.capacities.len());
        Self { queues, bytes_per_step: setting.bytes_per_step() }
    }

    /// The `i` of the paper.
    fn iterations(&self, books: &Books) -> u32 {
        let capacities = books.levels().iter().map(|level| level.capacity.0);
        let capacity = capacities.fold(0_u64, u64::saturating_add);
        u32::try_from(capacity / self.bytes_per_step.0.max(1)).unwrap_or(u32::MAX)
    }
}

impl Policy for DeepMemory {
    fn read(&mut self, read: Read, horizon: &Horizon, books: &mut Books) {
        if books.tier_of(read.sample).is_some() {
            return;
        }
        let iterations = self.iterations(books);
        let is_needed_soon = |sample| steps_until(sample, read.at, horizon) <= iterations;
        self.queues.admit(read.sample, books, &mut { is_needed_soon });
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.queues.displaced(sample, from, to);
    }
}

/// Steps until the next use. One that is not known yet counts as an epoch away: that is where it lies,
/// on average, if the trainer publishes the order of each epoch before it.
fn steps_until(sample: SampleId, now: Use, horizon: &Horizon) -> u32 {
    match horizon.next_use(sample, now) {
        NextUse::At(next) => horizon.steps_between(now, next),
        NextUse::Later => horizon.spec().steps_per_epoch(),
        NextUse::Never => u32::MAX,
    }
}
