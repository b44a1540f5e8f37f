//! The bytes and the rate that the trainers of a job read, and whether tiers can deliver them.
//!
//! [`Demand`] follows from job and sizes alone. [`verdict()`] compares it with the figures of a node, and
//! [`advice()`] lists changes that help, by computing the verdict again with each change.
//! `docs/demand.md` has the formulas.

mod advice;
mod epoch;
mod limit;
mod observed;
mod rule;
pub(crate) mod seconds;
mod sizes;
mod supply;
mod table;
mod verdict;

use serde::Serialize;
use tierfeed_core::{
    order::SpecError,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use crate::Job;

pub use advice::{Advice, Change, advice};
pub use epoch::{Bound, TierLoad};
pub use observed::{Observed, ObservedError};
pub use rule::{Rule, RuleOutcome};
pub use sizes::Sizes;
pub use supply::{Supply, TierFigure};
pub use table::{summary, table};
pub use verdict::{Verdict, verdict};

/// Serialised, quantities are plain numbers whose key ends in the unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demand {
    pub samples: u32,
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
    #[serde(skip)]
    pub has_equal_samples: bool,
    pub nodes: u32,
    pub ranks_per_node: u32,
    pub epochs: u32,
    /// Samples that each rank reads in an epoch.
    pub samples_per_rank: u32,
    /// Batches that each rank reads in an epoch.
    pub steps_per_epoch: u32,
    /// Bytes that all ranks read in an epoch, including padding and without dropped samples.
    #[serde(rename = "epoch_bytes")]
    pub epoch: Bytes,
    /// Samples of a full batch.
    pub batch_samples: u32,
    /// Mean bytes of a full batch, which each rank reads in each step.
    #[serde(rename = "batch_bytes_mean")]
    pub batch_mean: Bytes,
    /// The 99th percentile of the bytes of a full batch, by the normal approximation.
    #[serde(rename = "batch_bytes_p99")]
    pub batch_p99: Bytes,
    /// Samples of the largest batch that is staged, of any dataset.
    #[serde(skip)]
    pub staged_samples: u32,
    /// The 99th percentile of the bytes of such a batch.
    #[serde(skip)]
    pub staged_p99: Bytes,
    /// Batches that are staged ahead of each rank.
    pub batches_ahead: u32,
    #[serde(rename = "staged_bytes_per_node")]
    pub staged_per_node: Bytes,
    /// The time that the trainer computes on a batch; `None` if the job does not give it.
    #[serde(rename = "step_time_ns")]
    pub step_time: Option<Nanoseconds>,
    /// The time from the request of a batch to its use; `None` if the step time is unknown.
    #[serde(rename = "lead_ns")]
    pub lead: Option<Nanoseconds>,
    /// The time that the loader of a rank preprocesses a batch; `None` if the job does not give it.
    #[serde(rename = "preprocessing_ns")]
    pub preprocessing: Option<Nanoseconds>,
    /// Workers of the loader of each rank; with 0 the trainer preprocesses between its steps.
    pub loader_workers: u32,
    /// The mean read rate of one rank, if the step time is known.
    pub rank: Option<ReadRate>,
    pub rank_p99: Option<ReadRate>,
    /// The mean read rate of the ranks of one node, if the step time is known.
    pub node: Option<ReadRate>,
    /// The 99th percentile of the read rate of one node: ranks seldom have large batches at the same time, so
    /// it is less than the sum of the percentiles of the ranks.
    pub node_p99: Option<ReadRate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReadRate {
    #[serde(rename = "bytes_per_s")]
    pub bytes: BytesPerSecond,
    /// Samples per second, rounded up.
    pub requests_per_s: u64,
}

impl Demand {
    /// The demand of `job` on a dataset with these `sizes`.
    pub fn of(job: &Job, sizes: &Sizes) -> Result<Self, SpecError> {
        Self::at(job, sizes, job.step_time)
    }

    /// The demand with `step_time` in place of the step time of the job.
    pub fn at(job: &Job, sizes: &Sizes, step_time: Option<Nanoseconds>) -> Result<Self, SpecError> {
        let order = job.order(sizes.samples())?;
        let samples_per_rank = order.samples_per_rank();
        let read = u64::from(samples_per_rank) * u64::from(job.world.ranks());
        let batch_size = job.batch_size.min(samples_per_rank);
        let node_batch = u64::from(batch_size) * u64::from(job.world.ranks_per_node);
        let batch_p99 = sizes.p99_of(batch_size.into());
        let ahead = u64::from(job.staged_batches());
        let staged = u128::from(batch_p99.0) * u128::from(ahead);
        let rate = |bytes, samples| step_time.map(|step| read_rate(bytes, samples, step));
        let per_rank = u64::from(batch_size);
        Ok(Self {
            samples: sizes.samples(),
            total: sizes.total(),
            has_equal_samples: sizes.are_equal(),
            nodes: job.world.nodes,
            ranks_per_node: job.world.ranks_per_node,
            epochs: job.epochs,
            samples_per_rank,
            steps_per_epoch: order.steps_per_epoch(),
            epoch: sizes.epoch_of(read),
            batch_samples: batch_size,
            batch_mean: sizes.mean_of(per_rank),
            batch_p99,
            staged_samples: batch_size,
            staged_p99: batch_p99,
            batches_ahead: job.staged_batches(),
            staged_per_node: narrow(staged * u128::from(job.world.ranks_per_node)),
            step_time,
            lead: step_time.map(|step| Nanoseconds(step.0.saturating_mul(ahead))),
            preprocessing: preprocessing(job, batch_size),
            loader_workers: job.trainer.loader.workers,
            rank: rate(sizes.mean_of(per_rank), per_rank),
            rank_p99: rate(batch_p99, per_rank),
            node: rate(sizes.mean_of(node_batch), node_batch),
            node_p99: rate(sizes.p99_of(node_batch), node_batch),
        })
    }

    /// The demand of a job with `further` datasets of these sizes, whose batches may be larger.
    #[must_use]
    pub fn beside(mut self, job: &Job, further: &[Sizes]) -> Self {
        for (dataset, sizes) in job.further.iter().zip(further) {
            let samples = dataset.batch_size.min(sizes.samples());
            self.staged_samples = self.staged_samples.max(samples);
            self.staged_p99 = self.staged_p99.max(sizes.p99_of(samples.into()));
        }
        let staged = u128::from(self.staged_p99.0) * u128::from(self.batches_ahead);
        self.staged_per_node = narrow(staged * u128::from(self.ranks_per_node));
        self
    }

    /// The time that the trainers compute in an epoch; `None` if the step time is unknown.
    #[must_use]
    pub fn compute_per_epoch(&self) -> Option<Nanoseconds> {
        self.step_time.map(|step| self.steps_of(step))
    }

    fn steps_of(&self, each: Nanoseconds) -> Nanoseconds {
        Nanoseconds(each.0.saturating_mul(self.steps_per_epoch.into()))
    }
}

/// The time to preprocess a batch, which the workers of a rank share evenly.
fn preprocessing(job: &Job, batch_size: u32) -> Option<Nanoseconds> {
    let loader = &job.trainer.loader;
    let all = loader.preprocessing?.0.saturating_mul(batch_size.into());
    Some(Nanoseconds(all.div_ceil(loader.workers.max(1).into())))
}

fn read_rate(batch: Bytes, samples: u64, step: Nanoseconds) -> ReadRate {
    // Requests per second are computed like bytes per second.
    ReadRate { bytes: rate_of(batch, step), requests_per_s: rate_of(Bytes(samples), step).0 }
}

/// The rate at which `bytes` are read in `time`, rounded up.
pub(crate) fn rate_of(bytes: Bytes, time: Nanoseconds) -> BytesPerSecond {
    let rate = (u128::from(bytes.0) * 1_000_000_000).div_ceil(time.0.max(1).into());
    BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
}

fn narrow(bytes: u128) -> Bytes {
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
