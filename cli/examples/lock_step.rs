//! A training of all ranks in one process: no rank takes a batch before all have taken the one before.
//!
//! Usage: `lock_step STEP_US [EVERY PAUSE_US]`, started by `tierfeed run --launch once`. After every EVERY
//! steps it does something else for `PAUSE_US`.

use std::{env, path::PathBuf, time::Duration};

use anyhow::Context;
use tierfeed_benchmarks::reader;

#[expect(clippy::disallowed_methods, reason = "the run names its socket there")]
fn main() -> anyhow::Result<()> {
    let arguments: Vec<u64> = env::args().skip(1).map(|it| it.parse()).collect::<Result<_, _>>()?;
    let step_us = *arguments.first().context("STEP_US is missing")?;
    let (every, pause_us) = match arguments[1..] {
        [every, pause_us] => (every, pause_us),
        _ => (u64::MAX, 0),
    };
    let step = |number: u64| {
        let pause_us = if number.is_multiple_of(every) { pause_us } else { 0 };
        Duration::from_micros(step_us + pause_us)
    };
    let socket = PathBuf::from(env::var("TIERFEED_SOCK").context("TIERFEED_SOCK")?);
    reader::read_all(&[socket], step)?;
    Ok(())
}
