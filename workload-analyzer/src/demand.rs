//! How many bytes the trainers of a job ask for, how fast, and whether tiers can give them.
//!
//! [`Demand`] follows from job and index alone. [`Verdict`] puts it against the figures of a node:
//! it is the best that any policy can reach, and what policy `gap` does reach.

mod limit;
mod plain;
mod table;
mod verdict;

use serde::Serialize;
use tierfeed_core::{
    order::SpecError,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use crate::{Index, Job};

pub use table::table;
pub use verdict::{Bound, TierFigure, TierLoad, Verdict, verdict};

/// What the trainers of a job ask for.
///
/// Serialised, quantities are plain numbers whose key ends in the unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// Samples in the dataset.
    pub samples: u32,
    /// Bytes of all samples.
    #[serde(rename = "total_bytes", serialize_with = "plain::bytes")]
    pub total: Bytes,
    /// Hosts.
    pub nodes: u32,
    /// Training processes on each host.
    pub ranks_per_node: u32,
    /// Passes over the dataset.
    pub epochs: u32,
    /// The share of the dataset that falls to each rank in an epoch.
    pub samples_per_rank: u32,
    /// Batches that each rank reads in an epoch.
    pub steps_per_epoch: u32,
    /// Bytes that all ranks read in an epoch; padding of the order counts, what it drops does not.
    #[serde(rename = "epoch_bytes", serialize_with = "plain::bytes")]
    pub epoch: Bytes,
    /// Bytes of a full batch on average: what each rank reads in each step.
    #[serde(rename = "batch_bytes_mean", serialize_with = "plain::bytes")]
    pub batch_mean: Bytes,
    /// Bytes that 99 of 100 full batches do not pass, by the normal approximation.
    #[serde(rename = "batch_bytes_p99", serialize_with = "plain::bytes")]
    pub batch_p99: Bytes,
    /// Batches that are staged ahead of each rank.
    pub batches_ahead: u32,
    /// Bytes of the batches that are staged on a node.
    #[serde(rename = "staged_bytes_per_node", serialize_with = "plain::bytes")]
    pub staged_per_node: Bytes,
    /// How long the trainer computes on a batch, if the job says so.
    #[serde(rename = "step_time_ns", serialize_with = "plain::nanoseconds")]
    pub step_time: Option<Nanoseconds>,
    /// How long before its use a batch is asked for, if the step time is known.
    #[serde(rename = "lead_ns", serialize_with = "plain::nanoseconds")]
    pub lead: Option<Nanoseconds>,
    /// What one rank asks for, if the step time is known.
    pub rank: Option<Flow>,
    /// What the ranks of one node ask for, if the step time is known.
    pub node: Option<Flow>,
}

/// A rate of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Bytes per second.
    #[serde(rename = "bytes_per_s", serialize_with = "plain::rate")]
    pub bytes: BytesPerSecond,
    /// Samples per second, rounded up.
    pub requests_per_s: u64,
}

impl Demand {
    /// The demand of `job` on the dataset of `index`.
    ///
    /// # Errors
    ///
    /// If the job has no order on this dataset.
    pub fn of(job: &Job, index: &Index) -> Result<Self, SpecError> {
        let order = job.order(index.len())?;
        let samples_per_rank = order.samples_per_rank();
        let ranks = job.world.ranks();
        let total = index.total();
        let read = u128::from(samples_per_rank) * u128::from(ranks);
        let sizes = Spread::of(index);
        let batch_size = job.batch_size.min(samples_per_rank);
        let (batch_mean, batch_p99) = sizes.batch(batch_size);
        let staged = u128::from(batch_p99.0)
            * u128::from(job.prefetch_batches)
            * u128::from(job.world.ranks_per_node);
        let rank = job.step_time.map(|step| flow(batch_mean, batch_size, step));
        Ok(Self {
            samples: index.len(),
            total,
            nodes: job.world.nodes,
            ranks_per_node: job.world.ranks_per_node,
            epochs: job.epochs,
            samples_per_rank,
            steps_per_epoch: order.steps_per_epoch(),
            epoch: narrow(u128::from(total.0) * read / u128::from(index.len())),
            batch_mean,
            batch_p99,
            batches_ahead: job.prefetch_batches,
            staged_per_node: narrow(staged),
            step_time: job.step_time,
            lead: job
                .step_time
                .map(|step| Nanoseconds(step.0.saturating_mul(u64::from(job.prefetch_batches)))),
            rank,
            node: rank.map(|rank| rank.times(job.world.ranks_per_node)),
        })
    }

    /// How long the trainers compute in an epoch, if the step time is known.
    #[must_use]
    pub fn compute_per_epoch(&self) -> Option<Nanoseconds> {
        let steps = u64::from(self.steps_per_epoch);
        self.step_time.map(|step| Nanoseconds(step.0.saturating_mul(steps)))
    }
}

impl Flow {
    fn times(self, ranks: u32) -> Self {
        Self {
            bytes: BytesPerSecond(self.bytes.0.saturating_mul(u64::from(ranks))),
            requests_per_s: self.requests_per_s.saturating_mul(u64::from(ranks)),
        }
    }
}

fn flow(batch: Bytes, samples: u32, step: Nanoseconds) -> Flow {
    let per_second = |amount: u64| {
        let rate = (u128::from(amount) * 1_000_000_000).div_ceil(u128::from(step.0.max(1)));
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    Flow {
        bytes: BytesPerSecond(per_second(batch.0)),
        requests_per_s: per_second(u64::from(samples)),
    }
}

fn narrow(bytes: u128) -> Bytes {
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// How the sizes of samples spread. Integers, so that every machine prints the same figures.
struct Spread {
    count: u128,
    total: u128,
    variance: u128,
    max: u128,
}

impl Spread {
    fn of(index: &Index) -> Self {
        let count = u128::from(index.len());
        let total = u128::from(index.total().0);
        let mean = total / count;
        let sizes = || index.sizes().map(|size| u128::from(size.0));
        let squares = sizes().map(|size| {
            let distance = size.abs_diff(mean);
            distance.saturating_mul(distance)
        });
        let variance = squares.fold(0, u128::saturating_add) / count;
        Self { count, total, variance, max: sizes().max().unwrap_or(0) }
    }

    /// Mean and 99th percentile of a batch of `samples`: the mean plus 2.326 standard deviations of
    /// a sum, and no more than the largest sample so many times.
    fn batch(&self, samples: u32) -> (Bytes, Bytes) {
        let samples = u128::from(samples);
        let mean = (self.total * samples).div_ceil(self.count);
        let deviation = self.variance.saturating_mul(samples).isqrt();
        let p99 = mean.saturating_add(deviation.saturating_mul(2_326) / 1_000);
        (narrow(mean), narrow(p99.min(self.max.saturating_mul(samples))))
    }
}

#[cfg(test)]
mod tests;
