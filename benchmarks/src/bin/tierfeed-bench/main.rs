//! The `tierfeed-bench` command: runs one experiment, both sides of it, and prints figures with their ratio.
//!
//! Exit codes: 0 done, 1 the work failed or a promise was missed, 2 the input was wrong, 3 the figures are
//! inconclusive. With `--json` one document goes to standard output; steps go to standard error.

#![forbid(unsafe_code)]

mod arguments;
mod environment;
mod experiment;
mod failure;
mod output;

use std::{io, process::ExitCode};

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = environment::log_filter().unwrap_or_else(|| "info".to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
    match experiment::run(arguments.bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
