//! What checkpoints ask of the storage that they are written to.

use serde::Serialize;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use crate::{
    Job,
    demand::{Demand, plain},
    job::trainer::Every,
};

/// What a job writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Checkpointing {
    /// Bytes of one checkpoint, written once for all ranks.
    #[serde(rename = "bytes", serialize_with = "plain::bytes")]
    pub bytes: Bytes,
    /// Steps between two of them.
    pub every_steps: u64,
    /// How many the job writes.
    pub count: u64,
    /// Bytes of all.
    #[serde(rename = "total_bytes", serialize_with = "plain::bytes")]
    pub total: Bytes,
    /// Time between two of them if nothing waits, if the step time is known.
    #[serde(rename = "interval_s", serialize_with = "plain::optional_seconds")]
    pub interval: Option<Nanoseconds>,
    /// What storage must take, so that one is written before the next is due.
    #[serde(rename = "write_bytes_per_s", serialize_with = "plain::optional_rate")]
    pub write_rate: Option<BytesPerSecond>,
}

impl Checkpointing {
    pub(super) fn of(job: &Job, demand: &Demand) -> Option<Self> {
        let checkpoint = job.trainer.checkpoint?;
        let bytes = bytes(job)?;
        let steps = u64::from(demand.steps_per_epoch);
        let every_steps = match checkpoint.every {
            Every::Steps(count) => u64::from(count),
            Every::Epochs(count) => steps.saturating_mul(count.into()),
        };
        let all_steps = steps.saturating_mul(demand.epochs.into());
        let count = all_steps / every_steps.max(1);
        let interval = demand.step_time.map(|step| Nanoseconds(step.0.saturating_mul(every_steps)));
        let rate = |interval: Nanoseconds| {
            let rate = (u128::from(bytes.0) * 1_000_000_000).div_ceil(interval.0.max(1).into());
            BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
        };
        Some(Self {
            bytes,
            every_steps,
            count,
            total: Bytes(bytes.0.saturating_mul(count)),
            interval,
            write_rate: interval.map(rate),
        })
    }
}

/// What one checkpoint takes: as the job says, else what must be saved of its model.
pub(super) fn bytes(job: &Job) -> Option<Bytes> {
    let checkpoint = job.trainer.checkpoint?;
    checkpoint.bytes.or_else(|| job.trainer.model.map(|model| model.saved_bytes()))
}
