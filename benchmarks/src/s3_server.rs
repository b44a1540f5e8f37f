//! The S3 server that experiments read from, as a process of its own.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail};

/// The running server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct S3Server {
    child: Child,
    pub(crate) endpoint: String,
}

impl S3Server {
    /// Starts `program` with what it shall serve, and waits until it listens.
    pub(crate) fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Self> {
        if !program.exists() {
            bail!(
                "{} is not there; build it with `cargo build -p tierfeed --example s3_server`, \
                 or name it by --server",
                program.display()
            );
        }
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().with_context(|| program.display().to_string())?;
        let mut server = Self { child, endpoint: String::new() };
        let output = server.child.stdout.take().context("the server has no output")?;
        BufReader::new(output).read_line(&mut server.endpoint)?;
        server.endpoint.truncate(server.endpoint.trim_end().len());
        if server.endpoint.is_empty() {
            bail!("the server did not start");
        }
        Ok(server)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something, a line at a time.
    pub(crate) fn order(&self, line: &str) -> anyhow::Result<()> {
        let mut orders = self.child.stdin.as_ref().context("the server listens")?;
        orders.write_all(line.as_bytes()).context("the server is not there any more")
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // It ends with its input, unless it is broken or ended already.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
