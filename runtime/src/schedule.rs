//! The inputs of schedules: what follows from a job and its dataset.
//!
//! From them and from the offer of a node the core makes the schedule of that node
//! ([`tierfeed_core::fleet::first_schedule`]).

pub(crate) mod transforms;

use std::num::{NonZeroU32, NonZeroUsize};

use tierfeed_core::{
    budget::{Infeasible, Staging},
    fleet::{
        first_schedule::{self, COPY_THREADS, Phases, READS_AT_FIRST, ScheduleInputs},
        schedule::{Offer, Schedule},
    },
    retention::in_place::SampleLengths,
    session::{Cycle, Windows},
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::source;
use tierfeed_prefetcher::fetcher::{FILE_THREADS, REQUESTS_MAX};
use tierfeed_workload_analyzer::{Job, demand::Demand};

/// The most that tables and alignment of a sample take in staging memory.
const BYTES_PER_STAGED_SAMPLE: u64 = 96;

/// The first schedule of a node with this offer.
///
/// # Errors
///
/// If main memory and the memory behind CXL together hold no batch.
pub fn of(job: &Job, demand: &Demand, offer: &Offer) -> Result<Schedule, Infeasible> {
    first_schedule::of(&inputs(job, demand), offer)
}

#[must_use]
pub fn inputs(job: &Job, demand: &Demand) -> ScheduleInputs {
    let Staging { ranks, batch, .. } = staging(job, demand);
    let samples = demand.batch_samples;
    let storage = job.tiers.iter().find(|tier| tier.kind == Kind::Storage);
    ScheduleInputs {
        ranks,
        batch,
        batch_samples: samples,
        sample: Bytes(demand.batch_mean.0 / u64::from(samples.max(1))),
        cold_threads: cold_threads(job),
        reads_at_first: reads_at_first(job),
        step_time: demand.step_time,
        depth_max: job.prefetch_batches,
        chunk: job.chunk,
        policy: job.policy,
        stay: job.policy.stay(job.shuffle),
        verify: job.verify,
        lengths: if demand.has_equal_samples { SampleLengths::One } else { SampleLengths::Several },
        modes: job.tiers.iter().map(|tier| (tier.kind, tier.direct)).collect(),
        limits_writes: storage.is_some_and(|tier| tier.writes_per_epoch.is_some()),
        look_ahead: job.look_ahead,
        phases: phases(job, demand),
        transform: transforms::terms(job, demand),
    }
}

/// The phases of the training that the job file declares, on one node; `None` if it declares none.
fn phases(job: &Job, demand: &Demand) -> Option<Phases> {
    let step_time = demand.step_time?;
    let pause = job.trainer.pause?.in_steps(demand.steps_per_epoch);
    let every = u64::from(pause.every.get());
    let step = demand.batch_mean.0.saturating_mul(demand.ranks_per_node.into());
    let cycle = Cycle {
        consumed: Bytes(step.saturating_mul(every)),
        busy: Nanoseconds(step_time.0.saturating_mul(every)),
        idle: pause.time,
    };
    let epoch = Bytes(demand.epoch.0 / u64::from(demand.nodes.max(1)));
    Some(Phases { cycle, epoch, step: Bytes(step) })
}

/// The staging memory that the ranks of a node need, with the depth that the job file names, or its
/// default.
pub(crate) fn staging(job: &Job, demand: &Demand) -> Staging {
    let samples = u64::from(demand.staged_samples);
    let beside = BYTES_PER_STAGED_SAMPLE.saturating_add(transforms::staged_bytes(job));
    let batch = demand.staged_p99.0.saturating_add(samples.saturating_mul(beside));
    let batch = batch.next_multiple_of(tierfeed_core::batch::BATCH_ALIGN);
    let (ranks, batches) = (job.world.ranks_per_node, job.staged_batches());
    Staging { ranks, batches, batch: Bytes(batch) }
}

/// The reads of a job's cold store that run at the same time: a bucket is asked by so many requests, files are
/// read by so many threads at least, and an emulated cold store by these too.
pub(crate) fn cold_threads(job: &Job) -> NonZeroU32 {
    match (&job.cold.speed, &job.dataset.source) {
        (None, source::Location::Bucket(_)) => count(REQUESTS_MAX),
        _ => count(FILE_THREADS),
    }
}

/// The reads of a job's cold store that are given out at a time at first. The answers of a bucket are late, so each of
/// its requests has one from the start: an epoch could be over before the window had grown.
fn reads_at_first(job: &Job) -> NonZeroU32 {
    match (&job.cold.speed, &job.dataset.source) {
        (None, source::Location::Bucket(_)) => cold_threads(job),
        _ => Windows::for_threads(READS_AT_FIRST, COPY_THREADS).cold,
    }
}

fn count(threads: NonZeroUsize) -> NonZeroU32 {
    u32::try_from(threads.get()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
