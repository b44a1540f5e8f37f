//! The CPU time of processes, in user and kernel mode.

use std::time::Duration;

use anyhow::Context as _;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};

/// The CPU time so far: of this process, or of its children that ended and were waited for.
pub(crate) fn cpu_time(who: UsageWho) -> anyhow::Result<Duration> {
    let usage = getrusage(who).context("getrusage")?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(micros).context("a negative CPU time")?))
}
