//! Arguments of the commands that watch a running job.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tierfeed_core::units::Nanoseconds;

use super::node::Reach;

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Prints the status as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Time between two frames.
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    pub(crate) interval: Nanoseconds,
    /// Ends after so many frames [default: when it is stopped, or the job is over].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) frames: Option<u64>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Trace {
    #[command(subcommand)]
    pub(crate) command: Option<TraceCommand>,
    /// The run directory of the agent [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// Where the trace goes [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Puts traces into one, such as one of torch.profiler and one of an agent, on the clock of the first.
    Merge(Merge),
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The traces, as JSON.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Where the merged trace goes [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
