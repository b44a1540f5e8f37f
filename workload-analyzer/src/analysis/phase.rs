//! What each phase of a job reads.

use serde::{Serialize, Serializer};
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};

use crate::{
    Job,
    demand::{Demand, Sizes, plain},
    job::trainer::Pass,
};

/// What a phase is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// Data processing: bytes from the cold store or a tier to a staged batch.
    Loading,
    /// Data processing: from bytes to arrays.
    Preprocessing,
    /// Execution: the passes that train.
    Training,
    /// Execution: the passes between them.
    Validation,
    /// Execution: the pass at the end.
    Evaluation,
}

impl Name {
    /// The name in reports.
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

/// What a phase does, all ranks together where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Which one.
    pub phase: Name,
    /// How often it is gone through.
    pub passes: u32,
    /// Steps of each rank in a pass.
    pub steps: u32,
    /// Samples in a pass, with what the order repeats.
    pub samples: u64,
    /// Bytes of them as they are stored.
    #[serde(rename = "bytes", serialize_with = "plain::bytes")]
    pub bytes: Bytes,
    /// Bytes of a batch as they are stored, on average.
    #[serde(rename = "batch_bytes", serialize_with = "plain::bytes")]
    pub batch: Bytes,
    /// How long a pass takes if nothing waits, if known.
    #[serde(rename = "pass_s", serialize_with = "plain::optional_seconds")]
    pub time: Option<Nanoseconds>,
    /// What a rank asks for meanwhile, if the time is known.
    #[serde(rename = "rank_bytes_per_s", serialize_with = "plain::optional_rate")]
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

/// Samples are dealt evenly to the ranks; the last step may be short.
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
    let rate = |step: Nanoseconds| {
        let rate = (u128::from(phase.batch.0) * 1_000_000_000).div_ceil(step.0.max(1).into());
        BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
    };
    let pass = |step: Nanoseconds| Nanoseconds(step.0.saturating_mul(phase.steps.into()));
    Phase { time: step.map(pass), rank_rate: step.map(rate), ..phase }
}
