//! A job file with its dataset, as commands need it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, anyhow};
use tierfeed_core::{
    fleet,
    order::Spec,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{Dataset, Index, index::Differences};
use tierfeed_runtime::{
    dataset::{self, DatasetError},
    manager,
    rpc::JobText,
    run_dir::{RunDir, begun::Begun},
};
use tierfeed_workload_analyzer::{
    Job,
    demand::{Demand, Sizes},
    job::{At, described::DescribedSizes},
};

use crate::{environment, failure::Failure, output};

/// A node that says nothing for this long counts as lost.
const LOST_AFTER: Nanoseconds = Nanoseconds(10_000_000_000);

/// A job, its index and what follows from both.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) job: Job,
    pub(crate) file: PathBuf,
    text: String,
    begun: PathBuf,
    pub(crate) index: Index,
    pub(crate) order: Spec,
}

/// A job with what its dataset is like, whether that is here or only described.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) job: Job,
    samples: Samples,
    pub(crate) sums: Sizes,
    pub(crate) order: Spec,
    pub(crate) demand: Demand,
}

#[derive(Debug)]
enum Samples {
    Indexed(Box<Index>),
    Described(DescribedSizes),
}

impl Known {
    /// The size of every sample: 8 B of memory each.
    pub(crate) fn sizes(&self) -> Arc<[Bytes]> {
        match &self.samples {
            Samples::Indexed(index) => index.sizes().collect(),
            Samples::Described(sizes) => sizes.iter().collect(),
        }
    }
}

/// Reads a job file, and its dataset as far as it is needed to analyse and to plan.
pub(crate) fn know(file: &Path) -> Result<Known, Failure> {
    let job = Job::load(file).map_err(Failure::input)?;
    let (samples, sums) = if let Some(described) = &job.described {
        let sizes = described.sizes(job.seed);
        (Samples::Described(sizes), Sizes::described(described, job.seed))
    } else {
        let index = Box::new(index(&job, file, None)?);
        let sums = Sizes::from(&*index);
        (Samples::Indexed(index), sums)
    };
    let order = job.order(sums.samples()).map_err(Failure::input)?;
    let demand = Demand::of(&job, &sums).map_err(Failure::input)?;
    Ok(Known { job, samples, sums, order, demand })
}

/// Reads a job file and indexes its dataset, or opens the index that is kept if it is still right. A job
/// that has begun in this run directory goes on with its index, whatever became of the dataset.
pub(crate) fn load(file: &Path, run_dir: &RunDir) -> Result<Indexed, Failure> {
    let job = Job::load(file).map_err(Failure::input)?;
    job.require_dataset().map_err(Failure::input)?;
    let text = fs::read_to_string(file)
        .with_context(|| file.display().to_string())
        .map_err(Failure::Input)?;
    let index = match begun(&job, &text, run_dir) {
        Some(index) => index,
        None => index(&job, file, Some(&run_dir.index()))?,
    };
    let order = job.order(index.len()).map_err(Failure::input)?;
    Ok(Indexed { job, file: file.to_owned(), text, begun: run_dir.begun(), index, order })
}

/// The index of a job that has begun in this run directory.
fn begun(job: &Job, text: &str, run_dir: &RunDir) -> Option<Index> {
    let note = run_dir.begun();
    let expected = Begun::index_of(&note, text)?;
    let path = job.index.clone().unwrap_or_else(|| run_dir.index());
    let index = dataset::reopen(&job.dataset, &path, expected);
    let Some(index) = index else {
        let path = path.display();
        tracing::warn!(%path, "the job began with another index, which is not there any more");
        return None;
    };
    tell(&index.differences(), &job.dataset, &note);
    Some(index)
}

/// Says how the dataset of a job that goes on has changed.
fn tell(differences: &Differences, dataset: &Dataset, note: &Path) {
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
        "{} changed since the job began, which goes on with its index; to index it anew, remove {} or \
         choose another --run-dir",
        dataset.source,
        note.display()
    );
}

/// The index of the job's dataset: that which the job names, else from those that are kept from run to run,
/// for a run in its run directory.
fn index(job: &Job, file: &Path, of_run: Option<&Path>) -> Result<Index, Failure> {
    let bar = output::bar();
    let mut progress = |it| output::show_indexing(&bar, it);
    let (dataset, cache) = (&job.dataset, environment::index_cache());
    let index = match (&job.index, of_run) {
        (Some(path), _) => dataset::open_or_build(dataset, path, &mut progress),
        (None, Some(place)) => cache.index(dataset, place, &mut progress),
        (None, None) => cache.peek(dataset, &mut progress).map_err(DatasetError::from),
    };
    bar.finish_and_clear();
    index.map_err(|error| placed(file, error))
}

/// What is wrong with a dataset, with the place in the job file if other input would help.
fn placed(file: &Path, error: DatasetError) -> Failure {
    if !error.is_input() {
        return Failure::work(error);
    }
    let At { file, line, source } = At::in_file(file, &["dataset", "source"], error);
    Failure::Input(anyhow!("{}:{line}: dataset.source: {source}", file.display()))
}

impl Indexed {
    /// What a manager of this job is started with.
    pub(crate) fn manager(&self) -> Result<manager::Settings, Failure> {
        let file = std::path::absolute(&self.file).map_err(Failure::input)?;
        Ok(manager::Settings {
            job: JobText {
                name: self.job.name.clone(),
                text: self.text.clone(),
                file,
                index_fingerprint: self.index.fingerprint(),
            },
            fleet: fleet::Settings {
                order: self.order,
                policy: self.job.policy,
                staged_batches: self.job.prefetch_batches,
                lost_after: LOST_AFTER,
            },
            begun: self.begun.clone(),
        })
    }
}
