//! Counters of what the data plane did, which only grow, and the memory that it holds now.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    id::{ChunkId, TierId},
    session::Fault,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

use tierfeed_numa_memory::Placement;

use crate::{
    recorder::Endpoint,
    tier::{Medium, WriteMode},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Number of operations that succeeded.
    pub operations: u64,
    /// The bytes that successful operations moved.
    pub bytes: Bytes,
    pub failed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierTraffic {
    pub kind: Kind,
    pub read: Traffic,
    pub written: Traffic,
    /// Writes to its disk that failed; the lost samples are read from the cold store instead.
    pub writes_failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    pub source: Traffic,
    /// By tier, fastest first.
    pub tiers: Vec<TierTraffic>,
    pub moves: Vec<Moves>,
    /// How long transforms took, from the start of the operation to its end.
    pub transform_durations: Durations,
    pub faults: u64,
    /// Operations that no thread carried out: the queue was full, the plane stopped, or the thread
    /// panicked. Among the faults.
    pub abandoned: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    pub from: Endpoint,
    pub to: Endpoint,
    /// Number of samples that arrived.
    pub operations: u64,
    pub bytes: Bytes,
    pub failed: Vec<(Fault, u64)>,
    pub lasted: Durations,
}

/// Durations of operations that succeeded, since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Durations {
    /// A histogram: a bucket for each of [`DURATION_BOUNDS`] and one for longer ones.
    pub buckets: Vec<u64>,
    pub sum: Nanoseconds,
}

