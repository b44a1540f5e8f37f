//! How few batches may be staged ahead so that each is there in time with a stated probability.
//!
//! With `n` staged batches, the one in use included, a batch gets its place `n - 1` steps before it is
//! needed. In that time the reads before it must end and then its own, on threads of which each carries
//! out its share one after the other: a queue with a constant time between arrivals and the sum of a
//! few latencies and transfers as its service time. Its waiting time follows Lindley's recursion
//! `W' = max(0, W + X - step)`, which is computed on a grid until it settles. The least `n` with
//! `P(W + X < (n - 1) steps)`, on all threads at once, above what is asked for is the answer.
//! Where there are more threads than reads in a step, groups of threads take the steps in turn, no more
//! groups than it takes: a group then has several steps for the reads of one.
//!
//! Threads that transform what arrived are a second queue of this kind behind the first, with the times of transforms
//! as its service time. What a step gives a thread need not be a whole number of samples: a thread takes its samples of
//! one step, and has the steps in which the other threads take as many. One sample that takes many steps then asks
//! for as many batches in reserve, and delays no batch but its own: that is why times that spread need more depth than
//! their mean says.
//!
//! Where the grid is coarser than the truth it errs towards late: a time between two points of the grid
//! is split between them so that its mean stays and its spread grows, what leaves the grid never comes
//! back, and what arrives in the last cell before the deadline counts as late. That threads take the
//! next read as soon as they are free, instead of a share dealt out before, makes batches earlier.
//!
//! # Source
//!
//! D. V. Lindley, The theory of queues with a single server, Proc. Cambridge Phil. Soc. 48 (1952),
//! doi 10.1017/S0305004100027638. The rest is ours.

mod pmf;

use alloc::vec::Vec;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use self::pmf::{Grid, Pmf};
use crate::{
    latency_quantiles::{LatencyQuantiles, PerMillion},
    throughput::Throughput,
    units::{Bytes, Nanoseconds},
};

/// The largest depth that is considered: a step is then four cells of the grid.
pub const DEPTH_MAX: u32 = 128;

/// The number of steps after which a distribution that has not converged is used as it is.
const STEPS_MAX: u32 = 500;

/// The reads of all ranks of a node in one step over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Samples of the batches of one step, wherever they are read.
    #[serde(default)]
    pub samples: u32,
    /// Of the batches of one step, all ranks together.
    pub reads: u32,
    #[serde(rename = "read_bytes")]
    pub read_len: Bytes,
    /// The time that the trainer computes between two batches.
    #[serde(rename = "step_ns")]
    pub step_time: Nanoseconds,
}

#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// By number of threads.
    pub throughput: &'a Throughput,
    /// From request to first byte.
    pub latency: &'a LatencyQuantiles,
    pub threads: NonZeroU32,
}

/// The threads that transform all samples of a step.
#[derive(Debug, Clone, Copy)]
pub struct Transforming<'a> {
    pub threads: NonZeroU32,
    /// The time of one thread for a sample.
    pub time: &'a LatencyQuantiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// Staged batches of each rank, the one in use included.
    pub batches: u32,
    /// The share of steps that find all their batches ready, rounded down.
    pub in_time: PerMillion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Shortfall {
    #[error(
        "the reads of a step keep each thread busy for {busy}, but a step takes {step_time}; \
        add threads, cache more, or accept stalls"
    )]
    TooSlow {
        /// The mean time for which a step keeps a thread busy.
        busy: Nanoseconds,
        step_time: Nanoseconds,
    },
    #[error(
        "the transforms of a step keep each thread busy for {busy}, but a step takes {step_time}; \
        give the agent more threads, choose cheaper steps, or accept stalls"
    )]
    TransformsTooSlow {
        /// The mean time for which a step keeps a thread busy.
        busy: Nanoseconds,
        step_time: Nanoseconds,
    },
    #[error(
        "{staged_max} staged batches are in time in {in_time} of all steps, not in {wanted}; \
        give staging more memory"
    )]
    TooShallow { staged_max: u32, in_time: PerMillion, wanted: PerMillion },
}

/// The batches that staging memory holds, the one in use included.
#[must_use]
pub fn deepest(arena: Bytes, batch: Bytes) -> u32 {
    u32::try_from(arena.0 / batch.0.max(1)).map_or(DEPTH_MAX, |count| count.min(DEPTH_MAX))
}

