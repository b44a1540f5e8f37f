//! The `tierfeed` command: reads arguments and environment, calls the crate that does the work, prints.
//!
//! Exit codes: 0 done, 1 the work failed, 2 the input was wrong. With `--json` one document goes to
//! standard output, and no other output there; logs and progress always go to standard error.

#![forbid(unsafe_code)]
#![expect(
    clippy::doc_markdown,
    reason = "comments of options are printed in terminals, without Markdown"
)]

mod command;
mod deadline;
mod environment;
mod failure;
mod jobs;
mod output;
mod panics;
mod signals;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;

use crate::{failure::Failure, output::LogFormat};

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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures the memory and storage of this host, or shows what was measured.
    #[command(subcommand)]
    Tiers(command::tiers::Tiers),
    /// Writes a job file for a training script or a dataset, and says which line of the script to change.
    Init(Box<command::init::Init>),
    /// Builds the index of a dataset.
    Index(Box<command::index::Index>),
    /// Says what a job asks of its node, and whether the tiers can give it.
    Analyze(command::analyze::Analyze),
    /// Shows the schedule of a job, or predicts what it will do.
    Plan(command::plan::Plan),
    /// Runs a training with everything it needs beside it, and reports at the end.
    Run(command::run::Run),
    /// Runs what a training needs beside it, for the process that starts this one: the job comes on standard
    /// input, and its end ends the run.
    #[command(hide = true)]
    Embed(command::embed::Embed),
    /// Runs the manager of a job alone; agents join it over the network.
    Manager(command::manager::Manager),
    /// Runs the agent of this node alone.
    Agent(command::agent::Agent),
    /// Runs a command as a trainer of the agent of this node.
    Exec(command::exec::Exec),
    /// Says where a running job stands.
    Status(command::status::Status),
    /// Shows a running job live: rates by tier, batches ready, waits and their causes, memory.
    Top(command::top::Top),
    /// Writes what a running agent did last as a trace for Perfetto, or merges traces.
    Trace(command::trace::Trace),
    /// Asks all agents of a job to end and to write their reports.
    Drain(command::status::Reach),
    /// Answers a question of the Python package, which comes on standard input.
    #[command(hide = true, subcommand)]
    Client(command::client::Client),
    /// Answers requests from standard input with samples, for a trainer without an agent.
    #[command(hide = true)]
    Read,
    /// Transforms samples for the process that starts this one, whose packets come on standard input.
    #[command(hide = true)]
    TransformWorker,
    /// Answers questions about the objects of buckets, which come on standard input, for the file system of
    /// the Python package.
    #[command(hide = true)]
    Objects(command::dataset_keys::BucketOptions),
    /// Holds memory, as background jobs would.
    Hog(command::hog::Hog),
    /// Says what of this host tierfeed can use, what not, and how to change that.
    Doctor(command::doctor::Doctor),
    /// Prints what a shell needs to complete commands and options.
    Completions(command::manual::Completions),
    /// Writes the manual pages.
    Man(command::manual::Man),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    output::start_logging(arguments.log_format);
    signals::block(blocked(&arguments.command));
    match dispatch(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The signals that a process beside a training does not hear, because a launcher sends them to all processes
/// of a step. The agent's process of `tierfeed run` hears from the one that started it what it shall end for.
fn blocked(command: &Command) -> &'static [Signal] {
    match command {
        Command::Run(run) if run.supervised => &signals::PASSED_ON,
        Command::Embed(_)
        | Command::Manager(_)
        | Command::Agent(_)
        | Command::Client(_)
        | Command::Read
        | Command::TransformWorker
        | Command::Objects(_) => &signals::OF_TRAINING,
        _ => &[],
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Tiers(it) => command::tiers::run(&it),
        Command::Init(it) => command::init::run(&it),
        Command::Index(it) => command::index::run(&it),
        Command::Analyze(it) => command::analyze::run(&it),
        Command::Plan(it) => command::plan::run(&it),
        Command::Run(it) => command::run::run(&it),
        Command::Embed(it) => command::embed::run(it),
        Command::Manager(it) => command::manager::run(&it),
        Command::Agent(it) => command::agent::run(it),
        Command::Exec(it) => command::exec::run(&it),
        Command::Status(it) => command::status::run(&it),
        Command::Top(it) => command::top::run(&it),
        Command::Trace(it) => command::trace::run(&it),
        Command::Drain(it) => command::drain::run(&it),
        Command::Client(it) => command::client::run(&it),
        Command::Read => command::read::run(),
        Command::TransformWorker => command::transform_worker::run(),
        Command::Objects(it) => command::objects::run(&it),
        Command::Hog(it) => command::hog::run(&it),
        Command::Doctor(it) => command::doctor::run(&it),
        Command::Completions(it) => command::manual::completions(&it),
        Command::Man(it) => command::manual::pages(&it),
    }
}
