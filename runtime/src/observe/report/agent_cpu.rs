//! What the agent's process cost in CPU time while the job trained.

use serde::Serialize;
use tierfeed_core::{
    session::EpochProgress,
    units::{Nanoseconds, seconds, share},
};

/// All threads and the kernel on their behalf, without workers that transform, which are processes of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct AgentCpuEntry {
    pub time_s: f64,
    /// For each sample that the agent served.
    pub ns_per_sample: f64,
    /// For each batch that the agent served.
    pub us_per_batch: f64,
}

impl AgentCpuEntry {
    #[must_use]
    pub fn of(time: Nanoseconds, total: &EpochProgress) -> Self {
        Self {
            time_s: seconds(time),
            ns_per_sample: share(time.0, total.samples),
            us_per_batch: share(time.0, total.batches) / 1e3,
        }
    }

    pub(super) fn line(self) -> String {
        let Self { time_s, ns_per_sample, us_per_batch } = self;
        format!("{time_s:.2} s, {ns_per_sample:.0} ns a sample, {us_per_batch:.1} us a batch")
    }
}
