//! Every command with the help that users read; the options of each stand in the file of its group.

mod dataset;
mod hog;
mod init;
mod node;
mod plan;
mod run;
mod tiers;
mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    dataset::{BucketOptions, DatasetOptions, FormatOptions, Index, Read},
    hog::Hog,
    init::{Init, ProbeTiers},
    node::{Agent, Manager, Metrics, Observe, Reach},
    plan::{Analyze, Cold, MachineReports, Plan, Steps},
    run::{Embed, Exec, ExpandMemory, Launch, NodePlace, Run},
    tiers::{Buckets, Probe, Show, Tiers},
    watch::{Status, Top, Trace, TraceCommand},
};

/// Feeds deep-learning training from tiers of memory and storage.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    /// How logs are written to standard error.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        env = "TIERFEED_LOG_FORMAT"
    )]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON document a line, for programs.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures the memory and storage of this host, or shows what was measured.
    #[command(subcommand)]
    Tiers(Tiers),
    /// Writes a job file for a training script or a dataset, and says which line of the script to change.
    Init(Box<Init>),
    /// Builds the index of a dataset.
    Index(Box<Index>),
    /// Says what a job asks of its node, and whether the tiers can give it.
    Analyze(Analyze),
    /// Shows the schedule of a job, or predicts what it will do.
    Plan(Plan),
    /// Runs a training with everything it needs beside it, and reports at the end.
    Run(Run),
    /// Runs what a training needs beside it, for the process that starts this one: the job comes on standard
    /// input, and its end ends the run.
    #[command(hide = true)]
    Embed(Embed),
    /// Runs the manager of a job alone; agents join it over the network.
    Manager(Manager),
    /// Runs the agent of this node alone.
    Agent(Agent),
    /// Runs a command as a trainer of the agent of this node.
    Exec(Exec),
    /// Says where a running job stands.
    Status(Status),
    /// Shows a running job live: rates by tier, batches ready, waits and their causes, memory.
    Top(Top),
    /// Writes what a running agent did last as a trace for Perfetto, or merges traces.
    Trace(Trace),
    /// Asks all agents of a job to end and to write their reports.
    Drain(Reach),
    /// Answers a question of the Python package, which comes on standard input.
    #[command(hide = true, subcommand)]
    Client(Client),
    /// Answers numbers of samples from standard input with their bytes, for a trainer that reads a bucket
    /// without an agent.
    #[command(hide = true)]
    Read(Read),
    /// Transforms samples for the process that starts this one, whose packets come on standard input.
    #[command(hide = true)]
    TransformWorker,
    /// Answers questions about the objects of buckets, which come on standard input, for the file system of
    /// the Python package.
    #[command(hide = true)]
    Objects(BucketOptions),
    /// Holds memory, as background jobs would.
    Hog(Hog),
    /// Says what of this host tierfeed can use, what not, and how to change that.
    Doctor(Doctor),
    /// Prints what a shell needs to complete commands and options.
    Completions(Completions),
    /// Writes the manual pages.
    Man(Man),
}

/// What the Python package leaves to a process of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Client {
    /// What a trainer must know of a job to read without an agent.
    Briefing,
    /// Builds an index by the keys of a dataset.
    Index,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory that gets a page for each command; without it that of tierfeed itself is printed.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// A dataset, or a file of it: says how it would be read; may be given several times [default: tried in
    /// the directory for storage].
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<PathBuf>,
    /// Ends with code 1 if anything is missing.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Prints the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
