//! How many operations are given out at a time.

use core::num::NonZeroU32;

use super::assignment::Assignment;

/// Operations that are given out at a time, by channel. Fewer let a late rank overtake sooner; too few
/// leave a channel idle between an operation and the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    pub cold: NonZeroU32,
    pub tier: NonZeroU32,
    /// The rule that divides reads from the cold store, and transforms, over ranks.
    pub assignment: Assignment,
    pub adaptation: Adaptation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adaptation {
    Fixed,
    /// It is as large as throughput gains by it, up to `max`.
    Measured {
        max: NonZeroU32,
    },
}

/// Operations in the window for each thread that executes them.
const QUEUED_PER_THREAD: NonZeroU32 = NonZeroU32::new(16).expect("16 is not 0");

/// For the cold store at the start, where the window grows if that raises throughput.
const COLD_QUEUED_PER_THREAD: NonZeroU32 = NonZeroU32::new(2).expect("2 is not 0");

/// The upper bound of the window of the cold store: small samples from a far store need as many, and the
/// rings of the prefetcher hold no more.
const COLD_MAX: NonZeroU32 = NonZeroU32::new(256).expect("256 is not 0");

impl Windows {
    /// Windows for channels with this many threads, one pool for all ranks. Each thread has a few
    /// operations queued, because copying a small sample takes less time than a round trip to the session.
    /// The window of the cold store starts with this and follows measurements.
    #[must_use]
    pub fn for_threads(cold: NonZeroU32, tier: NonZeroU32) -> Self {
        let (cold, tier) =
            (cold.saturating_mul(COLD_QUEUED_PER_THREAD), tier.saturating_mul(QUEUED_PER_THREAD));
        let adaptation = Adaptation::Measured { max: COLD_MAX.max(cold) };
        Self { cold, tier, assignment: Assignment::Shared, adaptation }
    }

    #[must_use]
    pub fn cold_max(&self) -> NonZeroU32 {
        match self.adaptation {
            Adaptation::Fixed => self.cold,
            Adaptation::Measured { max } => self.cold.max(max),
        }
    }
}

impl Default for Windows {
    /// Fixed windows that keep a cold store of 10 ms and 2.5 GB/s busy with samples of 100 kB, and any
    /// memory.
    fn default() -> Self {
        let window = |count| NonZeroU32::new(count).expect("a window is not empty");
        Self {
            cold: window(256),
            tier: window(64),
            assignment: Assignment::Shared,
            adaptation: Adaptation::Fixed,
        }
    }
}
