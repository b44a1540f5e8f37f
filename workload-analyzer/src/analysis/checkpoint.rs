//! The size of checkpoints, and the write rate that they need.

use serde::Serialize;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use crate::{
    Job,
    demand::{Demand, rate_of, seconds},
    job::trainer::Interval,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Checkpointing {
    /// Bytes of one checkpoint, written once for all ranks.
    pub bytes: Bytes,
    pub every_steps: u64,
    pub count: u64,
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
    /// Time between two checkpoints without stalls; `None` if the step time is unknown.
    #[serde(rename = "interval_s", serialize_with = "seconds::optional")]
    pub interval: Option<Nanoseconds>,
    /// The least write rate with which a checkpoint is written before the next is due.
    #[serde(rename = "write_bytes_per_s")]
    pub write_rate: Option<BytesPerSecond>,
}

impl Checkpointing {
    pub(super) fn of(job: &Job, demand: &Demand) -> Option<Self> {
        let checkpoint = job.trainer.checkpoint?;
        let bytes = bytes(job)?;
        let steps = u64::from(demand.steps_per_epoch);
        let every_steps = match checkpoint.every {
            Interval::Steps(count) => u64::from(count),
            Interval::Epochs(count) => steps.saturating_mul(count.into()),
        };
        let all_steps = steps.saturating_mul(demand.epochs.into());
        let count = all_steps / every_steps.max(1);
        let interval = demand.step_time.map(|step| Nanoseconds(step.0.saturating_mul(every_steps)));
        Some(Self {
            bytes,
            every_steps,
            count,
            total: Bytes(bytes.0.saturating_mul(count)),
            interval,
            write_rate: interval.map(|interval| rate_of(bytes, interval)),
        })
    }
}

/// The size of one checkpoint: as given in the job, else computed from its model.
pub(super) fn bytes(job: &Job) -> Option<Bytes> {
    let checkpoint = job.trainer.checkpoint?;
    checkpoint.bytes.or_else(|| job.trainer.model.map(|model| model.saved_bytes()))
}