#[derive(Debug, Default)]
pub(crate) struct DurationCounter {
    buckets: [AtomicU64; DURATION_BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl DurationCounter {
    pub(crate) fn count(&self, lasted: Nanoseconds, fault: Option<Fault>) {
        if fault.is_none() {
            let bucket = DURATION_BOUNDS.partition_point(|bound| *bound < lasted);
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(lasted.0, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Durations {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let sum = Nanoseconds(read(&self.sum));
        Durations { buckets: self.buckets.iter().map(read).collect(), sum }
    }
}

/// Inclusive upper bounds of the buckets of [`Durations`]: a memory copy takes microseconds, a
/// request to a distant store seconds.
pub const DURATION_BOUNDS: [Nanoseconds; 19] = [
    Nanoseconds(10_000),
    Nanoseconds(25_000),
    Nanoseconds(50_000),
    Nanoseconds(100_000),
    Nanoseconds(250_000),
    Nanoseconds(500_000),
    Nanoseconds(1_000_000),
    Nanoseconds(2_500_000),
    Nanoseconds(5_000_000),
    Nanoseconds(10_000_000),
    Nanoseconds(25_000_000),
    Nanoseconds(50_000_000),
    Nanoseconds(100_000_000),
    Nanoseconds(250_000_000),
    Nanoseconds(500_000_000),
    Nanoseconds(1_000_000_000),
    Nanoseconds(2_500_000_000),
    Nanoseconds(5_000_000_000),
    Nanoseconds(10_000_000_000),
];

/// One of each kind, at the index [`slot_of`].
const FAULTS: [Fault; 10] = [
    Fault::Vanished,
    Fault::Changed,
    Fault::Truncated,
    Fault::Denied,
    Fault::Io,
    Fault::Corrupt,
    Fault::NoSpace,
    Fault::Poisoned(TierId(0), ChunkId(0)),
    Fault::Untransformable,
    Fault::NoWorker,
];

/// The index of a kind of fault, wherever it happened.
const fn slot_of(fault: Fault) -> usize {
    match fault {
        Fault::Vanished => 0,
        Fault::Changed => 1,
        Fault::Truncated => 2,
        Fault::Denied => 3,
        Fault::Io => 4,
        Fault::Corrupt => 5,
        Fault::NoSpace => 6,
        Fault::Poisoned(..) => 7,
        Fault::Untransformable => 8,
        Fault::NoWorker => 9,
    }
}

#[derive(Debug)]
pub(crate) struct MoveCounters {
    tiers: usize,
    /// By source, then by destination.
    counters: Vec<MoveCounter>,
}

#[derive(Debug, Default)]
struct MoveCounter {
    operations: AtomicU64,
    bytes: AtomicU64,
    failed: [AtomicU64; FAULTS.len()],
    durations: DurationCounter,
}

impl MoveCounters {
    pub(crate) fn new(tiers: usize) -> Self {
        let ends = tiers + 2;
        Self { tiers, counters: (0..ends * ends).map(|_| MoveCounter::default()).collect() }
    }

    pub(crate) fn count(
        &self,
        (from, to): (Endpoint, Endpoint),
        samples: u32,
        len: Bytes,
        lasted: Nanoseconds,
        fault: Option<Fault>,
    ) {
        let ends = self.tiers + 2;
        let Some(counter) = self.counters.get(self.index(from) * ends + self.index(to)) else {
            return;
        };
        let add = |sum: &AtomicU64, value| {
            sum.fetch_add(value, Ordering::Relaxed);
        };
        if let Some(fault) = fault {
            add(&counter.failed[slot_of(fault)], samples.into());
            return;
        }
        add(&counter.operations, samples.into());
        add(&counter.bytes, len.0);
        counter.durations.count(lasted, None);
    }

    /// Leaves out pairs of endpoints that had no move.
    pub(crate) fn read(&self) -> Vec<Moves> {
        let ends = self.tiers + 2;
        let moves = self.counters.iter().enumerate().map(|(at, counter)| {
            let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
            let failed = FAULTS.into_iter().zip(counter.failed.iter().map(read));
            Moves {
                from: Self::end(at / ends),
                to: Self::end(at % ends),
                operations: read(&counter.operations),
                bytes: Bytes(read(&counter.bytes)),
                failed: failed.filter(|(_, count)| *count > 0).collect(),
                lasted: counter.durations.read(),
            }
        });
        moves.filter(|moves| moves.operations > 0 || !moves.failed.is_empty()).collect()
    }

    fn index(&self, end: Endpoint) -> usize {
        match end {
            Endpoint::Cold => 0,
            Endpoint::Staging => 1,
            // A tier that does not exist gets an index beyond the table.
            Endpoint::Tier(tier) => {
                let tier = usize::from(tier.0);
                if tier < self.tiers { tier + 2 } else { self.counters.len() }
            }
        }
    }

    fn end(index: usize) -> Endpoint {
        match index {
            0 => Endpoint::Cold,
            1 => Endpoint::Staging,
            tier => Endpoint::Tier(TierId(u8::try_from(tier - 2).unwrap_or(u8::MAX))),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierUsage {
    pub kind: Kind,
    pub medium: Medium,
    /// Size of all chunks of the tier.
    pub bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    pub arenas: Bytes,
    /// By tier, fastest first.
    pub tiers: Vec<TierUsage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteModes {
    /// Staging memory; `None` before the first trainer.
    pub staging: Option<WriteMode>,
    /// Where each part of the staging memory of a rank came to lie; empty before the first trainer.
    pub staging_placements: Vec<Placement>,
    /// By tier, fastest first; `None` before its first chunk.
    pub tiers: Vec<Option<WriteMode>>,
}

impl Usage {
    /// The bytes on `medium`, of tiers and arenas together.
    #[must_use]
    pub fn on(&self, medium: Medium) -> Bytes {
        let tiers = self.tiers.iter().filter(|tier| tier.medium == medium);
        let arenas = if medium == Medium::Memory { self.arenas.0 } else { 0 };
        Bytes(tiers.map(|tier| tier.bytes.0).sum::<u64>() + arenas)
    }
}

#[derive(Debug, Default)]
pub(crate) struct TrafficCounter {
    operations: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

impl TrafficCounter {
    pub(crate) fn count<T, E>(&self, len: Bytes, outcome: &Result<T, E>) {
        if outcome.is_ok() {
            self.count_all(1, len);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_all(&self, operations: u64, bytes: Bytes) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.0, Ordering::Relaxed);
    }

    /// Each is exact; they may be read at slightly different moments.
    pub(crate) fn read(&self) -> Traffic {
        Traffic {
            operations: self.operations.load(Ordering::Relaxed),
            bytes: Bytes(self.bytes.load(Ordering::Relaxed)),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_counted_by_source_and_destination() {
        let counters = MoveCounters::new(2);
        let tier = |tier| Endpoint::Tier(TierId(tier));
        let second = Nanoseconds(1_000_000_000);
        counters.count((Endpoint::Cold, Endpoint::Staging), 1, Bytes(5), Nanoseconds(10_000), None);
        counters.count((Endpoint::Cold, Endpoint::Staging), 1, Bytes(7), Nanoseconds(10_001), None);
        counters.count(
            (Endpoint::Cold, Endpoint::Staging),
            1,
            Bytes(9),
            second,
            Some(Fault::Truncated),
        );
        counters.count((tier(0), tier(1)), 1, Bytes(11), Nanoseconds(u64::MAX), None);
        counters.count((tier(2), Endpoint::Staging), 1, Bytes(13), second, None);
        let moves = counters.read();
        assert_eq!(moves.len(), 2, "a tier that is not there counts nothing: {moves:?}");
        assert_eq!((moves[0].from, moves[0].to), (Endpoint::Cold, Endpoint::Staging));
        assert_eq!((moves[0].operations, moves[0].bytes), (2, Bytes(12)));
        assert_eq!(moves[0].failed, [(Fault::Truncated, 1)]);
        assert_eq!(moves[0].lasted.buckets[..3], [1, 1, 0]);
        assert_eq!(moves[0].lasted.sum, Nanoseconds(20_001));
        assert_eq!((moves[1].from, moves[1].to), (tier(0), tier(1)));
        assert_eq!(moves[1].lasted.buckets.last(), Some(&1));
        assert!(DURATION_BOUNDS.is_sorted());
    }
}
