//! How often a rank may ask for an epoch that staging does not reach by itself.
//!
//! The order of such an epoch has to be computed for one request, which takes about as long as drawing
//! every sample of the dataset. Training starts in some epoch, goes back to the first or leaves epochs out,
//! but does not do so for every batch; a client that does could use all the time of the agent. So a rank may
//! cause at most a certain share of such work; beyond, its requests are refused and it reads those batches
//! itself.

use alloc::collections::BTreeMap;

use crate::{id::Rank, units::Nanoseconds};

/// The cost of the order of an epoch for each sample of the dataset: to draw it, and to look up once where
/// it is used. It is an upper bound, because this work competes with that for other ranks.
const PER_SAMPLE: Nanoseconds = Nanoseconds(100);

/// The jumps of a rank may take one part in this many of the time.
const SHARE: u64 = 4;

/// The part of its share that a rank may use in advance.
const AHEAD_MAX: Nanoseconds = Nanoseconds(10_000_000_000);

#[derive(Debug, Default)]
pub(super) struct JumpBudget {
    /// The time until which the share of a rank is used up.
    used_until: BTreeMap<Rank, Nanoseconds>,
}

impl JumpBudget {
    /// Whether a rank may jump now in a dataset of `samples` samples; if so, the jump is counted.
    pub(super) fn allow(&mut self, rank: Rank, samples: u32, now: Nanoseconds) -> bool {
        let used_until = self.used_until.entry(rank).or_insert(now);
        let begin = (*used_until).max(now);
        if begin.0 - now.0 >= AHEAD_MAX.0 {
            return false;
        }
        *used_until = Nanoseconds(begin.0 + u64::from(samples) * PER_SAMPLE.0 * SHARE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_rank_uses_a_quarter_of_the_time_for_jumps_and_ten_seconds_ahead() {
        let mut jumps = JumpBudget::default();
        // One of 14 million samples counts as 1.4 s of work, so as 5.6 s.
        let samples = 14_000_000;
        let mut tries = |rank, at| jumps.allow(Rank(rank), samples, Nanoseconds(at));
        assert_eq!([0; 4].map(|at| tries(0, at)), [true, true, false, false]);
        assert!(tries(1, 0), "each rank has its own");
        assert!(!tries(0, SECOND));
        assert!(tries(0, 2 * SECOND));
        assert!(!tries(0, 2 * SECOND));
        let allowed = (0..3600).filter(|second| tries(0, (10 + second) * SECOND)).count();
        assert!((640..=645).contains(&allowed), "{allowed}: one in 5.6 s");
    }

    #[test]
    fn small_datasets_are_not_limited_in_practice() {
        let mut jumps = JumpBudget::default();
        let a_millisecond_apart =
            (0..10_000).all(|at| jumps.allow(Rank(0), 1000, Nanoseconds(at * 1_000_000)));
        assert!(a_millisecond_apart);
    }
}