/// The least depth, of at most `staged_max`, with which a share of `wanted` of all steps finds the
/// batches of all ranks ready, read and transformed.
///
/// # Errors
///
/// [`Shortfall`] if there is none; none goes away without other settings.
pub fn least(
    load: &Load,
    link: &Link<'_>,
    transforming: Option<&Transforming<'_>>,
    wanted: PerMillion,
    staged_max: u32,
) -> Result<Depth, Shortfall> {
    let transforming = transforming.filter(|_| load.samples > 0);
    let transforming = transforming.map(|it| it.lanes(load)).transpose()?;
    if load.reads == 0 {
        let Some(transforming) = transforming else {
            return Ok(Depth { batches: 1, in_time: PerMillion::ALL });
        };
        return of_lanes(&[transforming], load.step_time, wanted, staged_max);
    }
    let lanes = link.threads.get().min(load.reads);
    let most = link.threads.get() / lanes;
    let mut groups = 1;
    loop {
        let found = link.lanes(load, groups).and_then(|reading| {
            let both: Vec<_> = [reading].into_iter().chain(transforming).collect();
            of_lanes(&both, load.step_time, wanted, staged_max)
        });
        if found.is_ok() || groups == most {
            return found;
        }
        groups = (groups * 2).min(most);
    }
}

/// The depth for stages of threads that samples pass one after the other.
fn of_lanes(
    stages: &[Lanes<'_>],
    step_time: Nanoseconds,
    wanted: PerMillion,
    staged_max: u32,
) -> Result<Depth, Shortfall> {
    let mut in_time = PerMillion(0);
    for reach in [8, 32, DEPTH_MAX] {
        let grid = Grid::new(step_time, reach);
        let (arrival, lanes) = match stages {
            [only] => (only.lane.arrival(&grid), only.count),
            // A batch is transformed when all of it was read: in truth some of it is transformed before.
            stages => {
                let slowest = stages.iter().map(|it| it.lane.arrival(&grid).slowest_of(it.count));
                (slowest.fold(Pmf::at_once(&grid), |time, next| time.and_then(&next)), 1)
            }
        };
        for batches in 2..=staged_max.min(reach) {
            in_time = arrival.all_within(batches - 1, lanes);
            if in_time >= wanted {
                return Ok(Depth { batches, in_time });
            }
        }
        if staged_max <= reach {
            break;
        }
    }
    Err(Shortfall::TooShallow { staged_max, in_time, wanted })
}

#[derive(Clone, Copy)]
struct Lanes<'a> {
    lane: Lane<'a>,
    count: u32,
}

impl<'a> Link<'a> {
    /// The threads that read a step, if `groups` groups of them take the steps in turn.
    fn lanes(&self, load: &Load, groups: u32) -> Result<Lanes<'a>, Shortfall> {
        let lanes = self.threads.get().min(load.reads);
        let threads = lanes * groups;
        let together = Bytes(load.read_len.0.saturating_mul(u64::from(threads)));
        let transfer = self.throughput.at(threads).time_for(together);
        let reads = load.reads.div_ceil(lanes);
        let period = Nanoseconds(load.step_time.0.saturating_mul(u64::from(groups)));
        let lane = Lane { reads, transfer, latency: self.latency, period };
        let busy = Nanoseconds(lane.busy().0 / u64::from(groups));
        if busy >= load.step_time {
            return Err(Shortfall::TooSlow { busy, step_time: load.step_time });
        }
        Ok(Lanes { lane, count: lanes })
    }
}

impl<'a> Transforming<'a> {
    fn lanes(&self, load: &Load) -> Result<Lanes<'a>, Shortfall> {
        let threads = self.threads.get();
        let all = self.time.mean().0.saturating_mul(u64::from(load.samples));
        let busy = Nanoseconds(all / u64::from(threads));
        if busy >= load.step_time {
            return Err(Shortfall::TransformsTooSlow { busy, step_time: load.step_time });
        }
        let lanes = threads.min(load.samples);
        let reads = load.samples.div_ceil(lanes);
        let turns = u128::from(threads) * u128::from(reads);
        let period = u128::from(load.step_time.0) * turns / u128::from(load.samples);
        let period = Nanoseconds(u64::try_from(period).unwrap_or(u64::MAX));
        let lane = Lane { reads, transfer: Nanoseconds(0), latency: self.time, period };
        Ok(Lanes { lane, count: lanes })
    }
}

#[derive(Clone, Copy)]
struct Lane<'a> {
    reads: u32,
    transfer: Nanoseconds,
    latency: &'a LatencyQuantiles,
    /// The time from one step whose reads it takes to the next.
    period: Nanoseconds,
}

impl Lane<'_> {
    /// The mean time of the reads of a step.
    fn busy(&self) -> Nanoseconds {
        let each = self.latency.mean().0.saturating_add(self.transfer.0);
        Nanoseconds(each.saturating_mul(u64::from(self.reads)))
    }

    /// The time at which the reads of a step end, counted from their start, once the queue has settled.
    fn arrival(&self, grid: &Grid) -> Pmf {
        let service = grid.sum_of(self.reads, self.latency, self.transfer);
        let mut waiting = Pmf::at_once(grid);
        for _ in 0..STEPS_MAX {
            let next = waiting.and_then(&service).after(self.period, grid);
            let is_settled = next.is_close_to(&waiting);
            waiting = next;
            if is_settled {
                break;
            }
        }
        waiting.and_then(&service)
    }
}

#[cfg(test)]
mod tests;
