//! The S3 server that is read, as a process of its own.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail};

/// Objects of one size.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) prefix: &'static str,
    pub(super) objects: usize,
    pub(super) bytes: u64,
    /// In flight, of every client.
    pub(super) requests: usize,
}

/// Photographs, and shards.
pub(super) const KINDS: [Kind; 2] = [
    Kind { prefix: "small", objects: 1_500, bytes: 100 << 10, requests: 32 },
    Kind { prefix: "large", objects: 6, bytes: 64 << 20, requests: 4 },
];

impl Kind {
    pub(super) fn total(&self) -> u64 {
        self.objects as u64 * self.bytes
    }

    pub(super) fn key(&self, number: usize) -> String {
        format!("{}/{number:06}", self.prefix)
    }
}

/// The running server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) endpoint: String,
}

impl Server {
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        if !program.exists() {
            bail!(
                "{} is not there; build it with `cargo build -p tierfeed-object-stores \
                 --features test-server --example s3_server`, or name it by --server",
                program.display()
            );
        }
        let mut command = Command::new(program);
        for Kind { prefix, objects, bytes, .. } in &KINDS {
            command.arg(prefix).arg(objects.to_string()).arg(bytes.to_string());
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("{}", program.display()))?;
        let output = child.stdout.take().context("the server has no output")?;
        let mut endpoint = String::new();
        BufReader::new(output).read_line(&mut endpoint)?;
        let endpoint = endpoint.trim().to_owned();
        let server = Self { child, endpoint };
        if server.endpoint.is_empty() {
            bail!("the server did not start");
        }
        Ok(server)
    }

    pub(super) fn url(&self, kind: &Kind, number: usize) -> String {
        format!("{}/bucket/{}", self.endpoint, kind.key(number))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its input, unless it is broken or ended already.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
