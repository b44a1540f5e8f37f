//! What to train on, in which order, and what tierfeed may use for it: a job file, checked.
//!
//! Every error names file, line, key and value, and says what would be right. A job that loads has
//! typed units, no unset fields and, from [`Job::load`], absolute paths only.

mod at;
mod check;
pub mod described;
pub(crate) mod error;
pub mod keys;
pub(crate) mod location;
mod post;
pub mod trainer;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use tierfeed_core::{
    id::NumaNode,
    order::{Position, Shuffle, Spec, SpecError, World},
    retention::{in_place, policy},
    session::assignment::Assignment,
    tier::{self, Speed},
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::Dataset;

pub use at::At;
pub use described::Described;
pub use error::{JobError, Misfit, Reason};
pub use trainer::Trainer;

/// A larger text is not a job file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A job, ready to be planned and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Names the run directory: letters, digits, `-`, `_` and `.`, at most 64.
    pub name: String,
    /// Where the samples are and how they are stored.
    pub dataset: Dataset,
    /// How fast the dataset can be read.
    pub cold: ColdStore,
    /// Where the index is kept, or `None` where the caller's default is fine.
    pub index: Option<PathBuf>,
    /// What the dataset is like, if it is not there yet: then it can be analysed and not read.
    pub described: Option<Described>,
    /// How an epoch is permuted.
    pub shuffle: Shuffle,
    /// The seed of the permutation; unless given 0, or 9176 for `mosaic`.
    pub seed: u64,
    /// Passes over the dataset.
    pub epochs: u32,
    /// The sampler's `drop_last`; false unless given.
    pub drop_last: bool,
    /// Where the job begins to read; at the first sample unless given.
    pub start: Position,
    /// Samples per rank and step.
    pub batch_size: u32,
    /// One node with one rank unless given.
    pub world: World,
    /// How long the trainer computes on one batch, or `None` if that is to be observed.
    pub step_time: Option<Nanoseconds>,
    /// `gap` unless given.
    pub policy: policy::Kind,
    /// The unit in which tiers grow and shrink, or `None` if it is to fit the tiers of each node.
    pub chunk: Option<Bytes>,
    /// Batches that are staged ahead of each rank; 4 unless given, at least 2.
    pub prefetch_batches: u32,
    /// How reads from the source are divided over the ranks of a node; `shared` unless given, and never
    /// `lobster`.
    pub assignment: Assignment,
    /// `fail` unless given.
    pub on_error: OnError,
    /// `shared` unless given.
    pub verify: Verify,
    /// The tiers to use, fastest kind first, each kind once. The first is main memory: batches are
    /// staged there, and what staging leaves is cache.
    ///
    /// A file without `tiers` asks for 20 % of the free main memory and for nothing else.
    pub tiers: Vec<TierRequest>,
    /// The part of the scratch tier that is for the trainer's own files; none unless given.
    pub job_scratch: Option<JobScratch>,
    /// What the trainer does besides reading; of no effect on a run.
    pub trainer: Trainer,
}

/// The storage that holds the dataset of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdStore {
    /// The speed that it shall appear to have, or `None` for its own.
    pub speed: Option<Speed>,
    /// What it has too few of; bytes unless given.
    pub limited_by: policy::Saves,
}

/// A job whose dataset is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "dataset.described stands for a dataset that is not here yet, so the job can be analysed and \
     planned only; remove the key once the data is there"
)]
pub struct OnlyDescribed;

/// What happens when a sample cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The trainer gets an error that names the sample.
    Fail,
    /// The batch comes without the sample, and the report counts it.
    Skip,
}

impl OnError {
    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// Which copies between tiers are compared with the checksum of what the cold store delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Those from places that others can write: staging and directories.
    Shared,
    /// All of them.
    Always,
}

impl Verify {
    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Always => "always",
        }
    }
}

