//! `tierfeed-bench chaos`: a live training of two ranks to which everything happens that can happen.
//!
//! Manager, agent and trainers are processes of their own. A seed draws faults, several at a time: kills,
//! stops, a full tier, a tier that is gone, memory that is taken, short or lent, objects that vanish, are
//! cut or hang, a store that refuses, a second agent, a process that keeps the socket of a dead trainer,
//! a client that means harm, threads that panic, system calls that fail, connections that say nothing.
//! Trainers compare every sample with the checksum of the file as it was made, and write down what they
//! used; at the end that is compared with the order. After every ten faults the trainers are left alone
//! with a hostile client and silent connections, and must not wait longer for it. In the second part the agent lives, so that its
//! growth can be seen; in the third nothing happens, so that the growth of everybody can.
//!
//! The draws follow from the seed alone, so a seed that failed can be played again. When each fault finds
//! the processes is up to the machine.

#![forbid(unsafe_code)]

mod arguments;
mod books;
mod calls;
mod campaign;
mod cast;
mod clock;
mod cold;
mod cure;
mod fault;
mod footprint;
mod group;
mod hostile;
mod idle;
mod inflict;
mod panics;
mod part;
mod play;
mod record;
mod scene;
mod settings;
mod siege;
mod silence;
mod store;
mod trainer;
mod verdict;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::anyhow;
use clap::Parser;
use tierfeed_harness::{
    environment,
    failure::{self, Failure},
    output,
    programs::{self, Programs},
};

use crate::arguments::{
    Arguments, ChaosArguments, Command, HostileArguments, IdleArguments, Source, TrainerArguments,
};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    output::log_to_stderr();
    failure::exit_code(match arguments.command {
        None => run_campaign(arguments.campaign),
        Some(Command::Idle(it)) => watch_idle(&it),
        Some(Command::Trainer(it)) => train(it),
        Some(Command::Hostile(it)) => attack(it),
    })
}

fn run_campaign(arguments: ChaosArguments) -> Result<(), Failure> {
    let ChaosArguments { minutes, seed, pressure, source, server, output } = arguments;
    let server = match source {
        Source::Files => None,
        Source::Bucket => Some(programs::s3_server(server)?),
    };
    let settings = settings::Settings {
        programs: Programs::find()?,
        folder: output.folder(),
        time: Duration::from_secs(60 * minutes),
        seed: seed.unwrap_or_else(environment::seed),
        pressure,
        server,
    };
    let outcome = campaign::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, campaign::table)?;
    match outcome.violations.len() {
        0 => Ok(()),
        count => {
            let seed = outcome.seed;
            Err(Failure::Work(anyhow!("{count} violations; play them again with --seed {seed}")))
        }
    }
}

fn watch_idle(arguments: &IdleArguments) -> Result<(), Failure> {
    let IdleArguments { time, output } = arguments;
    let settings = idle::Settings {
        programs: Programs::find()?,
        folder: output.folder(),
        time: Duration::from_nanos(time.0),
    };
    let outcome = idle::run(&settings).map_err(Failure::Work)?;
    output.print(&outcome, idle::table)?;
    if outcome.agent_share <= outcome.share_max {
        return Ok(());
    }
    Err(Failure::Work(anyhow!("an idle agent uses {:.2} % of a core", 100.0 * outcome.agent_share)))
}

fn train(arguments: TrainerArguments) -> Result<(), Failure> {
    let TrainerArguments { sums, record, stop, fork, orphan, step } = arguments;
    let path = |name| environment::required(name).map(PathBuf::from);
    let settings = trainer::Settings {
        rank: environment::rank()?,
        socket: path(environment::SOCKET)?,
        job: path(environment::JOB)?,
        index: path(environment::INDEX)?,
        sums,
        record,
        stop,
        fork,
        orphan,
        step: Duration::from_nanos(step.0),
    };
    trainer::train(&settings).map_err(Failure::Work)
}

fn attack(arguments: HostileArguments) -> Result<(), Failure> {
    let HostileArguments { socket, manager, rank, time, seed } = arguments;
    let time = Duration::from_nanos(time.0);
    output::json(&hostile::attack(&hostile::Settings { socket, manager, rank, time, seed }))
}
