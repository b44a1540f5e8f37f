//! The S3 server that experiments read from, as a process of its own.

use std::{ffi::OsStr, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use crate::talking::Talking;

/// The running server; it ends when this is dropped.
#[derive(Debug)]
pub struct S3Server {
    process: Talking,
    pub endpoint: String,
}

impl S3Server {
    /// Starts `program` with `arguments`, and waits until it listens.
    ///
    /// # Errors
    ///
    /// If the program is not there, does not start, or does not listen.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Self> {
        ensure!(
            program.exists(),
            "{} is not there; build it with `make build-benchmarks`, or name it by --server",
            program.display()
        );
        let mut process = Talking::start(Command::new(program).args(arguments))?;
        let endpoint = process.hear().context("the server did not start")?;
        Ok(Self { process, endpoint })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a command.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn send(&self, line: &str) -> anyhow::Result<()> {
        self.process.tell(line).context("the server is not there any more")
    }
}
