//! Chooses the fetcher that reads the cold store of a job.

use std::{num::NonZeroUsize, sync::Arc};

use tierfeed_core::id::SampleId;
use tierfeed_dataset::{
    Catalog, Index,
    read::{
        FileSource, Source, ThrottledSource,
        page_cache::{PageCacheFigures, PageCacheRoom},
    },
    source::Location,
};
use tierfeed_prefetcher::{
    fetcher::{
        DatasetFetchers, FILE_THREADS, Fetcher, ObjectCounters, PatientFetcher, ThreadFetcher,
        choose,
    },
    plane::StartError,
};
use tierfeed_workload_analyzer::{
    Job,
    job::{ColdStore, PageCache},
};

use super::AgentError;
use crate::dataset::reader;

const OPEN_FILES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Cold {
    /// The name of its fetcher, and the reason for its choice.
    pub(super) engine: String,
    /// Counters of its requests; `None` if it reads files.
    pub(super) requests: Option<Arc<ObjectCounters>>,
    /// The page cache that its reads may fill; `None` if they leave nothing there.
    pub(super) page_cache: Option<Arc<PageCacheRoom>>,
    /// The files whose pages are dropped when a tier keeps a sample.
    pub(super) cached_files: Option<Arc<FileSource>>,
}

impl Cold {
    /// `None` if reads leave nothing there.
    pub(super) fn page_cache_figures(&self) -> Option<PageCacheFigures> {
        self.page_cache.as_deref().map(PageCacheRoom::figures)
    }

    /// A store that is read by `engine`, past the page cache.
    fn read_by(engine: String) -> Self {
        Self { engine, requests: None, page_cache: None, cached_files: None }
    }
}

type Chosen = (Box<dyn Fetcher>, Cold);

/// The fetcher of a job's cold store, which waits for each dataset as long as the job says. [`Cold`]
/// describes the first dataset.
pub(super) fn fetcher(
    job: &Job,
    catalog: &Catalog,
    operations_max: NonZeroUsize,
) -> Result<Chosen, AgentError> {
    let of = |source: &Location, speed, page_cache, index| {
        let store = ColdStore { speed, page_cache, ..job.cold };
        let (engine, cold) = of_dataset(source, store, index, operations_max)?;
        let waits = PatientFetcher::start(engine, source.to_string(), store.patience);
        let failed = |source| StartError::Threads { threads: NonZeroUsize::MIN, source };
        Ok::<Chosen, AgentError>((Box::new(waits.map_err(failed)?), cold))
    };
    let ColdStore { speed, page_cache, .. } = job.cold;
    let (first, cold) = of(&job.dataset.source, speed, page_cache, catalog.first())?;
    if job.further.is_empty() {
        return Ok((first, cold));
    }
    let mut begin = SampleId(catalog.first().len());
    let mut further = Vec::new();
    for (dataset, index) in job.further.iter().zip(catalog.further()) {
        // Free memory is left to the first dataset, which is read most.
        let (fetcher, _) = of(&dataset.dataset.source, dataset.speed, PageCache::Off, index)?;
        further.push((begin, fetcher));
        begin.0 += index.len();
    }
    Ok((Box::new(DatasetFetchers::new(first, further)), cold))
}

/// The fetcher of a dataset, throttled to the speed that the job file imposes.
fn of_dataset(
    source: &Location,
    store: ColdStore,
    index: &Arc<Index>,
    operations_max: NonZeroUsize,
) -> Result<Chosen, AgentError> {
    if let (Location::Bucket(bucket), None) = (source, store.speed) {
        let fetcher = reader::object_fetcher(bucket, index, operations_max)?;
        let requests = Some(fetcher.counters());
        let cold = Cold { requests, ..Cold::read_by("requests".to_owned()) };
        return Ok((Box::new(fetcher), cold));
    }
    let cold: Arc<dyn Source> = match source {
        Location::Path(_) => {
            let files = FileSource::new(Arc::clone(index), OPEN_FILES_MAX).past_page_cache();
            if store.speed.is_none() {
                return by_files(files, store.page_cache, operations_max);
            }
            Arc::new(files)
        }
        Location::Bucket(bucket) => Arc::new(reader::objects(bucket, index)?),
    };
    let source = match store.speed {
        Some(speed) => Arc::new(ThrottledSource::new(cold, speed)),
        None => cold,
    };
    let fetcher = ThreadFetcher::start(source, FILE_THREADS, operations_max);
    let failed = |source| StartError::Threads { threads: FILE_THREADS, source };
    Ok((Box::new(fetcher.map_err(failed)?), Cold::read_by("threads".to_owned())))
}

/// The engine that suits the files; the log states which one and why.
fn by_files(
    files: FileSource,
    page_cache: PageCache,
    operations_max: NonZeroUsize,
) -> Result<Chosen, AgentError> {
    let room =
        (page_cache == PageCache::Auto).then(|| Arc::new(PageCacheRoom::new(files.index().len())));
    let files = Arc::new(match &room {
        Some(room) => files.with_room(Arc::clone(room)),
        None => files,
    });
    let failed = |source| StartError::Threads { threads: FILE_THREADS, source };
    let (fetcher, choice) = choose(&files, operations_max).map_err(failed)?;
    tracing::info!(engine = %choice, "cold files");
    let cached_files = room.is_some().then_some(files);
    let cold = Cold { page_cache: room, cached_files, ..Cold::read_by(choice.to_string()) };
    Ok((fetcher, cold))
}
