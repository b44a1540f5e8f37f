//! Injects faults into a live training, and checks that no byte, sample or order is wrong.
//! `tierfeed-bench chaos` starts it.
//!
//! Manager, agent and trainers are processes of their own. A seed draws faults, several of which are active at a
//! time ([`fault`]). Trainers compare every sample with the checksum of the file as it was made, and record what
//! they used; at the end the records are compared with the order. A [`campaign`] has three phases: all faults;
//! those that the agent survives, which shows how its process grows; and none, which shows how all processes
//! grow. After every round of ten faults the trainers run beside a hostile client and silent connections alone,
//! which must not delay them. With several nodes each is a host of its own, and one fault is injected alone
//! then: it is measured how long the training takes to be at the full rate again.
//!
//! The draws follow from the seed alone, so a seed that failed can be repeated. At which moment a fault meets
//! the processes depends on the machine.

#![forbid(unsafe_code)]

mod arguments;
mod bucket;
mod campaign;
mod checks;
mod failpoint;
mod fault;
mod folder;
mod footprint;
mod hostile_client;
mod idle;
mod interference;
mod metrics;
mod network;
mod outcome;
mod pace;
mod record;
mod role;
mod samples;
mod silent_connections;
mod supervisor;
mod syscall_faults;
mod testbed;
mod trainer;
mod workers;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;
use tierfeed_harness::{
    environment,
    failure::{self, Failure},
    output,
    programs::{self, Programs},
};

use crate::arguments::{
    Arguments, ChaosArguments, Command, IdleArguments, Source, TrainerArguments,
};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    output::log_to_stderr();
    failure::exit_code(match arguments.command {
        None => run_campaign(&arguments.campaign),
        Some(Command::Idle(it)) => watch_idle(&it),
        Some(Command::Trainer(it)) => train(&it),
        Some(Command::Hostile(it)) => output::json(&hostile_client::attack(&it)),
    })
}

fn run_campaign(arguments: &ChaosArguments) -> Result<(), Failure> {
    if arguments.nodes > 1 && arguments.source == Source::Bucket {
        let what = "--nodes above 1 with --source bucket: the server answers on one node only";
        return Err(Failure::Input(anyhow!("{what}; leave one of them out")));
    }
    let server = match arguments.source {
        Source::Files => None,
        Source::Bucket => Some(programs::s3_server(arguments.server.clone())?),
    };
    let seed = arguments.seed.unwrap_or_else(environment::seed);
    let outcome = campaign::run(arguments, seed, server, &Programs::find()?);
    let outcome = outcome.map_err(Failure::Work)?;
    arguments.output.print(&outcome, outcome::text)?;
    match outcome.violations.len() {
        0 => Ok(()),
        count => Err(Failure::Work(anyhow!("{count} violations; repeat them with --seed {seed}"))),
    }
}

fn watch_idle(arguments: &IdleArguments) -> Result<(), Failure> {
    let outcome = idle::run(arguments, &Programs::find()?).map_err(Failure::Work)?;
    arguments.output.print(&outcome, idle::text)?;
    if outcome.agent_share <= outcome.share_max {
        return Ok(());
    }
    Err(Failure::Work(anyhow!("an idle agent uses {:.2} % of a core", 100.0 * outcome.agent_share)))
}

fn train(arguments: &TrainerArguments) -> Result<(), Failure> {
    let rank = environment::rank()?;
    let socket = environment::required(environment::SOCKET)?;
    let index = environment::required(environment::INDEX)?;
    trainer::train(arguments, rank, socket.into(), index.as_ref()).map_err(Failure::Work)
}
