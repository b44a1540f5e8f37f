//! How many loader threads serve the request queue of each rank.
//!
//! Our default divides nothing: one pool serves all ranks, earliest deadline first, so a rank that is
//! late gets every thread and one that is early none ([`crate::session`]). The other rules give each
//! queue threads of its own: in proportion to its requests, or as Lobster does (Liu, Nicolae, Li, ICPP 2022, doi
//! 10.1145/3545008.3545090), from a prediction of how long its next batch takes. A thread is an operation in
//! flight here. What it gets done is observed ([`scaling`]); [`mod@stages`] divides threads between reading and
//! transforming, and over the queues.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. No division of the threads has a slowest queue that takes less than with [`proportional`].
//! 2. A rule hands out no more threads than there are.

mod lobster;
mod scaling;
mod stages;

use alloc::{vec, vec::Vec};
use core::{fmt, str::FromStr};

pub use lobster::{Costs, Reading, lobster};
pub use scaling::{COUNTS_MAX, FADES_AFTER, Fit, NEARLY, Scaling};
pub use stages::{Rates, Stages, Threads, stages};

use crate::units::{Bytes, Nanoseconds};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignment {
    /// One pool for all ranks, earliest deadline first.
    Shared,
    /// In proportion to the queued requests.
    Proportional,
    /// Algorithm 1 of Lobster.
    Lobster,
}

impl Assignment {
    /// The default first.
    pub const ALL: [Self; 3] = [Self::Shared, Self::Proportional, Self::Lobster];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Proportional => "proportional",
            Self::Lobster => "lobster",
        }
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected one of shared, proportional, lobster")]
pub struct UnknownAssignment;

impl FromStr for Assignment {
    type Err = UnknownAssignment;

    fn from_str(text: &str) -> Result<Self, UnknownAssignment> {
        Self::ALL.into_iter().find(|rule| rule.name() == text).ok_or(UnknownAssignment)
    }
}

/// The queue of one rank, and the predicted cost of its next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// Samples that wait to be read.
    pub requests: u64,
    /// Bytes of the next batch that lie in a tier of this node.
    pub local: Bytes,
    /// Bytes of it that lie on another node.
    pub remote: Bytes,
    /// Bytes of it that only the cold store has.
    pub cold: Bytes,
    /// The time of the batch from loaded to ready for the trainer.
    pub preprocessing: Nanoseconds,
    pub samples: u64,
    /// Samples that wait to be transformed.
    pub transforms: u64,
}

impl Queue {
    fn stored(&self) -> Bytes {
        Bytes(self.local.0.saturating_add(self.remote.0).saturating_add(self.cold.0))
    }
}

/// Divides `threads` so that the queue with the most load for each of its threads has as little as can
/// be. Queues without load get none; if there is any load, every thread is given out.
///
/// Ties go to the first queue. Linear for each thread on purpose: a node has a few ranks.
///
/// # Source
///
/// "Proportional to the size of the queue" (Lobster, section 4.2). It leaves the rounding open; ours is
/// the highest-averages rule, each thread to the queue that is worst off, which no other rounding beats.
#[must_use]
pub fn proportional(loads: &[u64], threads: u32) -> Vec<u32> {
    let mut counts = vec![0_u32; loads.len()];
    for _ in 0..threads {
        let loaded = (0..loads.len()).filter(|queue| loads[*queue] > 0);
        let worst = loaded.reduce(|worst, other| {
            let load_of =
                |queue: usize, of: usize| u128::from(loads[queue]) * u128::from(counts[of]);
            // A queue without a thread is worse off than any with one.
            let (first, second) = (load_of(worst, other), load_of(other, worst));
            let both_without = counts[worst] == 0 && counts[other] == 0;
            let is_worse = if both_without { loads[other] > loads[worst] } else { second > first };
            if is_worse { other } else { worst }
        });
        let Some(worst) = worst else { return counts };
        counts[worst] += 1;
    }
    counts
}

/// The counts that were found, cut in proportion if there are not as many threads.
fn fitting(found: Vec<u32>, threads: u32) -> Vec<u32> {
    let wanted = found.iter().map(|count| u64::from(*count)).collect::<Vec<_>>();
    let is_too_much = wanted.iter().sum::<u64>() > u64::from(threads);
    if is_too_much { proportional(&wanted, threads) } else { found }
}

#[cfg(test)]
mod tests;
