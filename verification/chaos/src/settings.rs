//! What a campaign is told to do.

use std::{path::PathBuf, time::Duration};

use tierfeed_core::units::Bytes;
use tierfeed_harness::programs::Programs;

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What it starts.
    pub(crate) programs: Programs,
    /// Where files are made, and removed afterwards.
    pub(crate) folder: PathBuf,
    /// For how long faults are injected.
    pub(crate) time: Duration,
    /// Of the faults.
    pub(crate) seed: u64,
    /// How much memory is taken at a time, and what the control group of the agent may have.
    pub(crate) pressure: Bytes,
    /// The S3 server that the dataset is read from, or `None` to read files.
    pub(crate) server: Option<PathBuf>,
}
