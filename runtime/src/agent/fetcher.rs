//! Chooses the fetcher that reads the cold store of a job.

use std::{num::NonZeroUsize, sync::Arc};

use tierfeed_dataset::{
    Index,
    read::{FileSource, Source, ThrottledSource},
    source::Location,
};
use tierfeed_prefetcher::{
    fetcher::{FILE_THREADS, Fetcher, ObjectCounters, READ_THREADS, ThreadFetcher, choose},
    plane::StartError,
};
use tierfeed_workload_analyzer::Job;

use super::AgentError;
use crate::dataset::reader;

/// Files of the dataset that stay open.
const OPEN_FILES_MAX: usize = 256;

/// How the cold store of a job is read.
#[derive(Debug)]
pub(super) struct Cold {
    /// What its fetcher is called, and why it was chosen.
    pub(super) engine: String,
    /// Counters of its requests; `None` if it reads files.
    pub(super) requests: Option<Arc<ObjectCounters>>,
}

type Chosen = (Box<dyn Fetcher>, Cold);

/// The fetcher of a job's cold store, throttled to the speed that the job file imposes.
pub(super) fn fetcher(
    job: &Job,
    index: &Arc<Index>,
    operations_max: NonZeroUsize,
) -> Result<Chosen, AgentError> {
    if let (Location::Bucket(bucket), None) = (&job.dataset.source, job.cold.speed) {
        let fetcher = reader::object_fetcher(bucket, index, operations_max)?;
        let requests = Some(fetcher.counters());
        return Ok((Box::new(fetcher), Cold { engine: "requests".to_owned(), requests }));
    }
    let cold: Arc<dyn Source> = match &job.dataset.source {
        Location::Path(_) => {
            let files = FileSource::new(Arc::clone(index), OPEN_FILES_MAX).past_page_cache();
            if job.cold.speed.is_none() {
                return by_files(&Arc::new(files), operations_max);
            }
            Arc::new(files)
        }
        Location::Bucket(bucket) => Arc::new(reader::objects(bucket, index)?),
    };
    let source = match job.cold.speed {
        Some(speed) => Arc::new(ThrottledSource::new(cold, speed)),
        None => cold,
    };
    let fetcher = ThreadFetcher::start(source, READ_THREADS, operations_max);
    let failed = |source| StartError::Threads { threads: READ_THREADS, source };
    let cold = Cold { engine: "threads".to_owned(), requests: None };
    Ok((Box::new(fetcher.map_err(failed)?), cold))
}

/// The engine that suits the files; the log states which one and why.
fn by_files(files: &Arc<FileSource>, operations_max: NonZeroUsize) -> Result<Chosen, AgentError> {
    let failed = |source| StartError::Threads { threads: FILE_THREADS, source };
    let (fetcher, choice) = choose(files, operations_max).map_err(failed)?;
    tracing::info!(engine = %choice, "cold files");
    Ok((fetcher, Cold { engine: choice.to_string(), requests: None }))
}
