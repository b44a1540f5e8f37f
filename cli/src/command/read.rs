//! `tierfeed read`: reads a bucket for a trainer without an agent, in a process of its own.

use std::{fs::File, io, os::fd::AsFd as _};

use anyhow::Context as _;
use tierfeed_runtime::dataset::reader::{self, Access};

use crate::{arguments::Read, failure::Failure};

pub(crate) fn run(arguments: Read) -> Result<(), Failure> {
    let Read { index, endpoint, region, anonymous } = arguments;
    let access = Access { endpoint, region, is_anonymous: anonymous };
    // Not `Stdout`, which buffers by lines.
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = File::from(output.context("no standard output").map_err(Failure::Work)?);
    reader::read(&index, access, io::stdin(), output).map_err(|error| {
        if error.is_input() { Failure::input(error) } else { Failure::work(error) }
    })
}
