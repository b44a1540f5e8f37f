//! Reads the environment, the calendar, and where programs lie; nothing else of the experiments does.

use std::{
    env,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use tierfeed_core::fleet::launch::Identity;

use crate::failure::Failure;

/// Names the socket of the agent to trainers.
pub(crate) const SOCKET: &str = "TIERFEED_SOCK";
/// Names the job file to trainers.
pub(crate) const JOB: &str = "TIERFEED_JOB";
/// Names the index of the dataset to trainers.
pub(crate) const INDEX: &str = "TIERFEED_INDEX";

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of a variable that `tierfeed run` sets for its trainers.
pub(crate) fn required(name: &str) -> Result<String, Failure> {
    variable(name).ok_or_else(|| Failure::Input(anyhow!("{name} is not set")))
}

/// The rank that the launcher gave this process.
pub(crate) fn rank() -> Result<u32, Failure> {
    let identity = Identity::read(&variable).context("the variables of the launcher");
    let rank = identity.map_err(Failure::Input)?.rank;
    Ok(rank.context("no launcher gives a rank").map_err(Failure::Input)?.value)
}

/// The log filter that the user wants.
pub(crate) fn log_filter() -> Option<String> {
    variable("TIERFEED_LOG")
}

/// A seed that differs from run to run, and is short enough to be typed.
pub(crate) fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() % 1_000_000
}

/// This program.
pub(crate) fn own_binary() -> Result<PathBuf, Failure> {
    env::current_exe().context("cannot find the tierfeed-bench binary").map_err(Failure::Work)
}

/// The `tierfeed` binary beside this program.
pub(crate) fn tierfeed() -> Result<PathBuf, Failure> {
    let path = own_binary()?.with_file_name("tierfeed");
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Input(anyhow!("{}: there is no such file; build tierfeed first", path.display())))
}
