//! Arguments of `tierfeed init`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tierfeed_workload_analyzer::job::keys::FORMATS;

use super::dataset::{BucketOptions, FormatOptions};

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// A folder with a training script or a dataset, a script (.py or .ipynb), or a dataset as a path or a
    /// URL.
    #[arg(default_value = ".")]
    pub(crate) place: PathBuf,
    /// The training script [default: the one in the folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// The dataset, as a path or a URL [default: as the script says, else the one in the folder].
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// How samples lie in objects [default: by the names of the files].
    #[arg(long, value_name = "FORMAT", value_parser = FORMATS)]
    pub(crate) format: Option<String>,
    #[command(flatten)]
    pub(crate) bucket: BucketOptions,
    #[command(flatten)]
    pub(crate) keys: FormatOptions,
    /// Samples per rank and step [default: as the script says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) batch_size: Option<u32>,
    /// Training processes on each node, mostly one for each GPU [default: as the script says, else the GPUs
    /// of this host if the script is for several processes].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) ranks: Option<u32>,
    /// Whether the tiers of this host are measured.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) probe: ProbeTiers,
    /// Where the job file goes.
    #[arg(short, long, value_name = "FILE", default_value = "job.yaml")]
    pub(crate) output: PathBuf,
    /// Replaces a job file that is there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Asks nothing and takes the defaults, as without a terminal.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Prints what was found and written as JSON, and asks nothing.
    #[arg(long)]
    pub(crate) json: bool,
}

/// When the tiers are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeTiers {
    /// If there is no report, or the host has changed since.
    Auto,
    /// In any case; within 30 s.
    Always,
    /// Not; the job file then has no figures.
    Never,
}
