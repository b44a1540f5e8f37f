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
pub struct S3Server {
    child: Child,
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
        if !program.exists() {
            bail!(
                "{} is not there; build it with `make build-benchmarks`, \
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

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a command, a line that ends with a newline.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn send(&self, line: &str) -> anyhow::Result<()> {
        let mut commands =
            self.child.stdin.as_ref().context("the input of the server is a pipe")?;
        commands.write_all(line.as_bytes()).context("the server is not there any more")
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // It ends with its input, unless it is broken or ended already.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
