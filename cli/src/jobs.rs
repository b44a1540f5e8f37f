//! Reads job files and the indexes of their datasets for commands.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use tierfeed_core::{
    fleet::{self, launch::JobWorld},
    order::{Spec, World},
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{Catalog, Dataset, Index, index::Differences, source::Location};
use tierfeed_runtime::{
    agent::LoadedJob,
    dataset::{self, DatasetError, image_sizes::ImageSizeCache, index_cache::IndexCache},
    layout::Lengths,
    manager,
    rpc::call::JobText,
    run_dir::{RunDir, start_marker::StartMarker},
    schedule,
};
use tierfeed_workload_analyzer::{
    Job,
    demand::{Demand, Sizes},
    job::{FurtherDataset, LocatedError, described::DescribedSizes},
};

use crate::{environment, failure::Failure, output};

/// A node without reports for this long counts as lost.
const LOST_AFTER: Nanoseconds = Nanoseconds(10_000_000_000);

/// A job file that was read and parsed once.
#[derive(Debug)]
pub(crate) struct JobFile {
    pub(crate) job: Arc<Job>,
    /// As the user typed it.
    pub(crate) path: PathBuf,
    text: String,
}

impl JobFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        Self::read_with(path, World { nodes: 1, ranks_per_node: 1 })
    }

    /// `default` supplies what the file leaves out of its world.
    pub(crate) fn read_with(path: &Path, default: World) -> Result<Self, Failure> {
        let (job, text) = Job::load_with(path, default).map_err(Failure::input)?;
        if let Some(warning) = job.unused_threads() {
            tracing::warn!(file = %path.display(), "{warning}");
        }
        Ok(Self { job: Arc::new(job), path: path.to_owned(), text })
    }

    /// As [`Self::read_with`], of a text that is in no file yet. Errors call it `name`.
    pub(crate) fn of_text(text: String, name: &str, default: World) -> Result<Self, Failure> {
        let path = PathBuf::from(name);
        let job = Job::parse_with(&text, &path, default).map_err(Failure::input)?;
        Ok(Self { job: Arc::new(job), path, text })
    }

    pub(crate) fn saved(self, path: PathBuf) -> Result<Self, Failure> {
        fs::write(&path, &self.text).with_context(|| format!("{}", path.display()))?;
        Ok(Self { path, ..self })
    }

    pub(crate) fn post(&self) -> JobWorld {
        self.job.post(&self.text, &self.path)
    }

    /// Whether this is the file that the manager of the job read.
    pub(crate) fn is_that_of(&self, manager: &JobText) -> bool {
        self.text == manager.text && self.job.world == manager.world
    }

    /// An error about `keys` of the file, with their line.
    pub(crate) fn placed<E: std::error::Error>(&self, keys: &[&str], error: E) -> LocatedError<E> {
        LocatedError::in_text(&self.text, &self.path, keys, error)
    }
}

/// A job with the indexes of its datasets, for its manager, and for an agent in the same process, which then does
/// not ask the manager for it.
#[derive(Debug)]
pub(crate) struct IndexedJob {
    pub(crate) manager: manager::Settings,
    pub(crate) loaded: LoadedJob,
}

/// A job with the sizes of its samples, from an index or from `dataset.described`.
#[derive(Debug)]
pub(crate) struct SizedJob {
    pub(crate) file: JobFile,
    samples: Samples,
    pub(crate) sums: Sizes,
    pub(crate) order: Spec,
    pub(crate) demand: Demand,
}

#[derive(Debug)]
enum Samples {
    Indexed(Catalog),
    Described(DescribedSizes),
}

impl SizedJob {
    pub(crate) fn job(&self) -> &Job {
        &self.file.job
    }

    /// `None` if the dataset is only described.
    pub(crate) fn index(&self) -> Option<&Index> {
        match &self.samples {
            Samples::Indexed(catalog) => Some(catalog.first()),
            Samples::Described(_) => None,
        }
    }

    /// The length of every sample: 8 B of memory each, and as much for those in prepared form that have their own.
    pub(crate) fn lengths(&self) -> Lengths {
        let stored: Arc<[Bytes]> = match &self.samples {
            Samples::Indexed(catalog) => catalog.sizes().collect(),
            Samples::Described(sizes) => sizes.iter().collect(),
        };
        let pipeline = self.job().transform.as_ref().map(|transform| &transform.pipeline);
        let known = self.index().zip(pipeline).and_then(|(index, pipeline)| {
            let sizes = ImageSizeCache::new(&environment::indexes_for(&self.file.path));
            let sizes = sizes.get(index)?;
            Some(sizes.prepared(pipeline))
        });
        Lengths { prepared: known, stored }
    }
}

/// Finds out the sizes of the samples of a job, which analysing and planning need.
pub(crate) fn sized(file: JobFile) -> Result<SizedJob, Failure> {
    let job = &file.job;
    let (samples, sums, further) = if let Some(described) = &job.described {
        let sizes = described.sizes(job.seed);
        (Samples::Described(sizes), Sizes::described(described, job.seed), Vec::new())
    } else {
        let first = Arc::new(index(&file, None)?);
        let further = job.further.iter().map(|dataset| further_index(&file, dataset, None));
        let catalog = Catalog::new(first, further.collect::<Result<Vec<_>, _>>()?);
        let (sums, further) = sums(&catalog);
        (Samples::Indexed(catalog), sums, further)
    };
    let counts: Vec<_> = [&sums].into_iter().chain(&further).map(Sizes::samples).collect();
    let order = job.order_of_all(&counts).map_err(Failure::input)?;
    let demand = Demand::of(job, &sums).map_err(Failure::input)?.beside(job, &further);
    Ok(SizedJob { file, samples, sums, order, demand })
}

