//! The command that runs beside a hog: it gets the signals, and its exit code is passed on.

use std::io;

use anyhow::{Context, anyhow};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::{Child, Command};

use crate::{failure::code_of, signals::was_sent_to_all};

#[derive(Debug)]
pub(super) struct SideCommand {
    child: Child,
}

impl SideCommand {
    pub(super) fn start(command: &[String], is_quiet: bool) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().ok_or_else(|| anyhow!("no command"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        if is_quiet {
            command.stdout(io::stderr());
        }
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child })
    }

    /// Waits for its end; returns its exit code as of [`code_of`].
    pub(super) async fn ended(&mut self) -> io::Result<u8> {
        self.child.wait().await.map(code_of)
    }

    pub(super) fn pass_on(&self, signal: Signal) {
        let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        if was_sent_to_all(signal) {
            return;
        }
        if let Err(error) = kill(Pid::from_raw(pid), signal) {
            tracing::debug!(%error, "the command could not be signalled");
        }
    }
}
