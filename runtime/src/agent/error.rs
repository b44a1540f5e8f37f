//! The errors that keep an agent from joining, starting or writing its report.

use tierfeed_core::{fleet::launch::LaunchMismatch, order::SpecError};
use tierfeed_prefetcher::plane::StartError;
use tierfeed_resource_gatherer::ReadError;
use tierfeed_workload_analyzer::job::{ColumnsError, JobError, LocatedError};

use super::{ram_disk::RamDiskError, scratch::ScratchError};
use crate::{
    dataset::{DatasetError, image_sizes::ScanError, reader::BucketError},
    layout::LayoutError,
    observe::{metrics::ServeError, report::WriteError},
    rpc::{call::Remedy, client::CallError},
    run_dir::{RunDirError, trainer_file::TrainerFileError},
    transport::token::TokenError,
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    #[error("asked to end before it had joined the job")]
    Ended,
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error(transparent)]
    Plane(#[from] StartError),
    #[error("transform: {0}")]
    Transforms(#[from] tierfeed_prefetcher::transforms::StartError),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Handoff(#[from] tierfeed_handoff::StartError),
    #[error(transparent)]
    Watch(#[from] ReadError),
    #[error(transparent)]
    TrainerFile(#[from] TrainerFileError),
    #[error(transparent)]
    Observe(#[from] ServeError),
    #[error("job_scratch: {0}")]
    Scratch(#[from] ScratchError),
    #[error("tiers.scratch: {0}")]
    RamDisk(#[from] RamDiskError),
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

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    #[error(transparent)]
    Manager(#[from] CallError),
    #[error(transparent)]
    Launch(#[from] LaunchMismatch),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    #[error(transparent)]
    Order(#[from] SpecError),
    #[error(transparent)]
    Layout(#[from] LocatedError<LayoutError>),
    #[error(transparent)]
    Images(#[from] Box<LocatedError<NoPreparedLengths>>),
    #[error(transparent)]
    Random(#[from] TokenError),
    #[error(
        "the manager's order is not the one of its job with the {samples} samples that are here; manager \
         and agent must have the same version"
    )]
    OtherOrder { samples: u32 },
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

#[derive(Debug, thiserror::Error)]
#[error(
    "transform.cache: tiers cannot hold prepared samples here, whose lengths they must know: {0}; or use \
     `cache: stored`"
)]
pub struct NoPreparedLengths(#[source] pub ImagesError);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImagesError {
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error(
        "none of {looked_at} heads states a size within `limits.pixels`; a compressed sample has no head that could \
         be read"
    )]
    NoSizes { looked_at: usize },
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