/// A tier that a job wants to use on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRequest {
    /// What it is.
    pub kind: tier::Kind,
    /// How much of it may be used.
    pub budget: Budget,
    /// For [`tier::Kind::CxlMemory`], the NUMA nodes to use; empty for those that were measured.
    pub numa_nodes: Vec<NumaNode>,
    /// For [`tier::Kind::Scratch`] and [`tier::Kind::Storage`], the directory.
    pub path: Option<PathBuf>,
    /// For [`tier::Kind::Storage`], the most that may be written there in an epoch, on each node.
    pub writes_per_epoch: Option<Bytes>,
    /// The speed that the tier shall appear to have, or `None` for its own.
    pub speed: Option<Speed>,
    /// For memory, whether trainers read samples where they lie; unless given `auto` for
    /// [`tier::Kind::CxlMemory`] and `never` for [`tier::Kind::MainMemory`].
    pub direct: in_place::Wish,
}

/// A directory for intermediate data and checkpoints of a job, on its scratch tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobScratch {
    /// What may be written there; the cache of the tier has so much less.
    pub size: Bytes,
    /// What becomes of it; removed unless given.
    pub after_run: AfterRun,
}

/// What becomes of the job's files when the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRun {
    /// They are deleted.
    Remove,
    /// They stay, and a later run of a job of the same name finds them.
    Keep,
}

/// How much of a tier may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// This much.
    Size(Bytes),
    /// This share of what is free there, 1 % to 90 %; it adapts as others take and give back.
    Reserve(Percent),
}

/// A share in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(pub u8);

impl Percent {
    /// This share of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        let share = u128::from(whole.0) * u128::from(self.0) / 100;
        Bytes(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

impl Job {
    /// Refuses a job whose dataset is described because it is not here.
    ///
    /// # Errors
    ///
    /// [`OnlyDescribed`] if so.
    pub fn require_dataset(&self) -> Result<(), OnlyDescribed> {
        if self.described.is_none() { Ok(()) } else { Err(OnlyDescribed) }
    }

    /// Reads a job file. Relative paths in it start at its own directory.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no YAML, or describes no job.
    pub fn load(path: &Path) -> Result<Self, JobError> {
        Self::load_with_text(path).map(|(job, _)| job)
    }

    /// As [`Self::load`], with the text of the file, so that it need not be read again.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn load_with_text(path: &Path) -> Result<(Self, String), JobError> {
        let unreadable = |source| JobError::Unreadable { file: path.to_owned(), source };
        let mut text = String::new();
        // Bounded by what is read, not by the length: a pipe or a device has none.
        let mut file = File::open(path).map_err(unreadable)?.take(FILE_BYTES_MAX + 1);
        file.read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(JobError::TooLarge { file: path.to_owned() });
        }
        let absolute = std::path::absolute(path).map_err(unreadable)?;
        let job = check::job(&text, path, absolute.parent().unwrap_or(path))?;
        Ok((job, text))
    }

    /// Reads the text of a job file. `file_name` stands in errors, and relative paths start at its
    /// directory.
    ///
    /// # Errors
    ///
    /// If the text is no YAML or describes no job.
    pub fn parse(text: &str, file_name: &Path) -> Result<Self, JobError> {
        check::job(text, file_name, file_name.parent().unwrap_or(Path::new("")))
    }

    /// The order in which the ranks of this job read a dataset of `samples`.
    ///
    /// # Errors
    ///
    /// If there is no such order, as [`SpecError`] tells: an empty dataset, or one that the shuffle is not
    /// known for with these keys.
    pub fn order(&self, samples: u32) -> Result<Spec, SpecError> {
        let spec = Spec {
            samples,
            shuffle: self.shuffle,
            seed: self.seed,
            epochs: self.epochs,
            drop_last: self.drop_last,
            batch_size: self.batch_size,
            world: self.world,
            start: self.start,
        };
        spec.validate().map(|()| spec)
    }
}

#[cfg(test)]
mod tests;
