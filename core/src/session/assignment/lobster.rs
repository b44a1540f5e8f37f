//! Algorithm 1 of Lobster: bisects, queue by queue, for the thread count with which loading and
//! preprocessing take as long as training.

use alloc::vec::Vec;

use super::{Queue, proportional};
use crate::{throughput::Throughput, units::Nanoseconds};

/// The performance model of a node in Lobster (its section 4.3).
#[derive(Debug, Clone, Copy)]
pub struct Costs<'a> {
    /// The rate of threads that read from the tiers of the node: `α × T_l(α)`.
    pub local: &'a Throughput,
    /// The rate of threads that read from other nodes: `β × T_r(β)`.
    pub remote: &'a Throughput,
    /// The rate of threads that read from the cold store: `γ × T_PFS(γ)`.
    pub cold: &'a Throughput,
    /// The time of a training step, `T_train`.
    pub training: Nanoseconds,
    /// The difference below which no thread is moved, `τ`.
    pub threshold: Nanoseconds,
}

/// The reading of Algorithm 1 where its listing and its description differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Line by line. Lines 13 and 15 move the bounds to the initial count again and again, so that at
    /// most two counts are ever tried; line 18 prefers the count that leaves more time to spare.
    Printed,
    /// As section 4.4 describes it: "a binary search to explore the search space until we converge",
    /// so the bounds move to the count tried last, and the solution "that has the minimum `T_dif`".
    Described,
}

/// The threads that Algorithm 1 finds for each queue, each searched for with all `threads` (`T_L`).
/// Together they may be more than there are: the paper does not say what happens then.
///
/// # Source
///
/// Lobster, Algorithm 1. Line 1: the initial count is proportional to the queued requests (section
/// 4.4). Line 3 runs over the queues `0..M`. Line 4 is [`Costs::difference`]. Line 23 stands inside the
/// `if` of line 5; a queue within the threshold keeps its initial count, so that every queue has one.
///
/// Left open by the paper, and read so:
///
/// - The sign of `TimeDifference`: training minus loading and preprocessing. With the other sign, which
///   section 4.4 suggests, lines 12 to 15 would take threads from a queue that is late.
/// - How the count of a queue divides into `α`, `β` and `γ` of equation 1: all its threads read from
///   each place in turn, since the equation adds the three times up.
/// - `IsConsistent` of line 10: true. Section 4.4 stops as soon as the array `W` is fully populated.
/// - Whether lines 16 and 17 belong to the `else` of line 14: no. A queue that is late would never be
///   tried with another count.
#[must_use]
pub fn lobster(queues: &[Queue], costs: &Costs<'_>, threads: u32, reading: Reading) -> Vec<u32> {
    let requests = queues.iter().map(|queue| queue.requests).collect::<Vec<_>>();
    let initial = proportional(&requests, threads);
    let counts = queues.iter().zip(initial);
    let found = counts.map(|(queue, initial)| {
        let difference = |count| costs.difference(queue, count);
        search(difference, initial, threads, costs.threshold, reading)
    });
    found.collect()
}

impl Costs<'_> {
    /// Line 4: what is left of the training step, in nanoseconds, when `threads` load the next batch of
    /// a queue; below zero if the trainer has to wait (equations 1 and 2).
    #[must_use]
    pub fn difference(&self, queue: &Queue, threads: u32) -> i128 {
        let places =
            [(queue.local, self.local), (queue.remote, self.remote), (queue.cold, self.cold)];
        let mut left = i128::from(self.training.0) - i128::from(queue.preprocessing.0);
        for (bytes, throughput) in places.into_iter().filter(|(bytes, _)| bytes.0 > 0) {
            if threads == 0 {
                return i128::from(i64::MIN);
            }
            left -= i128::from(throughput.at(threads).time_for(bytes).0);
        }
        left
    }
}

/// Lines 4 to 22 for one queue: the count of threads for which `difference` is closest to zero.
pub(super) fn search(
    difference: impl Fn(u32) -> i128,
    initial: u32,
    threads: u32,
    threshold: Nanoseconds,
    reading: Reading,
) -> u32 {
    let is_far = |difference: i128| difference.unsigned_abs() >= u128::from(threshold.0);
    let mut latest = difference(initial);
    let (mut best, mut least) = (initial, latest);
    let (mut low, mut high) = (0, threads);
    let mut tried = initial;
    let mut recorded = 0;
    while is_far(latest) {
        recorded += 1;
        if recorded > threads {
            break;
        }
        let bound = match reading {
            Reading::Printed => initial,
            Reading::Described => tried,
        };
        if latest < 0 {
            low = bound;
        } else {
            high = bound;
        }
        tried = low + (high - low) / 2;
        latest = difference(tried);
        let is_better = match reading {
            Reading::Printed => least <= latest,
            Reading::Described => latest.unsigned_abs() < least.unsigned_abs(),
        };
        if is_better {
            (best, least) = (tried, latest);
        }
    }
    best
}
