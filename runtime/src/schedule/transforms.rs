//! What the transform of a job asks of a node: workers, room in staging, and what its session works by.

use std::num::{NonZeroU32, NonZeroUsize};

use tierfeed_core::{fleet::schedule::Transforming, retention::form::Form, session, units::Bytes};
use tierfeed_prefetcher::transforms::auto_threads;
use tierfeed_workload_analyzer::{
    Job,
    job::{CachedForm, Threads, Transform},
};

/// How many cores the agent of a node may use for transforms, by the job and what this process may use.
#[must_use]
pub(crate) fn threads(job: &Job) -> NonZeroU32 {
    match job.threads {
        Threads::Count(count) => count,
        Threads::Auto => {
            let ranks = NonZeroU32::new(job.world.ranks_per_node).unwrap_or(NonZeroU32::MIN);
            let threads: NonZeroUsize = auto_threads(ranks);
            threads.try_into().unwrap_or(NonZeroU32::MAX)
        }
    }
}

/// The settings of a session, with the transform of the job if it has one.
#[must_use]
pub(crate) fn with_transform(
    job: &Job,
    transforming: Option<Transforming>,
    settings: session::Settings,
) -> session::Settings {
    let Some((transform, how)) = job.transform.as_ref().zip(transforming) else { return settings };
    let row = Bytes(transform.pipeline.row_bytes());
    let prepared = match how.form {
        Form::Stored => None,
        Form::Prepared => transform.pipeline.prepared().map(|form| Bytes(form.bytes())),
    };
    settings.with_transform(row, how.threads, prepared)
}

/// The length of the form in which tiers may keep samples; `None` if that is the stored one.
fn prepared(transform: &Transform) -> Option<Bytes> {
    match transform.cache {
        CachedForm::Auto | CachedForm::Prepared => {
            transform.pipeline.prepared().map(|form| Bytes(form.bytes()))
        }
        CachedForm::Stored => None,
    }
}

/// Bytes that a sample needs in staging beside its stored ones: its row, and the prepared form, which may be
/// the longer one.
#[must_use]
pub(crate) fn staged_bytes(job: &Job) -> u64 {
    let of = |transform: &Transform| {
        transform.pipeline.row_stride().saturating_add(prepared(transform).map_or(0, |it| it.0))
    };
    job.transform.as_ref().map_or(0, of)
}
