//! Reads the environment and the calendar. Benches, experiments and fault injection read neither elsewhere.

use std::{
    env,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use tierfeed_core::fleet::launch::Identity;

use crate::failure::Failure;

/// Names the socket of the agent to trainers.
pub const SOCKET: &str = "TIERFEED_SOCK";
/// Names the job file to trainers.
pub const JOB: &str = "TIERFEED_JOB";
/// Names the index of the dataset to trainers.
pub const INDEX: &str = "TIERFEED_INDEX";

#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of a variable that `tierfeed run` sets for its trainers.
///
/// # Errors
///
/// [`Failure::Input`] if it is not set.
pub fn required(name: &str) -> Result<String, Failure> {
    variable(name).ok_or_else(|| Failure::Input(anyhow!("{name} is not set")))
}

/// The rank that the launcher gave this process.
///
/// # Errors
///
/// [`Failure::Input`] if no launcher gave one, or its variables contradict each other.
pub fn rank() -> Result<u32, Failure> {
    let identity = Identity::read(&variable).context("the variables of the launcher");
    let rank = identity.map_err(Failure::Input)?.rank;
    Ok(rank.context("no launcher gives a rank").map_err(Failure::Input)?.value)
}

/// The log filter of the user: `TIERFEED_LOG`.
pub(crate) fn log_filter() -> Option<String> {
    variable("TIERFEED_LOG")
}

/// A seed that differs from run to run, and is short enough to be typed.
pub fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() % 1_000_000
}
