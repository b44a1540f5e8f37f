//! A checked job file: the dataset, its order, and the resources that tierfeed may use.
//!
//! Every error names file, line, key and value, and says what would be right. A job that loads has
//! typed units, no unset fields and, from [`Job::load`], absolute paths only.

mod check;
mod columns;
pub mod described;
mod elements;
mod error;
mod file;
mod located_error;
mod node_path;
pub mod trainer;
mod world;

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use tierfeed_core::{
    budget::Request,
    fleet::depth::STAGED_BATCHES,
    id::NumaNode,
    order::{self, FurtherDatasets, Position, Shuffle, Spec, SpecError, World},
    retention::{
        in_place::{self, Verify},
        policy,
    },
    session::{LookAhead, OnError, assignment::Assignment},
    tier::{self, Speed},
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::Dataset;
use tierfeed_transform::Pipeline;

use crate::yaml::{self, YamlError};

pub use columns::ColumnsError;
pub use described::Described;
pub use error::{JobError, KeyConflict, Reason};
pub use located_error::LocatedError;
pub use trainer::Trainer;

pub const FILE_BYTES_MAX: Bytes = Bytes::mib(1);

/// The most batches that a job file lets an agent stage ahead of a rank.
pub(crate) const PREFETCH_BATCHES_MAX: u32 = 1_024;

const BATCH_SIZE_MAX: u32 = 1 << 20;
const EPOCHS_MAX: u32 = 1_000_000;

/// The default of `world` if no launcher says otherwise.
const ONE_RANK: World = World { nodes: 1, ranks_per_node: 1 };

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The name of the run directory: letters, digits, `-`, `_` and `.`, at most 64.
    pub name: String,
    pub dataset: Dataset,
    /// In the order of their names.
    pub further: Vec<FurtherDataset>,
    pub cold: ColdStore,
    /// The path of the index; `None` for the default of the caller.
    pub index: Option<PathBuf>,
    /// The description of a dataset that does not exist yet, which can be analysed but not read.
    pub described: Option<Described>,
    pub shuffle: Shuffle,
    /// The seed of the permutation. The default is 0, or 9176 for `mosaic`.
    pub seed: u64,
    pub epochs: u32,
    /// The `drop_last` of the sampler. The default is false.
    pub drop_last: bool,
    /// The default is the first sample.
    pub start: Position,
    /// Samples per rank and step.
    pub batch_size: u32,
    /// The default is what the launcher started, else one node with one rank.
    pub world: World,
    /// The time that the trainer computes on one batch; `None` to observe it.
    pub step_time: Option<Nanoseconds>,
    /// The default is `gap`.
    pub policy: policy::Kind,
    /// Adjustments of the policy. The default is what its paper says.
    pub tuning: policy::Tuning,
    /// The unit in which tiers grow and shrink; `None` to choose it for the tiers of each node.
    pub chunk: Option<Bytes>,
    /// The most batches that are staged ahead of each rank, at least 2; `None` for as many as the figures of
    /// the node say.
    pub prefetch_batches: Option<u32>,
    /// The room of the tiers for samples that are fetched ahead of staging. The default is as much as they
    /// are worth.
    pub look_ahead: LookAhead,
    /// The division of reads from the source, and of transforms, over the ranks of a node. The default is
    /// `shared`.
    pub assignment: Assignment,
    /// `None` hands out samples as they are stored.
    pub transform: Option<Transform>,
    /// The default is `auto`.
    pub threads: Threads,
    /// The default is `fail`.
    pub on_error: OnError,
    /// The default is `shared`.
    pub verify: Verify,
    /// The default is `open`.
    pub network: Network,
    /// The tiers to use, fastest kind first, each kind once. The first is main memory: batches are staged
    /// there, and the rest is cache.
    ///
    /// A file without `tiers` requests 20 % of the free main memory, and 20 % of each memory node behind CXL
    /// if there is one.
    pub tiers: Vec<TierRequest>,
    /// The part of the scratch tier for files of the trainer. The default is none.
    pub job_scratch: Option<JobScratch>,
    /// The other work of the trainer, for predictions. In a run only its pause has an effect: it decides the
    /// room for samples to come.
    pub trainer: Trainer,
}

