//! The programs that an experiment starts.

use std::{env, path::PathBuf};

use anyhow::{Context, anyhow};

use crate::failure::Failure;

#[derive(Debug, Clone, Default)]
pub struct Programs {
    pub tierfeed: PathBuf,
    /// This program: its hidden commands are trainers and clients.
    pub own: PathBuf,
}

impl Programs {
    /// This program, and the `tierfeed` binary beside it.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] if `tierfeed` was not built.
    pub fn find() -> Result<Self, Failure> {
        Ok(Self { tierfeed: beside("tierfeed")?, own: own()? })
    }
}

/// The program `name` beside this one.
///
/// # Errors
///
/// [`Failure::Input`] if it was not built.
pub fn beside(name: &str) -> Result<PathBuf, Failure> {
    let path = own()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Input(anyhow!(
        "{}: there is no such file; build it with `make build-benchmarks`",
        path.display()
    )))
}

/// The S3 server that was named, or the one that is built beside this program.
///
/// # Errors
///
/// [`Failure::Work`] if this program is not found.
pub fn s3_server(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    named.map_or_else(|| Ok(own()?.with_file_name("examples").join("s3_server")), Ok)
}

fn own() -> Result<PathBuf, Failure> {
    env::current_exe().context("cannot find this program").map_err(Failure::Work)
}
