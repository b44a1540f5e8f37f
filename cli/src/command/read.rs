//! `tierfeed read`: reads a bucket for a trainer without an agent, in a process of its own.

use std::{fs::File, io, os::fd::AsFd as _, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use tierfeed_runtime::dataset::reader;

use super::dataset_keys::BucketOptions;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The index of the dataset.
    #[arg(long, value_name = "FILE")]
    pub(crate) index: PathBuf,
    #[command(flatten)]
    pub(crate) bucket: BucketOptions,
}

pub(crate) fn run(arguments: &Read) -> Result<(), Failure> {
    // Not `Stdout`, which buffers by lines.
    let output = io::stdout().as_fd().try_clone_to_owned().context("no standard output")?;
    reader::read(&arguments.index, arguments.bucket.access(), io::stdin(), File::from(output))
        .map_err(
            |error| {
                if error.is_input() { Failure::input(error) } else { Failure::work(error) }
            },
        )
}
