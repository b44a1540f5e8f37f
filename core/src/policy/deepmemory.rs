//! The caching half of Algorithm 1 of DeepMemoryDL (ICPP 2022, doi:10.1145/3545008.3545054).
//!
//! Buffers are FIFO. What a full buffer gives up goes one tier down if it is needed in the upcoming
//! `i` iterations, else out (lines 9 to 14). The paper does not say what `i` is; here it is what the
//! buffers can hold, in steps, which is how the paper bounds the batches scheduled onto a tier.
//! The prefetching half (lines 2 to 8: `n` batches to tier `t`, `k` of them one tier lower) is the
//! session's staging, which never runs further ahead than staging memory allows.

use crate::{
    id::TierId,
    policy::{Candidate, Level, Outlook, Policy, Setting, fastest},
};

/// Wants what is needed before the buffers have turned over once.
#[derive(Debug)]
pub(super) struct DeepMemory {
    /// The `i` of the paper.
    iterations: u32,
}

impl DeepMemory {
    pub(super) fn new(setting: Setting) -> Self {
        let steps = setting.capacity.0 / setting.bytes_per_step.0.max(1);
        Self { iterations: u32::try_from(steps).unwrap_or(u32::MAX) }
    }
}

impl Policy for DeepMemory {
    fn admit(&self, sample: Candidate, _: &dyn Outlook, tiers: &[Level]) -> Option<TierId> {
        fastest(sample, tiers)
    }

    fn wants(&self, sample: Candidate, outlook: &dyn Outlook) -> bool {
        outlook.next_use(sample.sample).is_some_and(|steps| steps <= self.iterations)
    }
}
