//! Arguments of the commands that run a training or a command beside an agent.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are printed in terminals, without Markdown"
)]

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use tierfeed_core::units::Nanoseconds;
use tierfeed_runtime::rpc::client::Address;

use super::node::Observe;

#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "options are named for users")]
pub(crate) struct Run {
    /// The job file.
    pub(crate) job: PathBuf,
    /// How often the command is started [default: once if it is a launcher such as torchrun or mpirun, else
    /// once for each rank].
    #[arg(long)]
    pub(crate) launch: Option<Launch>,
    /// Where sockets and the report go; in a job of several nodes the directory where they meet, with one for
    /// each of them in it [default: .tierfeed/runs/JOB-TIME, or JOB and what the launcher calls the job].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: NodePlace,
    #[command(flatten)]
    pub(crate) observe: Observe,
    /// Prints the report as JSON; what the command prints goes to standard error then.
    #[arg(long)]
    pub(crate) json: bool,
    /// Lets what does not fit in main memory go to memory behind CXL instead of to swap [default
    /// policy: auto, main memory first].
    #[arg(long, value_name = "POLICY", num_args = 0..=1, default_missing_value = "auto", require_equals = true)]
    pub(crate) expand_memory: Option<ExpandMemory>,
    /// How long the training may take to end after SIGINT or SIGTERM, before it is killed [default: as long
    /// as it likes: who sends a signal has a limit].
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<Nanoseconds>,
    /// Runs manager and agent for the process that starts this one and starts the command.
    #[arg(long, hide = true)]
    pub(crate) supervised: bool,
    /// Ends with one line; of `embed`.
    #[arg(skip)]
    pub(crate) brief: bool,
    /// The training and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl Run {
    /// How long to wait for the process that is ready first.
    pub(crate) const fn wait(&self) -> Duration {
        Duration::from_nanos(self.place.wait.0)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Embed {
    /// Ends with one line, as a notebook needs it.
    #[arg(long)]
    pub(crate) brief: bool,
    /// The directory in which the run has one of its own, named after the job.
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// The how manieth loader of the caller with the same job this is for.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) loader: u32,
    /// The run directory of an agent of the caller that has died: this one takes its place.
    #[arg(long, value_name = "DIR")]
    pub(crate) again: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: NodePlace,
    #[command(flatten)]
    pub(crate) observe: Observe,
}

/// Which node of a job of several this is, and where they meet.
#[derive(Debug, Args)]
pub(crate) struct NodePlace {
    /// The number of this node [default: $TIERFEED_NODE, else as the launcher says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// The number of nodes [default: $TIERFEED_NODES, else as the launcher says].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) nodes: Option<u32>,
    /// Where node 0 listens and the others find it, as HOST:PORT; needed where they do not share the run
    /// directory, with the same token on all nodes.
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Option<Address>,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else a new one, in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long a process waits for node 0, or for the agent of its node, which may have to index the dataset
    /// first.
    #[arg(long, value_name = "TIME", default_value = "10 min")]
    pub(crate) wait: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Launch {
    /// Once; it starts its ranks itself, as torchrun does.
    Once,
    /// Once for each local rank, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and so on set.
    PerRank,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The run directory of the agent of this node [default: the newest live one below .tierfeed].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// How long to wait until the agent is ready.
    #[arg(long, value_name = "TIME", default_value = "60 s")]
    pub(crate) wait: Nanoseconds,
    /// Lets what does not fit in main memory go to memory behind CXL instead of to swap [default
    /// policy: auto, main memory first].
    #[arg(long, value_name = "POLICY", num_args = 0..=1, default_missing_value = "auto", require_equals = true)]
    pub(crate) expand_memory: Option<ExpandMemory>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// How memory is spread over main memory and memory behind CXL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExpandMemory {
    /// The default, which is preferred-many.
    Auto,
    /// Main memory as long as there is room, then memory behind CXL.
    PreferredMany,
    /// Both in turn, by the weights of the kernel: for programs that need more bandwidth than main
    /// memory has.
    Weighted,
}
