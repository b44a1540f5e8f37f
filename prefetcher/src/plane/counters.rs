//! What the data plane did, in numbers that only grow, and what it holds now.

use std::sync::atomic::{AtomicU64, Ordering};

use tierfeed_core::{
    id::TierId,
    session::Fault,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

use crate::{
    recorder::End,
    tier::{Medium, Way},
};

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
    /// What was moved from where to where, with how long that took.
    pub moves: Vec<Moves>,
    /// Operations that ended with a fault, of all kinds.
    pub faults: u64,
    /// Operations that no thread carried out: the queue was full, the plane stopped, or the thread
    /// panicked. Among the faults.
    pub abandoned: u64,
}

/// Samples that were moved from one place to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// From where.
    pub from: End,
    /// To where.
    pub to: End,
    /// Samples that arrived.
    pub operations: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Those that did not, by what went wrong.
    pub failed: Vec<(Fault, u64)>,
    /// How long each took, in [`DURATION_BOUNDS`] and one bucket beyond.
    pub durations: Vec<u64>,
    /// All durations together.
    pub duration: Nanoseconds,
}

/// The longest durations that the buckets of [`Moves::durations`] hold: a memory copy takes
/// microseconds, a store that is far away seconds.
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

const FAULTS: [Fault; 7] = [
    Fault::Vanished,
    Fault::Changed,
    Fault::Truncated,
    Fault::Denied,
    Fault::Io,
    Fault::Corrupt,
    Fault::NoSpace,
];

/// [`Moves`] that threads add to, for every pair of places.
#[derive(Debug)]
pub(crate) struct Meters {
    tiers: usize,
    /// By where from, then by where to.
    meters: Vec<Meter>,
}

#[derive(Debug, Default)]
struct Meter {
    operations: AtomicU64,
    bytes: AtomicU64,
    failed: [AtomicU64; FAULTS.len()],
    durations: [AtomicU64; DURATION_BOUNDS.len() + 1],
    duration: AtomicU64,
}

impl Meters {
    pub(crate) fn new(tiers: usize) -> Self {
        let places = tiers + 2;
        Self { tiers, meters: (0..places * places).map(|_| Meter::default()).collect() }
    }

    /// Counts a move that ended after so long.
    pub(crate) fn count(
        &self,
        from: End,
        to: End,
        len: Bytes,
        lasted: Nanoseconds,
        fault: Option<Fault>,
    ) {
        let place = self.tiers + 2;
        let Some(meter) = self.meters.get(self.place(from) * place + self.place(to)) else {
            return;
        };
        let add = |sum: &AtomicU64, value| {
            sum.fetch_add(value, Ordering::Relaxed);
        };
        if let Some(fault) = fault {
            let at = FAULTS.iter().position(|other| *other == fault);
            at.into_iter().for_each(|at| add(&meter.failed[at], 1));
            return;
        }
        add(&meter.operations, 1);
        add(&meter.bytes, len.0);
        add(&meter.duration, lasted.0);
        add(&meter.durations[DURATION_BOUNDS.partition_point(|bound| *bound < lasted)], 1);
    }

    /// What was moved so far, pairs without any left out.
    pub(crate) fn read(&self) -> Vec<Moves> {
        let places = self.tiers + 2;
        let moves = self.meters.iter().enumerate().map(|(at, meter)| {
            let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
            let failed = FAULTS.into_iter().zip(meter.failed.iter().map(read));
            Moves {
                from: Self::end(at / places),
                to: Self::end(at % places),
                operations: read(&meter.operations),
                bytes: Bytes(read(&meter.bytes)),
                failed: failed.filter(|(_, count)| *count > 0).collect(),
                durations: meter.durations.iter().map(read).collect(),
                duration: Nanoseconds(read(&meter.duration)),
            }
        });
        moves.filter(|moves| moves.operations > 0 || !moves.failed.is_empty()).collect()
    }

    fn place(&self, end: End) -> usize {
        match end {
            End::Cold => 0,
            End::Staging => 1,
            // A tier that does not exist is beyond the table.
            End::Tier(tier) => {
                let tier = usize::from(tier.0);
                if tier < self.tiers { tier + 2 } else { self.meters.len() }
            }
        }
    }

    fn end(place: usize) -> End {
        match place {
            0 => End::Cold,
            1 => End::Staging,
            tier => End::Tier(TierId(u8::try_from(tier - 2).unwrap_or(u8::MAX))),
        }
    }
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
}

/// Bytes that the data plane holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Staging memory of all ranks.
    pub arenas: Bytes,
    /// By tier, fastest first.
    pub tiers: Vec<TierUsage>,
}

/// How the memory of the data plane is stored to, and in which pages it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ways {
    /// Staging memory; `None` before the first trainer.
    pub staging: Option<Way>,
    /// By tier, fastest first; `None` before its first chunk.
    pub tiers: Vec<Option<Way>>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_counted_by_where_from_and_where_to() {
        let meters = Meters::new(2);
        let tier = |tier| End::Tier(TierId(tier));
        let second = Nanoseconds(1_000_000_000);
        meters.count(End::Cold, End::Staging, Bytes(5), Nanoseconds(10_000), None);
        meters.count(End::Cold, End::Staging, Bytes(7), Nanoseconds(10_001), None);
        meters.count(End::Cold, End::Staging, Bytes(9), second, Some(Fault::Truncated));
        meters.count(tier(0), tier(1), Bytes(11), Nanoseconds(u64::MAX), None);
        meters.count(tier(2), End::Staging, Bytes(13), second, None);
        let moves = meters.read();
        assert_eq!(moves.len(), 2, "a tier that is not there counts nothing: {moves:?}");
        assert_eq!((moves[0].from, moves[0].to), (End::Cold, End::Staging));
        assert_eq!((moves[0].operations, moves[0].bytes), (2, Bytes(12)));
        assert_eq!(moves[0].failed, [(Fault::Truncated, 1)]);
        assert_eq!(moves[0].durations[..3], [1, 1, 0]);
        assert_eq!(moves[0].duration, Nanoseconds(20_001));
        assert_eq!((moves[1].from, moves[1].to), (tier(0), tier(1)));
        assert_eq!(moves[1].durations.last(), Some(&1));
        assert!(DURATION_BOUNDS.is_sorted());
    }
}