/// A dataset that is read beside the first one, at the end of epochs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FurtherDataset {
    /// The name by which a loader asks for it.
    pub name: String,
    pub dataset: Dataset,
    /// The emulated speed of its storage; `None` for its own.
    pub speed: Option<Speed>,
    /// The path of the index; `None` for the default of the caller.
    pub index: Option<PathBuf>,
    /// The default is `sequential`.
    pub shuffle: Shuffle,
    /// Samples per rank and step. The default is that of the job.
    pub batch_size: u32,
    /// The dataset is read after each epoch whose number, counted from 1, is a multiple of this. The default
    /// is 1.
    pub every: u32,
    /// `None` if samples are handed out as they are stored.
    pub transform: Option<Pipeline>,
}

impl Job {
    /// The pipeline of each dataset, the first one first; `None` if its samples are handed out as they are
    /// stored.
    pub fn pipelines(&self) -> impl Iterator<Item = Option<&Pipeline>> {
        let first = self.transform.as_ref().map(|it| &it.pipeline);
        std::iter::once(first).chain(self.further.iter().map(|it| it.transform.as_ref()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    pub pipeline: Pipeline,
    /// The default is `auto`; `prepared` requires that the pipeline has a prepared form.
    pub cache: CachedForm,
}

/// The form in which tiers keep the samples of a job with a transform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachedForm {
    /// The one that makes an epoch shorter, by measured costs.
    #[default]
    Auto,
    /// As they are stored.
    Stored,
    /// After the last step before the first that draws.
    Prepared,
}

/// The processes of an agent that transform samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// As many as the cores that the agent may use, less one for each rank of the node, and at least one.
    Auto,
    Count(NonZeroU32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdStore {
    /// The emulated speed; `None` for its own.
    pub speed: Option<Speed>,
    /// The scarce resource, bytes or requests per second. The default is bytes.
    pub limited_by: policy::Saves,
    /// Whether free memory caches files. The default is `auto`, and `off` with an emulated speed.
    pub page_cache: PageCache,
    /// The time that reads wait for the store of any dataset of the job. The default is
    /// [`PATIENCE`](tierfeed_core::outage::PATIENCE).
    pub patience: Nanoseconds,
}

/// Whether reads of files leave their pages in free memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageCache {
    /// They do, as long as memory is free.
    #[default]
    Auto,
    Off,
}

impl PageCache {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "dataset.described stands for a dataset that is not here yet, so the job can be analysed and \
     planned only; remove the key once the data is there"
)]
pub struct OnlyDescribed;

/// The network between the nodes of a job. In both, nodes prove to each other that they belong to the job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Others can listen, so that samples are encrypted on their way.
    #[default]
    Open,
    /// Only nodes of the job reach it, so that samples are sent as they are.
    Private,
}

/// A tier that a job wants to use on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRequest {
    pub kind: tier::Kind,
    pub presence: Presence,
    /// A share is one of 1 % to 90 %.
    pub budget: Request,
    /// For [`tier::Kind::CxlMemory`], the NUMA nodes to use; empty for those that were measured. For
    /// [`tier::Kind::Scratch`], the one on which its files lie; empty for the default.
    pub numa_nodes: Vec<NumaNode>,
    /// For [`tier::Kind::Scratch`] and [`tier::Kind::Storage`], the directory; `None` for a RAM disk that the
    /// agent makes.
    pub path: Option<PathBuf>,
    /// For [`tier::Kind::Storage`], the most that may be written there in an epoch, on each node.
    pub writes_per_epoch: Option<Bytes>,
    /// The emulated speed; `None` for its own.
    pub speed: Option<Speed>,
    /// For memory, whether trainers read samples in place. The default is `auto` for
    /// [`tier::Kind::CxlMemory`] and `never` for [`tier::Kind::MainMemory`].
    pub direct: in_place::InPlaceMode,
}

