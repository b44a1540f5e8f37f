//! Clients that are Python packages, in one process for all turns.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tierfeed_harness::talking::Talking;

use super::{
    client::{Client, Turn},
    server::Kind,
};

const PEERS: &str = include_str!("../../peers/objects.py");

pub(super) struct Python {
    name: String,
    process: Talking,
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
        let mut command = Command::new(python);
        command.arg(&script).args([package, endpoint]).stderr(Stdio::null());
        let mut process = Talking::start(&mut command)?;
        match process.hear()?.split_once(' ') {
            Some(("ready", version)) => Ok(Self { name: format!("{package} {version}"), process }),
            Some(("absent", why)) => bail!("{why}"),
            _ => bail!("it ended when it was started"),
        }
    }
}

impl Client for Python {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_all(&mut self, kind: &'static Kind) -> anyhow::Result<Turn> {
        let (name, Kind { prefix, objects, requests, .. }) = (&self.name, kind);
        self.process.tell(&format!("{prefix} {objects} {requests}"))?;
        let line = self.process.hear()?;
        let answer: Answer =
            serde_json::from_str(&line).with_context(|| format!("{name} failed: {line}"))?;
        let Answer { bytes, wall_s, cpu_s } = answer;
        ensure!(bytes == kind.total(), "{name}: {bytes} B came of {} B", kind.total());
        Ok(Turn { wall_s, cpu_s })
    }
}
