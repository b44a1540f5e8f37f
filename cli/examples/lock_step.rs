//! A training of all ranks in one process: no rank takes a batch before all have taken the one before.
//!
//! Usage: `lock_step STEP_US`, started by `tierfeed run --launch once`.

use std::{env, path::PathBuf, time::Duration};

use anyhow::Context;
use tierfeed_benchmarks::reader;

#[expect(clippy::disallowed_methods, reason = "the run names its socket there")]
fn main() -> anyhow::Result<()> {
    let step_us = env::args().nth(1).context("STEP_US is missing")?.parse()?;
    let socket = PathBuf::from(env::var("TIERFEED_SOCK").context("TIERFEED_SOCK")?);
    reader::read_all(&socket, Duration::from_micros(step_us))?;
    Ok(())
}
