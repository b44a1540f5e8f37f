//! The caching half of Algorithm 1 of DeepMemoryDL (ICPP 2022, doi:10.1145/3545008.3545054).
//!
//! Buffers are FIFO. What a full buffer gives up goes one tier down if it is needed in the upcoming
//! `i` iterations, else out (lines 9 to 14). The paper does not say what `i` is; here it is what the
//! buffers can hold, in steps, which is how the paper bounds the batches scheduled onto a tier.
//! The prefetching half (lines 2 to 8: `n` batches to tier `t`, `k` of them one tier lower) is the
//! session's staging, which never runs further ahead than staging memory allows.

use crate::{
    id::TierId,
    policy::{Candidate, Level, Outlook, Policy, fastest},
    units::Bytes,
};

/// Wants what is needed before the buffers have turned over once.
#[derive(Debug)]
pub(super) struct DeepMemory {
    bytes_per_step: Bytes,
}

impl DeepMemory {
    pub(super) fn new(bytes_per_step: Bytes) -> Self {
        Self { bytes_per_step }
    }

    /// The `i` of the paper.
    fn iterations(&self, tiers: &[Level]) -> u32 {
        let capacity = tiers.iter().fold(0_u64, |sum, level| sum.saturating_add(level.capacity.0));
        u32::try_from(capacity / self.bytes_per_step.0.max(1)).unwrap_or(u32::MAX)
    }
}

impl Policy for DeepMemory {
    fn admit(&self, sample: Candidate, _: &dyn Outlook, tiers: &[Level]) -> Option<TierId> {
        fastest(sample, tiers)
    }

    fn wants(&self, sample: Candidate, outlook: &dyn Outlook, tiers: &[Level]) -> bool {
        outlook.next_use(sample.sample).is_some_and(|steps| steps <= self.iterations(tiers))
    }
}
