//! The command that runs beside a hog: it gets the signals, and its exit code is passed on.

use std::io::{self, IsTerminal};

use anyhow::{Context, anyhow};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal as Stream, SignalKind, signal},
    sync::mpsc,
};

use crate::failure::code_of;

/// Signals that end a hog, or that are forwarded to the command beside it.
const STOPPING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that are only forwarded to the command.
const FOR_THE_COMMAND: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// Signals that were not handled yet; the kernel queues at most one of each.
const WAITING_MAX: usize = 8;

/// The signals to this process.
#[derive(Debug)]
pub(super) struct Signals {
    received: mpsc::Receiver<Signal>,
}

/// The running command.
#[derive(Debug)]
pub(super) struct SideCommand {
    child: Child,
}

impl Signals {
    /// Catches the signals, which do not end this process any more.
    pub(super) fn new(runs_command: bool) -> io::Result<Self> {
        let (sender, received) = mpsc::channel(WAITING_MAX);
        let others = if runs_command { &FOR_THE_COMMAND[..] } else { &[] };
        for of in STOPPING.iter().chain(others) {
            let stream = signal(SignalKind::from_raw(*of as i32))?;
            tokio::spawn(forward(stream, *of, sender.clone()));
        }
        Ok(Self { received })
    }

    pub(super) async fn next(&mut self) -> Signal {
        match self.received.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}

/// Forwards a signal to the channel; ends with the runtime.
async fn forward(mut stream: Stream, signal: Signal, to: mpsc::Sender<Signal>) {
    while stream.recv().await.is_some() {
        if to.send(signal).await.is_err() {
            return;
        }
    }
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
        if was_sent_by_terminal(signal) {
            return;
        }
        if let Err(error) = kill(Pid::from_raw(pid), signal) {
            tracing::debug!(%error, "the command could not be signalled");
        }
    }
}

/// Whether a terminal has already sent the signal to its foreground processes, the command included.
fn was_sent_by_terminal(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && io::stdin().is_terminal()
}
