//! Clients that are Python packages, in one process for all turns.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::{
    client::{Client, Turn},
    server::Kind,
};

const PEERS: &str = include_str!("../../peers/objects.py");

pub(super) struct Python {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    bytes: u64,
    wall_s: f64,
    cpu_s: f64,
}

impl Python {
    /// Starts it, and waits until it says whether it has the package.
    pub(super) fn start(
        python: &Path,
        package: &str,
        endpoint: &str,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let script = folder.join("objects.py");
        fs::write(&script, PEERS)?;
        let mut child = Command::new(python)
            .arg(&script)
            .args([package, endpoint])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{} cannot be started", python.display()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut python = Self { name: package.to_owned(), child, input, output };
        match python.line()?.split_once(' ') {
            Some(("ready", version)) => python.name = format!("{package} {version}"),
            Some(("absent", why)) => bail!("{why}"),
            _ => bail!("it ended when it was started"),
        }
        Ok(python)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Client for Python {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn> {
        let Kind { prefix, objects, requests, .. } = kind;
        let input = self.input.as_mut().context("it ended")?;
        writeln!(input, "{prefix} {objects} {requests}")?;
        let line = self.line()?;
        let answer: Answer =
            serde_json::from_str(&line).with_context(|| format!("{} failed: {line}", self.name))?;
        if answer.bytes != kind.total() {
            bail!("{}: {} B came of {} B", self.name, answer.bytes, kind.total());
        }
        Ok(Turn { wall_s: answer.wall_s, cpu_s: answer.cpu_s })
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // It ends with its input, unless it ended already.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
