//! Why an agent cannot join, start or write its report.

use tierfeed_core::{fleet::launch::Misfit, order::SpecError};
use tierfeed_prefetcher::plane::StartError;
use tierfeed_resource_gatherer::ReadError;
use tierfeed_workload_analyzer::job::{ColumnsError, JobError, LocatedError};

use super::{ram_disk::RamDiskError, scratch::ScratchError};
use crate::{
    dataset::{DatasetError, image_sizes::ScanError, reader::BucketError},
    layout::LayoutError,
    observe::{metrics::ServeError, report::WriteError},
    rpc::{client::CallError, wire::Remedy},
    run_dir::{RunDirError, trainer_file::TrainerFileError},
    transport::token::TokenError,
};

/// Why an agent cannot start or write its report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The shutdown came before it had joined the job.
    #[error("asked to end before it had joined the job")]
    Ended,
    /// It cannot take part in the job.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Its run directory cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Its threads or tiers cannot be started.
    #[error(transparent)]
    Plane(#[from] StartError),
    /// No process makes rows of samples.
    #[error("transform: {0}")]
    Transforms(#[from] tierfeed_prefetcher::transforms::StartError),
    /// The bucket of the job cannot be read.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// Trainers cannot reach it.
    #[error(transparent)]
    Handoff(#[from] tierfeed_handoff::StartError),
    /// Free memory cannot be watched.
    #[error(transparent)]
    Watch(#[from] ReadError),
    /// Trainers cannot be told how to find it.
    #[error(transparent)]
    TrainerFile(#[from] TrainerFileError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Observe(#[from] ServeError),
    /// The scratch directory of the job cannot be prepared.
    #[error("job_scratch: {0}")]
    Scratch(#[from] ScratchError),
    /// There is no RAM disk for the scratch tier.
    #[error("tiers.scratch: {0}")]
    RamDisk(#[from] RamDiskError),
    /// Its report cannot be written.
    #[error(transparent)]
    Report(#[from] WriteError),
}

impl AgentError {
    /// Whether the input must change; else another attempt may succeed.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Join(error) => error.is_input(),
            Self::Plane(error) => !matches!(error, StartError::Threads { .. }),
            Self::RunDir(_)
            | Self::Bucket(BucketError::Open(_))
            | Self::Observe(_)
            | Self::RamDisk(_)
            | Self::Scratch(_) => true,
            Self::Ended
            | Self::Bucket(_)
            | Self::Handoff(_)
            | Self::Transforms(_)
            | Self::Watch(_)
            | Self::TrainerFile(_)
            | Self::Report(_) => false,
        }
    }
}

/// Why an agent cannot take part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The manager cannot be reached or refuses.
    #[error(transparent)]
    Manager(#[from] CallError),
    /// The launcher does not say which node this is, or contradicts the job.
    #[error(transparent)]
    Launch(#[from] Misfit),
    /// The job file is not valid on this node.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The dataset cannot be indexed, or differs from the manager's.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The samples have no columns as a transform needs them.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    /// The job has no order for this dataset.
    #[error(transparent)]
    Order(#[from] SpecError),
    /// The tiers do not fit on this node.
    #[error(transparent)]
    Layout(#[from] LocatedError<LayoutError>),
    /// Tiers are to hold prepared samples, but their lengths are not known.
    #[error(transparent)]
    Images(#[from] Box<LocatedError<NoPreparedLengths>>),
    /// The system has no random source.
    #[error(transparent)]
    Random(#[from] TokenError),
    /// The manager's order is not the one that follows from the job and the index.
    #[error(
        "the manager's order is not the one of its job with the {samples} samples that are here; manager \
         and agent must have the same version"
    )]
    OtherOrder {
        /// Samples in the index of this node.
        samples: u32,
    },
}

impl JoinError {
    /// Whether the input must change; else another attempt may succeed.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Manager(error) => error.remedy() == Remedy::Reconfigure,
            Self::Dataset(error) => error.is_input(),
            Self::Images(error) => error.source.0.is_input(),
            Self::Random(_) => false,
            _ => true,
        }
    }
}

/// Why tiers cannot hold prepared samples that have lengths of their own.
#[derive(Debug, thiserror::Error)]
#[error(
    "transform.cache: tiers cannot hold prepared samples here, whose lengths they must know: {0}; or use \
     `cache: stored`"
)]
pub struct NoPreparedLengths(#[source] pub ImagesError);

/// Why the sizes of images are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImagesError {
    /// Their bucket cannot be read.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// Their heads cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// There is no image that tiers could hold.
    #[error(
        "none of {looked_at} heads states a size within `limits.pixels`; a compressed sample has no head that could \
         be read"
    )]
    NoSizes {
        /// Images that were looked at.
        looked_at: usize,
    },
    /// A node that reads from others must divide the dataset as they do.
    #[error(
        "the heads of images have other sizes here than on the first node, from which this one would read; remove \
         `.tierfeed/indexes/*.sizes` on all nodes, so that they are read again"
    )]
    OtherSizes,
}

impl ImagesError {
    fn is_input(&self) -> bool {
        matches!(self, Self::Bucket(BucketError::Open(_)) | Self::NoSizes { .. } | Self::OtherSizes)
    }
}
