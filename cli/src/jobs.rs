//! A job file with its dataset, as commands need it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use tierfeed_core::{
    fleet,
    order::Spec,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{Dataset, Index, index::Differences};
use tierfeed_runtime::{
    agent::JobAtHand,
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

/// A job file that was read and parsed once.
#[derive(Debug)]
pub(crate) struct JobFile {
    pub(crate) job: Arc<Job>,
    /// As the user typed it.
    path: PathBuf,
    text: String,
}

impl JobFile {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let (job, text) = Job::load_with_text(path).map_err(Failure::input)?;
        Ok(Self { job: Arc::new(job), path: path.to_owned(), text })
    }

    /// An error about `keys` of the file, with their line.
    pub(crate) fn placed<E: std::error::Error>(&self, keys: &[&str], error: E) -> At<E> {
        At::in_text(&self.text, &self.path, keys, error)
    }
}

/// A job, its index and what follows from both.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) job: Arc<Job>,
    text: JobText,
    begun: PathBuf,
    index: Arc<Index>,
    order: Spec,
}

/// A job with what its dataset is like, whether that is here or only described.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) file: JobFile,
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
    pub(crate) fn job(&self) -> &Job {
        &self.file.job
    }

    /// The size of every sample: 8 B of memory each.
    pub(crate) fn sizes(&self) -> Arc<[Bytes]> {
        match &self.samples {
            Samples::Indexed(index) => index.sizes().collect(),
            Samples::Described(sizes) => sizes.iter().collect(),
        }
    }
}

/// Reads a job file, and its dataset as far as it is needed to analyse and to plan.
pub(crate) fn know(path: &Path) -> Result<Known, Failure> {
    let file = JobFile::read(path)?;
    let job = &file.job;
    let (samples, sums) = if let Some(described) = &job.described {
        let sizes = described.sizes(job.seed);
        (Samples::Described(sizes), Sizes::described(described, job.seed))
    } else {
        let index = Box::new(index(&file, None)?);
        let sums = Sizes::from(&*index);
        (Samples::Indexed(index), sums)
    };
    let order = job.order(sums.samples()).map_err(Failure::input)?;
    let demand = Demand::of(job, &sums).map_err(Failure::input)?;
    Ok(Known { file, samples, sums, order, demand })
}

/// Indexes the dataset of a job, or opens the index that is kept if it is still right. A job that has begun
/// in this run directory goes on with its index, whatever became of the dataset.
pub(crate) fn load(file: JobFile, run_dir: &RunDir) -> Result<Indexed, Failure> {
    file.job.require_dataset().map_err(Failure::input)?;
    let index = match begun(&file, run_dir) {
        Some(index) => index,
        None => index(&file, Some(&run_dir.index()))?,
    };
    let JobFile { job, path, text } = file;
    let order = job.order(index.len()).map_err(Failure::input)?;
    let text = JobText {
        name: job.name.clone(),
        text,
        file: std::path::absolute(&path).map_err(Failure::input)?,
        index_fingerprint: index.fingerprint(),
    };
    Ok(Indexed { job, text, begun: run_dir.begun(), index: Arc::new(index), order })
}

/// The index of a job that has begun in this run directory.
fn begun(file: &JobFile, run_dir: &RunDir) -> Option<Index> {
    let (job, note) = (&file.job, run_dir.begun());
    let expected = Begun::index_of(&note, &file.text)?;
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
fn index(file: &JobFile, of_run: Option<&Path>) -> Result<Index, Failure> {
    let job = &file.job;
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
fn placed(file: &JobFile, error: DatasetError) -> Failure {
    if !error.is_input() {
        return Failure::work(error);
    }
    let At { file, line, source } = file.placed(&["dataset", "source"], error);
    Failure::Input(anyhow!("{}:{line}: dataset.source: {source}", file.display()))
}

impl Indexed {
    /// What a manager of this job is started with.
    pub(crate) fn manager(&self) -> manager::Settings {
        manager::Settings {
            job: self.text.clone(),
            fleet: fleet::Settings {
                order: self.order,
                policy: self.job.policy,
                staged_batches: self.job.prefetch_batches,
                lost_after: LOST_AFTER,
            },
            begun: self.begun.clone(),
        }
    }

    /// What an agent in this process needs not to ask its manager for the job.
    pub(crate) fn at_hand(&self) -> JobAtHand {
        let (text, job, index) = (self.text.clone(), self.job.clone(), self.index.clone());
        JobAtHand { text, job, index }
    }
}
