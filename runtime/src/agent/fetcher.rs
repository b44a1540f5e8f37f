//! Chooses what reads the cold store of a job.

use std::{num::NonZeroUsize, sync::Arc};

use tierfeed_prefetcher::{
    fetcher::{Fetcher, READ_THREADS, ThreadFetcher},
    plane::StartError,
    source::{FileSource, Source, ThrottledSource},
};
use tierfeed_workload_analyzer::{Index, Job, source::Location};

use super::start::AgentError;
use crate::reader;

/// Files of the dataset that stay open.
const OPEN_FILES_MAX: usize = 256;

/// What reads the cold store of a job, as fast as the job imposes.
pub(super) fn fetcher(
    job: &Job,
    index: &Arc<Index>,
    operations_max: NonZeroUsize,
) -> Result<Box<dyn Fetcher>, AgentError> {
    if let (Location::Bucket(bucket), None) = (&job.dataset.source, job.dataset.speed) {
        return Ok(Box::new(reader::object_fetcher(bucket, index, operations_max)?));
    }
    let cold: Arc<dyn Source> = match &job.dataset.source {
        Location::Path(_) => Arc::new(FileSource::new(Arc::clone(index), OPEN_FILES_MAX)),
        Location::Bucket(bucket) => Arc::new(reader::objects(bucket, index)?),
    };
    let source = match job.dataset.speed {
        Some(speed) => Arc::new(ThrottledSource::new(cold, speed)),
        None => cold,
    };
    let fetcher = ThreadFetcher::start(source, READ_THREADS, operations_max);
    let failed = |source| StartError::Threads { threads: READ_THREADS, source };
    Ok(Box::new(fetcher.map_err(failed)?))
}
