//! The demands of a job's transform on a node: workers, room in staging, and the settings of its session.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
};

use tierfeed_core::{
    batch::TABLE_ROW_BYTES,
    fleet::{
        first_schedule::{PreparedLength, Settled, TransformTerms},
        schedule::Transforming,
    },
    retention::form::Form,
    session::{self, Handed, Row},
    units::Bytes,
};
use tierfeed_prefetcher::transforms::auto_threads;
use tierfeed_transform::{Pipeline, Prepared};
use tierfeed_workload_analyzer::{
    Job,
    demand::Demand,
    job::{CachedForm, Threads, Transform},
};

/// The number of cores that the agent of a node may use for transforms, by the job and by what this process
/// may use.
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

/// The demands of a job on the form in which tiers hold samples; `None` without a transform.
pub(super) fn terms(job: &Job, demand: &Demand) -> Option<TransformTerms> {
    let transform = job.transform.as_ref()?;
    let settled = |form| Settled { form, reason: "as the job file says".to_owned() };
    let stored = |reason: &str| Settled { form: Form::Stored, reason: reason.to_owned() };
    let only_stored = match transform.pipeline.container() {
        Some(_) => Some(stored("trainers get the other fields of a sample from its stored bytes")),
        None if !job.further.is_empty() => Some(stored("the job has `datasets`")),
        None => None,
    };
    let nodes = u64::from(demand.nodes.max(1));
    let reads = u64::from(demand.samples_per_rank) * u64::from(demand.ranks_per_node);
    Some(TransformTerms {
        settled: match transform.cache {
            CachedForm::Auto => only_stored,
            CachedForm::Stored => Some(settled(Form::Stored)),
            CachedForm::Prepared => Some(settled(Form::Prepared)),
        },
        prepared: match (transform.pipeline.prepared(), fixed(transform)) {
            (None, _) => PreparedLength::None,
            (Some(_), Some(len)) => PreparedLength::Fixed(len),
            (Some(_), None) => PreparedLength::Own,
        },
        lengths: None,
        stored: Bytes(demand.total.0 / u64::from(demand.samples.max(1))),
        samples: u64::from(demand.samples),
        reads,
        sharing: if job.policy.shares() { u32::try_from(nodes).unwrap_or(u32::MAX) } else { 1 },
        compute: demand.compute_per_epoch(),
        later_epochs: job.epochs.saturating_sub(job.start.epoch.0).saturating_sub(1),
    })
}

/// The settings of a session, with the transform of the job if it has one.
#[must_use]
pub(crate) fn with_transform(
    job: &Job,
    transforming: Option<Transforming>,
    prepared: Option<Arc<[Bytes]>>,
    settings: session::Settings,
) -> session::Settings {
    let Some((transform, how)) = job.transform.as_ref().zip(transforming) else { return settings };
    let row = Bytes(transform.pipeline.row_bytes());
    let all = |len| settings.sizes.iter().map(|_| len).collect();
    let prepared = match how.form {
        Form::Stored => None,
        Form::Prepared => match (fixed(transform), prepared) {
            (Some(len), _) => Some(all(len)),
            (None, Some(own)) => Some(own),
            // A plan without them, for nodes whose agents will look for them.
            (None, None) => Some(how.own_mean.map_or_else(|| Arc::clone(&settings.sizes), all)),
        },
    };
    let settings = settings.with_transform(row, how.threads, prepared);
    settings.with_rows(job.pipelines().map(|pipeline| pipeline.map(row_of)).collect())
}

fn row_of(pipeline: &Pipeline) -> Row {
    Row {
        len: Bytes(pipeline.row_bytes()),
        handed: match pipeline.container() {
            None => Handed::Row,
            Some(_) => Handed::RowAndStored,
        },
    }
}

/// The assumption on the lengths of prepared samples, in a sentence; `None` unless tiers hold these, each has
/// its own length, and those are not known as `prepared`.
pub(crate) fn assumed_lengths(
    job: &Job,
    transforming: Option<Transforming>,
    prepared: Option<&[Bytes]>,
) -> Option<String> {
    let (transform, how) = job.transform.as_ref().zip(transforming)?;
    let are_known = fixed(transform).is_some() || prepared.is_some();
    let taken = match how.own_mean {
        Some(mean) => format!("each is taken to have {mean}, their mean"),
        None => "each is taken to be as long as the stored one".to_owned(),
    };
    (how.form == Form::Prepared && !are_known).then(|| {
        format!(
            "the lengths of prepared samples are not known here: {taken}; tiers may hold more or fewer of them in \
             the run, whose agent scans the images"
        )
    })
}

/// The length of each prepared sample, if all have one.
fn fixed(transform: &Transform) -> Option<Bytes> {
    transform.pipeline.prepared().and_then(Prepared::bytes).map(Bytes)
}

/// Bytes that a sample needs in staging beside its stored ones: its row, the prepared form, which may be the
/// longer one, and a second row of the table for its stored bytes if trainers get them. A node tells with its
/// offer what prepared samples of own lengths need.
#[must_use]
pub(crate) fn staged_bytes(job: &Job) -> u64 {
    let of = |pipeline: &Pipeline| {
        pipeline.row_stride() + pipeline.container().map_or(0, |_| TABLE_ROW_BYTES)
    };
    let rows = job.pipelines().flatten().map(of).max().unwrap_or(0);
    let may_be_prepared = |transform: &&Transform| transform.cache != CachedForm::Stored;
    let prepared = job.transform.as_ref().filter(may_be_prepared).and_then(fixed);
    rows.saturating_add(prepared.map_or(0, |it| it.0))
}
