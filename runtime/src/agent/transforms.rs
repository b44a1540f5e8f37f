//! Starts the processes that make rows of samples.

use std::num::NonZeroUsize;

use tierfeed_core::{
    fleet::{
        TransformProgress,
        schedule::{Schedule, TransformSchedule},
    },
    order::Spec,
    session::{EpochProgress, LookAhead},
    units::Nanoseconds,
};
use tierfeed_prefetcher::{
    plane::DataPlane,
    transforms::{Counts, GIVEN_MAX, Settings, StartError, Transforms},
};
use tierfeed_transform::{
    worker_process::Program,
    worker_protocol::{DatasetPipeline, Setup},
};
use tierfeed_transform_worker::has_landlock;
use tierfeed_workload_analyzer::Job;

use super::trainers::TrainingSpan;
use crate::observe::report::TransformEntry;

/// The niceness of workers: trainers come first where both want a core.
const NICENESS: u8 = 5;

pub(super) fn entry(
    job: &Job,
    schedule: &Schedule,
    counts: Option<Counts>,
    total: &EpochProgress,
    wall: Nanoseconds,
) -> Option<TransformEntry> {
    let (transform, scheduled) = job.transform.as_ref().zip(schedule.transform.as_ref())?;
    Some(TransformEntry {
        threads: scheduled.threads.get(),
        cached: scheduled.form.name(),
        cached_because: scheduled.reason.clone(),
        quick_modes: transform.pipeline.quick_modes(),
        ..TransformEntry::of(&counts.unwrap_or_default(), total, wall)
    })
}

pub(super) fn progress(
    counts: Option<Counts>,
    training: Option<TrainingSpan>,
) -> Option<TransformProgress> {
    let counts = counts?;
    let worked = u64::try_from(counts.worked.as_nanos()).unwrap_or(u64::MAX);
    Some(TransformProgress {
        workers: u32::try_from(counts.working).unwrap_or(u32::MAX),
        waiting: u32::try_from(counts.waiting).unwrap_or(u32::MAX),
        rows: counts.transformed,
        rejected: counts.rejected.iter().sum(),
        replaced: counts.crashed + counts.timed_out,
        worked: Nanoseconds(worked),
        trained: training.map_or(Nanoseconds(0), TrainingSpan::len),
    })
}

pub(super) fn start(
    job: &Job,
    order: Spec,
    schedule: &Schedule,
    program: Program,
    plane: &DataPlane,
) -> Result<(), StartError> {
    let scheduled = job.transform.as_ref().zip(schedule.transform.as_ref());
    let Some((transform, TransformSchedule { threads, form, reason, .. })) = scheduled else {
        return Ok(());
    };
    let workers = NonZeroUsize::try_from(*threads).unwrap_or(NonZeroUsize::MIN);
    let quick_modes = transform.pipeline.quick_modes();
    tracing::info!(threads, cached = form.name(), reason, ?quick_modes, "transform");
    if let (LookAhead::Room(_), Some(restriction)) = (job.look_ahead, form.restriction()) {
        tracing::warn!("prefetch.look_ahead has no effect with prepared samples: {restriction}");
    }
    if !has_landlock() {
        tracing::warn!(
            "this kernel has no Landlock: transform workers can open files and connections"
        );
    }
    let pipelines = pipelines(job, order);
    let setup = Setup { niceness: NICENESS, ..Setup::of_datasets(&pipelines, job.seed) };
    // The session gives out no more at a time than workers take.
    let queued_max =
        workers.saturating_mul(const { NonZeroUsize::new(2 * GIVEN_MAX).expect("4 is not 0") });
    let settings = Settings { program, setup, workers, queued_max };
    plane.transform_with(Transforms::start_blocking(settings)?);
    Ok(())
}

/// The pipelines of the datasets that have one, each with the samples of its dataset.
fn pipelines(job: &Job, order: Spec) -> Vec<DatasetPipeline> {
    let of = order.datasets().zip(job.pipelines());
    let of = of.filter_map(|(dataset, pipeline)| {
        let first = u64::from(order.first_sample(dataset).0);
        let end = first + order.of_dataset(dataset).map_or(0, |it| u64::from(it.samples));
        Some(DatasetPipeline { first, end, pipeline: pipeline?.clone() })
    });
    of.collect()
}
