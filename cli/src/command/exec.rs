//! `tierfeed exec`: replaces itself by the command, with the variables by which it finds the agent of this
//! node.
//!
//! Job scripts start agents and trainers at the same time, so it waits for the agent first.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use clap::Args;
use tierfeed_core::{fleet::launch::Identity, units::Nanoseconds};
use tierfeed_workload_analyzer::Job;

use super::{
    expansion::{self, ExpandMemory},
    program,
    run::trainer_variables,
};
use crate::{environment, failure::Failure, signals};

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

const POLL_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &Exec) -> Result<(), Failure> {
    program::require(&arguments.command)?;
    let identity = environment::identity(&environment::launch_variables())?;
    let runtime = super::runtime()?;
    let inside = runtime.enter();
    signals::outlive_those_of_training()?;
    let variables = wait_for_agent(arguments, &identity)?;
    drop(inside);
    if let Some(wish) = arguments.expand_memory {
        let file = variables.iter().find(|(name, _)| *name == environment::JOB);
        let file = file.map_or("", |(_, path)| path.as_str());
        let job = Job::load(Path::new(file)).map_err(Failure::input)?;
        expansion::plan(wish, &job)?.apply().map_err(Failure::input)?.keep();
    }
    let mut command = program::command(&arguments.command)?;
    let error = command.envs(variables).env_remove(environment::TOKEN).exec();
    let failed = format!("cannot start {}", arguments.command[0]);
    Err(Failure::Input(anyhow::Error::new(error).context(failed)))
}

fn wait_for_agent(
    arguments: &Exec,
    identity: &Identity,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut looks = arguments.wait.0 / 1_000_000 / u64::from(POLL_EVERY.subsec_millis());
    loop {
        let found = environment::trainer_run_dir(arguments.run_dir.as_deref(), identity)
            .and_then(|run_dir| trainer_variables::of_agent(&run_dir).map_err(Failure::Input));
        match found {
            Err(_) if looks > 0 => looks -= 1,
            found => return found,
        }
        thread::park_timeout(POLL_EVERY);
    }
}
