//! The measured step time and stall of an earlier run of the job, from its `report.json`.

use std::fmt;

use serde::{Deserialize, Serialize};
use tierfeed_core::units::{Nanoseconds, float, whole};

use crate::Job;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Observed {
    /// The time between two batches, decoding included: the duration of the run without the stall, divided by
    /// its steps. Includes the time before the first and after the last batch, validation and checkpoints.
    #[serde(rename = "step_time_ns")]
    pub step_time: Option<Nanoseconds>,
    /// The total stall of each rank, in seconds.
    pub stall_s: f64,
    /// The 99th percentile of the waits for a batch, in seconds.
    pub batch_wait_p99_s: f64,
    /// The stall as a percentage of the duration of the run.
    pub stall_percent: f64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObservedError {
    #[error("not the report of a run: {0}")]
    NotAReport(#[source] serde_json::Error),
    #[error("the report of the job `{found}`, not of `{expected}`")]
    OtherJob { found: String, expected: String },
    /// The run used no batch, or its figures are inconsistent.
    #[error(
        "{steps} steps in {wall_s} s of which {stall_s} s waiting; a run that took batches is needed"
    )]
    NothingObserved {
        /// Batches that all ranks of the node used.
        steps: u64,
        wall_s: f64,
        stall_s: f64,
    },
}

/// The keys of a report that are used here.
#[derive(Deserialize)]
struct ReportFile {
    job: String,
    steps: u64,
    /// Includes batches that trainers read themselves; absent in reports of earlier versions.
    used_batches: Option<u64>,
    wall_s: f64,
    stall_s: f64,
    #[serde(default)]
    stall_for_s: StallFile,
    batch_wait_s: BatchWaitFile,
}

#[derive(Default, Deserialize)]
struct StallFile {
    #[serde(default)]
    decoding: f64,
}

#[derive(Deserialize)]
struct BatchWaitFile {
    p99: f64,
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step_time.unwrap_or_default();
        write!(
            f,
            "{step} between two batches; waited {:.3} s ({:.1} %), a batch {:.3} s p99",
            self.stall_s, self.stall_percent, self.batch_wait_p99_s
        )
    }
}

impl Observed {
    /// Reads the text of a report of `job`.
    ///
    /// # Errors
    ///
    /// If the text is not a report, is that of another job, or is that of a run without a batch.
    pub fn parse(text: &str, job: &Job) -> Result<Self, ObservedError> {
        let report: ReportFile = serde_json::from_str(text).map_err(ObservedError::NotAReport)?;
        let ReportFile { wall_s, stall_s, .. } = report;
        let steps = report.used_batches.unwrap_or(report.steps);
        if report.job != job.name {
            let expected = job.name.clone();
            return Err(ObservedError::OtherJob { found: report.job, expected });
        }
        // In this form, NaN is refused too.
        let is_possible = wall_s > 0.0 && (0.0..=wall_s).contains(&stall_s);
        if steps == 0 || !is_possible {
            return Err(ObservedError::NothingObserved { steps, wall_s, stall_s });
        }
        // Decoding is no wait for tierfeed: the trainer requests no batch meanwhile.
        let waited_s = stall_s - report.stall_for_s.decoding.clamp(0.0, stall_s);
        let computing_s = (wall_s - waited_s) * f64::from(job.world.ranks_per_node) / float(steps);
        Ok(Self {
            step_time: Some(Nanoseconds(whole(computing_s * 1e9).max(1))),
            stall_s,
            batch_wait_p99_s: report.batch_wait_s.p99,
            stall_percent: stall_s / wall_s * 100.0,
        })
    }
}
