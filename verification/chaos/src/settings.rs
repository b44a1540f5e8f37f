//! The settings of a campaign.

use std::{path::PathBuf, time::Duration};

use tierfeed_core::units::Bytes;
use tierfeed_harness::programs::Programs;

use crate::{role::World, samples::Samples};

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) programs: Programs,
    pub(crate) folder: PathBuf,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    pub(crate) world: World,
    /// Memory that is taken at a time, and the memory limit of the agent's control group.
    pub(crate) pressure: Bytes,
    /// The S3 server of the dataset, or `None` to read files.
    pub(crate) server: Option<PathBuf>,
    pub(crate) samples: Samples,
}
