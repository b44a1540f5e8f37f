//! The `tierfeed-bench` command: runs one experiment, both sides of it, and prints figures with their ratio.
//!
//! Exit codes: 0 done, 1 the work failed or a promise was missed, 2 the input was wrong, 3 the figures are
//! inconclusive. With `--json` one document goes to standard output; steps go to standard error.

#![forbid(unsafe_code)]

mod arguments;
mod experiment;

use std::process::ExitCode;

use clap::Parser;
use tierfeed_harness::{failure, output};

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    output::log_to_stderr();
    failure::exit_code(experiment::run(arguments.bench))
}
