//! The settings of a campaign.

use std::{path::PathBuf, time::Duration};

use tierfeed_core::units::Bytes;
use tierfeed_harness::programs::Programs;

use crate::{role::World, samples::Samples};

/// Programs, place, length and faults of a campaign.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The programs that it starts.
    pub(crate) programs: Programs,
    /// Where files are made, and removed afterwards.
    pub(crate) folder: PathBuf,
    /// For how long faults are injected.
    pub(crate) time: Duration,
    /// The seed of the faults.
    pub(crate) seed: u64,
    /// Nodes and ranks of the job.
    pub(crate) world: World,
    /// How much memory is taken at a time, and the memory limit of the agent's control group.
    pub(crate) pressure: Bytes,
    /// The S3 server that the dataset is read from, or `None` to read files.
    pub(crate) server: Option<PathBuf>,
    /// What the samples are.
    pub(crate) samples: Samples,
}
