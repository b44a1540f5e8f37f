//! The `tierfeed` command: reads arguments and environment, calls the crate that does the work, prints.
//!
//! Exit codes: 0 done, 1 the work failed, 2 the input was wrong. With `--json` one document goes to
//! standard output, and no other output there; logs and progress always go to standard error.

#![forbid(unsafe_code)]

mod arguments;
mod command;
mod deadline;
mod embedder;
mod ending;
mod environment;
mod failure;
mod jobs;
mod launcher;
mod left_behind;
mod nodes_report;
mod observed;
mod output;
mod panics;
mod processes;
mod program;
mod signals;
mod supervisor;
mod trainers;
mod words;

use std::process::ExitCode;

use clap::Parser;
use nix::sys::signal::Signal;

use crate::{
    arguments::{Arguments, Command, Tiers},
    failure::Failure,
};

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
        | Command::Read(_)
        | Command::TransformWorker
        | Command::Objects(_) => &signals::OF_TRAINING,
        _ => &[],
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Tiers(Tiers::Probe(it)) => command::tiers::probe(&it),
        Command::Tiers(Tiers::Show(it)) => command::tiers::show(&it),
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
        Command::Read(it) => command::read::run(it),
        Command::TransformWorker => command::transform_worker::run(),
        Command::Objects(it) => command::objects::run(it),
        Command::Hog(it) => command::hog::run(&it),
        Command::Doctor(it) => command::doctor::run(&it),
        Command::Completions(it) => command::manual::completions(&it),
        Command::Man(it) => command::manual::pages(&it),
    }
}
