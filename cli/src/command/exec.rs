//! `tierfeed exec`: becomes the command, with the variables that lead to the agent of this node.

use std::{os::unix::process::CommandExt, process::Command};

use anyhow::anyhow;

use super::run::trainer_variables;
use crate::{arguments::Exec, environment, failure::Failure};

pub(crate) fn run(arguments: &Exec) -> Result<(), Failure> {
    let run_dir = environment::running_run_dir(arguments.run_dir.as_deref())?;
    let variables = trainer_variables(&run_dir).map_err(Failure::Input)?;
    let (program, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| Failure::Input(anyhow!("no command; write it after --")))?;
    let error = Command::new(program).args(rest).envs(variables).exec();
    Err(Failure::Input(anyhow::Error::new(error).context(format!("cannot start {program}"))))
}
