//! The bytes and the duration of each phase of a job.

use serde::{Serialize, Serializer};
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use crate::{
    Job,
    demand::{Demand, Sizes, rate_of, seconds},
    job::trainer::Pass,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// Data processing: bytes from the cold store or a tier to a staged batch.
    Loading,
    /// Data processing: decoding bytes to arrays.
    Preprocessing,
    /// Execution: the passes over the training data.
    Training,
    /// Execution: the passes between epochs.
    Validation,
    /// Execution: the pass at the end.
    Evaluation,
}

impl Name {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Preprocessing => "preprocessing",
            Self::Training => "training",
            Self::Validation => "validation",
            Self::Evaluation => "evaluation",
        }
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One phase, for all ranks together unless a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Phase {
    pub phase: Name,
    /// Number of passes in the whole job.
    pub passes: u32,
    /// Steps of each rank in a pass.
    pub steps: u32,
    /// Samples in a pass, including those that the order repeats.
    pub samples: u64,
    /// Stored bytes of these samples.
    pub bytes: Bytes,
    /// Mean stored bytes of a batch.
    #[serde(rename = "batch_bytes")]
    pub batch: Bytes,
    /// The duration of a pass without stalls, if known.
    #[serde(rename = "pass_s", serialize_with = "seconds::optional")]
    pub time: Option<Nanoseconds>,
    /// The read rate of a rank in the pass, if the duration is known.
    #[serde(rename = "rank_bytes_per_s")]
    pub rank_rate: Option<BytesPerSecond>,
}

/// All phases that the job has, data processing first.
pub(super) fn all(job: &Job, sizes: &Sizes, demand: &Demand) -> Vec<Phase> {
    let training = training(job, demand);
    let loading = Phase { phase: Name::Loading, time: None, rank_rate: None, ..training };
    let preprocessing = demand
        .preprocessing
        .map(|step| with_time(Phase { phase: Name::Preprocessing, ..training }, Some(step)));
    let validation = job.trainer.validation.map(|it| {
        let passes = job.epochs / it.every_epochs;
        other(job, sizes, Name::Validation, passes, &it.pass)
    });
    let evaluation =
        job.trainer.evaluation.map(|pass| other(job, sizes, Name::Evaluation, 1, &pass));
    let mut phases = vec![loading];
    phases.extend(preprocessing);
    phases.push(training);
    phases.extend(validation.into_iter().chain(evaluation));
    phases
}

fn training(job: &Job, demand: &Demand) -> Phase {
    let ranks = u64::from(job.world.ranks());
    let phase = Phase {
        phase: Name::Training,
        passes: job.epochs,
        steps: demand.steps_per_epoch,
        samples: u64::from(demand.samples_per_rank) * ranks,
        bytes: demand.epoch,
        batch: demand.batch_mean,
        time: None,
        rank_rate: None,
    };
    with_time(phase, demand.step_time)
}

/// A validation or evaluation phase. Samples are divided evenly over the ranks; the last step may be short.
fn other(job: &Job, sizes: &Sizes, name: Name, passes: u32, pass: &Pass) -> Phase {
    let ranks = job.world.ranks();
    let per_rank = pass.samples.div_ceil(ranks);
    let batch_samples = pass.batch_size.unwrap_or(job.batch_size).min(per_rank);
    let bytes_of = |samples: u64| match pass.sample_bytes {
        Some(each) => Bytes(each.0.saturating_mul(samples)),
        None => sizes.mean_of(samples),
    };
    let phase = Phase {
        phase: name,
        passes,
        steps: per_rank.div_ceil(batch_samples),
        samples: pass.samples.into(),
        bytes: bytes_of(pass.samples.into()),
        batch: bytes_of(batch_samples.into()),
        time: None,
        rank_rate: None,
    };
    with_time(phase, pass.step_time)
}

fn with_time(phase: Phase, step: Option<Nanoseconds>) -> Phase {
    let rate = |step| rate_of(phase.batch, step);
    let pass = |step: Nanoseconds| Nanoseconds(step.0.saturating_mul(phase.steps.into()));
    Phase { time: step.map(pass), rank_rate: step.map(rate), ..phase }
}
