//! `tierfeed read`: reads and transforms samples for a trainer without an agent, in a process of its own.

use std::{
    fs::File,
    io::{self, BufReader},
    os::fd::AsFd as _,
};

use anyhow::Context as _;
use tierfeed_runtime::dataset::reader;
use tierfeed_transform::worker_process::Program;

use crate::{environment, failure::Failure};

pub(crate) fn run() -> Result<(), Failure> {
    // Not `Stdout`, which buffers by lines.
    let output = io::stdout().as_fd().try_clone_to_owned().context("no standard output")?;
    let worker = Program::tierfeed(environment::exe()?);
    reader::read(BufReader::new(io::stdin()), File::from(output), worker).map_err(|error| {
        if error.is_input() { Failure::input(error) } else { Failure::work(error) }
    })
}