/// What happens on a node that lacks a tier of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The job is refused there.
    Required,
    /// The job has one tier less there.
    IfPresent,
}

/// A directory for intermediate data and checkpoints of a job, on its scratch tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobScratch {
    /// The most bytes that may be written there, which the cache of the tier does not get.
    pub size: Bytes,
    /// The default is removal.
    pub after_run: AfterRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRun {
    Remove,
    /// The files stay, and a later run of a job of the same name finds them.
    Keep,
}

impl Job {
    pub fn require_dataset(&self) -> Result<(), OnlyDescribed> {
        if self.described.is_none() { Ok(()) } else { Err(OnlyDescribed) }
    }

    /// A note on threads that the job names and nothing uses.
    #[must_use]
    pub fn unused_threads(&self) -> Option<&'static str> {
        let is_unused = self.transform.is_none() && self.threads != Threads::Auto;
        is_unused.then_some(
            "threads is without effect in a job without transform; remove it, or name the steps of a \
             transform",
        )
    }

    /// Whether a scratch tier leaves its RAM disk to the agent.
    #[must_use]
    pub fn has_own_ram_disk(&self) -> bool {
        self.tiers.iter().any(|tier| tier.kind == tier::Kind::Scratch && tier.path.is_none())
    }

    /// Batches that are staged ahead of each rank according to the job file.
    #[must_use]
    pub fn staged_batches(&self) -> u32 {
        self.prefetch_batches.unwrap_or(STAGED_BATCHES)
    }

    /// Reads a job file. Relative paths in it start at its own directory.
    pub fn load(path: &Path) -> Result<Self, JobError> {
        Self::load_with(path, ONE_RANK).map(|(job, _)| job)
    }

    /// As [`Self::load`], with the text of the file; what the file leaves out of `world` is that of `default`.
    pub fn load_with(path: &Path, default: World) -> Result<(Self, String), JobError> {
        let text = yaml::text_of(path, FILE_BYTES_MAX, "job file")?;
        let absolute = std::path::absolute(path)
            .map_err(|source| YamlError::Unreadable { file: path.to_owned(), source })?;
        let job = check::job(&text, path, absolute.parent().unwrap_or(path), default)?;
        Ok((job, text))
    }

    /// Reads the text of a job file. Errors name `file_name`, and relative paths start at its directory.
    pub fn parse(text: &str, file_name: &Path) -> Result<Self, JobError> {
        Self::parse_with(text, file_name, ONE_RANK)
    }

    /// As [`Self::parse`]; what the file leaves out of `world` is that of `default`.
    pub fn parse_with(text: &str, file_name: &Path, default: World) -> Result<Self, JobError> {
        check::job(text, file_name, file_name.parent().unwrap_or(Path::new("")), default)
    }

    /// The order in which the ranks of this job read its first dataset of `samples`, as if there were no
    /// other.
    ///
    /// # Errors
    ///
    /// [`SpecError`] if there is no such order: an empty dataset, or one for which the shuffle is not defined
    /// with these keys.
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
            further: FurtherDatasets::NONE,
        };
        spec.validate().map(|()| spec)
    }

    /// The order in which the ranks of this job read all its datasets, with so many `samples` each.
    ///
    /// # Panics
    ///
    /// If there is not one number for each dataset.
    pub fn order_of_all(&self, samples: &[u32]) -> Result<Spec, SpecError> {
        assert_eq!(samples.len(), 1 + self.further.len(), "one number for each dataset");
        let further = |(it, samples): (&FurtherDataset, &u32)| order::FurtherDataset {
            samples: *samples,
            shuffle: it.shuffle,
            batch_size: it.batch_size,
            every: it.every,
        };
        let further: Vec<_> = self.further.iter().zip(&samples[1..]).map(further).collect();
        let further = FurtherDatasets::try_new(&further)?;
        let spec = Spec { further, ..self.order(samples[0])? };
        spec.validate().map(|()| spec)
    }
}

#[cfg(test)]
mod tests;
