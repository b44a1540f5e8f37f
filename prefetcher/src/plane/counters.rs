//! What the data plane did, in numbers that only grow, and what it holds now.

use std::sync::atomic::{AtomicU64, Ordering};

use tierfeed_core::{tier::Kind, units::Bytes};

use crate::tier::{Medium, Way};

/// Operations of one kind, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Operations that ended well.
    pub operations: u64,
    /// The bytes that they moved.
    pub bytes: Bytes,
    /// Operations that failed.
    pub failed: u64,
}

/// What went through one tier, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierTraffic {
    /// Which tier.
    pub kind: Kind,
    /// Samples that were copied from it.
    pub read: Traffic,
    /// Samples that were copied to it.
    pub written: Traffic,
    /// Writes to its disk that failed; what they were to write is read from the cold store instead.
    pub writes_failed: u64,
}

/// Everything that the data plane counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Samples read from the cold store.
    pub source: Traffic,
    /// By tier, fastest first.
    pub tiers: Vec<TierTraffic>,
    /// Operations that ended with a fault, of all kinds.
    pub faults: u64,
    /// Operations that no thread carried out: the queue was full, the plane stopped, or the thread
    /// panicked. Among the faults.
    pub abandoned: u64,
}

/// Bytes that one tier holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierUsage {
    /// Which tier.
    pub kind: Kind,
    /// What they lie on.
    pub medium: Medium,
    /// All its chunks.
    pub bytes: Bytes,
    /// How its bytes are stored; `None` before its first chunk.
    pub way: Option<Way>,
}

/// Bytes that the data plane holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Staging memory of all ranks.
    pub arenas: Bytes,
    /// By tier, fastest first.
    pub tiers: Vec<TierUsage>,
}

impl Usage {
    /// What lies on `medium`, over tiers and arenas.
    #[must_use]
    pub fn on(&self, medium: Medium) -> Bytes {
        let tiers = self.tiers.iter().filter(|tier| tier.medium == medium);
        let arenas = if medium == Medium::Memory { self.arenas.0 } else { 0 };
        Bytes(tiers.map(|tier| tier.bytes.0).sum::<u64>() + arenas)
    }
}

/// [`Traffic`] that threads add to.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounter {
    operations: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

impl TrafficCounter {
    /// Counts one operation on `len` bytes.
    pub(crate) fn count<T, E>(&self, len: Bytes, outcome: &Result<T, E>) {
        if outcome.is_ok() {
            self.operations.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(len.0, Ordering::Relaxed);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The figures now; each is exact, together they may be from slightly different moments.
    pub(crate) fn read(&self) -> Traffic {
        Traffic {
            operations: self.operations.load(Ordering::Relaxed),
            bytes: Bytes(self.bytes.load(Ordering::Relaxed)),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
