//! Counters of the requests of a fetcher.

use std::sync::atomic::{AtomicU64, Ordering};

use tierfeed_core::units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectFigures {
    /// All requests that were sent: first ones, retries and hedges.
    pub requests: u64,
    pub retries: u64,
    pub hedges: u64,
    /// Hedges that delivered the last byte of their range.
    pub hedges_won: u64,
    /// Samples that were read by several requests for parts.
    pub split: u64,
    /// Bytes that were received in vain: another request delivered them first, or they are requested again.
    pub discarded: Bytes,
}

#[derive(Debug, Default)]
pub struct ObjectCounters {
    pub(super) requests: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) hedges: AtomicU64,
    pub(super) hedges_won: AtomicU64,
    pub(super) split: AtomicU64,
    pub(super) discarded: AtomicU64,
}

impl ObjectCounters {
    /// Each is exact; they may be read at slightly different moments.
    #[must_use]
    pub fn figures(&self) -> ObjectFigures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ObjectFigures {
            requests: read(&self.requests),
            retries: read(&self.retries),
            hedges: read(&self.hedges),
            hedges_won: read(&self.hedges_won),
            split: read(&self.split),
            discarded: Bytes(read(&self.discarded)),
        }
    }
}

pub(super) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