/// Indexes the datasets of a job, or opens stored indexes that are still right. A job that has started in this
/// run directory continues with its indexes, even if a dataset has changed.
pub(crate) fn load(file: JobFile, run_dir: &RunDir) -> Result<IndexedJob, Failure> {
    file.job.require_dataset().map_err(Failure::input)?;
    let note = run_dir.start_marker();
    let begun = StartMarker::indexes_of(&note, &file.text).unwrap_or_default();
    let index_file = file.job.index.clone().unwrap_or_else(|| run_dir.index());
    let first = match continued(&file.job.dataset, &index_file, begun.first(), &note) {
        Some(index) => index,
        None => index(&file, Some(&run_dir.index()))?,
    };
    let further = file.job.further.iter().enumerate().map(|(at, further)| {
        let place = dataset::further_index(further, &index_file);
        match continued(&further.dataset, &place, begun.get(at + 1), &note) {
            Some(index) => Ok(Arc::new(index)),
            None => further_index(&file, further, Some(&place)),
        }
    });
    let catalog = Catalog::new(Arc::new(first), further.collect::<Result<Vec<_>, _>>()?);
    let JobFile { job, path, text } = file;
    let order = job.order_of_all(&catalog.samples()).map_err(Failure::input)?;
    let (first, further) = sums(&catalog);
    let demand = Demand::of(&job, &first).map_err(Failure::input)?.beside(&job, &further);
    let inputs = schedule::inputs(&job, &demand);
    let text = JobText {
        name: job.name.clone(),
        text,
        file: std::path::absolute(&path).map_err(Failure::input)?,
        index_fingerprint: catalog.first().fingerprint(),
        further_fingerprints: catalog.further().iter().map(|it| it.fingerprint()).collect(),
        world: job.world,
    };
    let manager = manager::Settings {
        job: text.clone(),
        fleet: fleet::Settings { order, policy: job.policy, lost_after: LOST_AFTER },
        inputs,
        meeting_port: 0,
        index: index_file,
        start_marker: note,
        schedule_log: run_dir.schedule_log(),
        memberships: run_dir.memberships(),
    };
    Ok(IndexedJob { manager, loaded: LoadedJob { text, job, catalog } })
}

fn sums(catalog: &Catalog) -> (Sizes, Vec<Sizes>) {
    let further = catalog.further().iter().map(|index| Sizes::from(&**index));
    (Sizes::from(&**catalog.first()), further.collect())
}

/// The index of a dataset with which a job has started in this run directory, by the marker `note`.
fn continued(dataset: &Dataset, path: &Path, expected: Option<&u64>, note: &Path) -> Option<Index> {
    let Some(index) = dataset::reopen(dataset, path, *expected?) else {
        let path = path.display();
        tracing::warn!(%path, "the job began with another index, which is not there any more");
        return None;
    };
    log_changes(&index.differences(), dataset, note);
    Some(index)
}

fn log_changes(differences: &Differences, dataset: &Dataset, note: &Path) {
    let (source, note) = (&dataset.source, note.display());
    if !matches!(source, Location::Path(_)) {
        tracing::warn!(
            "{source} was not listed again: the job goes on with the objects that were there when it began; to \
             index it anew, remove {note} or name another run directory"
        );
        return;
    }
    if differences.is_empty() {
        return;
    }
    for difference in &differences.named {
        tracing::warn!("{difference}; reads of it will tell");
    }
    tracing::warn!(
        directories = differences.directories,
        objects = differences.count,
        not_looked_at = differences.unseen,
        "{source} changed since the job began, which goes on with its index; to index it anew, remove {note} or \
         name another run directory"
    );
}

/// The index of the job's dataset: the one that the job names, else from the cache. For a run it is also in
/// the run directory.
fn index(file: &JobFile, of_run: Option<&Path>) -> Result<Index, Failure> {
    let job = &file.job;
    let index = index_of(&job.dataset, job.index.as_deref(), of_run);
    index.map_err(|error| placed(file, &["dataset", "source"], error))
}

/// The index of a dataset beside the first, as [`index`]; for a run at `place`.
fn further_index(
    file: &JobFile,
    further: &FurtherDataset,
    place: Option<&Path>,
) -> Result<Arc<Index>, Failure> {
    let index = index_of(&further.dataset, further.index.as_deref(), place);
    let keys = ["datasets", &further.name, "source"];
    index.map(Arc::new).map_err(|error| placed(file, &keys, error))
}

/// The index at `named`, else from the cache, and for a run at `place`.
fn index_of(
    dataset: &Dataset,
    named: Option<&Path>,
    place: Option<&Path>,
) -> Result<Index, DatasetError> {
    let bar = output::bar();
    let mut progress = |it| output::show_indexing(&bar, it);
    let cache = IndexCache::new(Path::new(environment::INDEXES));
    let index = match (named, place) {
        (Some(path), _) => dataset::open_or_build(dataset, path, &mut progress),
        (None, Some(place)) => cache.index(dataset, place, &mut progress),
        (None, None) => cache.peek(dataset, &mut progress).map_err(DatasetError::from),
    };
    bar.finish_and_clear();
    index
}

/// What is wrong with a dataset, with the place in the job file if other input would help.
fn placed(file: &JobFile, keys: &[&str], error: DatasetError) -> Failure {
    if !error.is_input() {
        return Failure::work(error);
    }
    let LocatedError { file, line, source } = file.placed(keys, error);
    Failure::Input(anyhow!("{}:{line}: {}: {source}", file.display(), keys.join(".")))
}
