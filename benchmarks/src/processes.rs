//! Processes that a bench starts, and their CPU time and memory.

use std::{
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use procfs::process::Process;

/// A process that is killed when this is dropped, if it still runs.
#[derive(Debug)]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // An error means that it ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.spawn();
        child.map(Self).with_context(|| command.get_program().display().to_string())
    }

    /// Bytes of memory that it holds; 0 once it has ended.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = process(self.0.id()).ok().and_then(|it| it.status().ok());
        status.and_then(|it| it.vmrss).unwrap_or(0) * 1024
    }
}

/// The CPU time of all threads of a process.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = process(pid)?.stat()?;
    Ok(Duration::from_millis(1000 * (stat.utime + stat.stime) / procfs::ticks_per_second()))
}

fn process(pid: u32) -> anyhow::Result<Process> {
    Ok(Process::new(pid.try_into()?)?)
}

/// Runs a command to its end, and returns what it said on its standard output.
pub(crate) fn said(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| program.clone())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed ({}): {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
