//! The signals to a process of tierfeed, and those that it passes on to a command: once for all that start one.
//!
//! A batch system sends a signal to every process of a step, a container only to its first process, and a
//! training may handle any of them: to save a checkpoint, to ask for another turn, to print where it stands.

use std::{
    fs,
    io::{self, IsTerminal},
};

use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal},
    unistd::{Pid, getpgid},
};
use tokio::{
    process::Child,
    signal::unix::{Signal as Stream, SignalKind, signal},
    sync::mpsc,
};

use crate::environment;

pub(crate) const TERMINATION: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

pub(crate) const ENDING: [Signal; 4] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

pub(crate) const PASSED_ON: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// Signals that are meant for a training, and end no process beside it.
pub(crate) const OF_TRAINING: [Signal; 3] = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Signals that were not handled yet; the kernel queues at most one of each.
pub(crate) const WAITING_MAX: usize = 16;

/// The signals to this process, or those that another process reports.
#[derive(Debug)]
pub(crate) struct Signals {
    received: mpsc::Receiver<Signal>,
}

impl Signals {
    /// Catches these signals, which have no other effect on this process any more. One that comes before it
    /// is asked for is queued.
    pub(crate) fn listen(signals: &[Signal]) -> io::Result<Self> {
        let (sender, received) = mpsc::channel(WAITING_MAX);
        for of in signals.iter().filter(|of| !is_ignored(**of)) {
            let stream = signal(SignalKind::from_raw(*of as i32))?;
            tokio::spawn(forward(stream, *of, sender.clone()));
        }
        Ok(Self { received })
    }

    /// Those that another process tells this one.
    pub(crate) const fn told(received: mpsc::Receiver<Signal>) -> Self {
        Self { received }
    }

    pub(crate) async fn next(&mut self) -> Signal {
        match self.received.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next signal that asks a process to end. The others are dropped: they are for a training that is
    /// not there.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }
}

async fn forward(mut stream: Stream, signal: Signal, to: mpsc::Sender<Signal>) {
    while stream.recv().await.is_some() {
        if to.send(signal).await.is_err() {
            return;
        }
    }
}

/// Whether this process was started under `nohup`: what is caught is not ignored by commands any more.
fn is_ignored(signal: Signal) -> bool {
    signal == Signal::SIGHUP && ignored_by(Pid::this()).contains(&signal)
}

/// The signals that a process ignores; none if it is gone.
pub(crate) fn ignored_by(pid: Pid) -> Vec<Signal> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    Signal::iterator().filter(|signal| (mask >> (*signal as i32 - 1)) & 1 == 1).collect()
}

/// `None` once it was waited for.
pub(crate) fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
}

/// From now on these signals wait for ever, also in the processes that this thread and those that it starts
/// start. Must be called before there are other threads.
pub(crate) fn block(signals: &[Signal]) {
    // An error means that there is no such signal.
    let _ = signals.iter().copied().collect::<SigSet>().thread_block();
}

/// Starts a process in which these signals wait from its first instruction on, until it listens to them.
pub(crate) fn blocked<T>(signals: &[Signal], start: impl FnOnce() -> T) -> T {
    let set = signals.iter().copied().collect::<SigSet>();
    let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = start();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    started
}

/// From now on signals for a training have no effect on this process, but the usual one on a command that
/// replaces it. Must be called within a tokio runtime.
pub(crate) fn outlive_those_of_training() -> io::Result<()> {
    for of in OF_TRAINING.into_iter().filter(|of| !is_ignored(*of)) {
        // The handler stays.
        drop(signal(SignalKind::from_raw(of as i32))?);
    }
    Ok(())
}

/// Whether the sender has sent the signal to the commands of this process as well: a terminal sends to all
/// processes in front of it, Slurm to all of a step. A second signal could end a command that is ending well.
pub(crate) fn was_sent_to_all(signal: Signal) -> bool {
    let is_of_terminal = matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGWINCH);
    (is_of_terminal && io::stdin().is_terminal()) || is_task_of_slurm()
}

/// As [`was_sent_to_all`], for one process: a terminal sends to one group.
pub(crate) fn was_sent_to(pid: Pid, signal: Signal) -> bool {
    was_sent_to_all(signal) && (is_task_of_slurm() || getpgid(Some(pid)) == getpgid(None))
}

/// Whether `srun` started this process. In a batch script Slurm signals the shell alone.
fn is_task_of_slurm() -> bool {
    let parent = fs::read_to_string(format!("/proc/{}/comm", Pid::parent())).unwrap_or_default();
    parent.trim() == "slurmstepd" && environment::variable("SLURM_STEP_ID").is_some()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn blocked_in_child() -> u64 {
        let output = Command::new("grep").args(["SigBlk", "/proc/self/status"]).output().unwrap();
        let line = String::from_utf8(output.stdout).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    }

    #[test]
    fn signals_wait_for_a_process_from_its_start_on_and_not_for_the_next_one() {
        let before = blocked_in_child();
        let during = blocked(&PASSED_ON, blocked_in_child);
        for signal in PASSED_ON {
            assert!(during >> (signal as i32 - 1) & 1 == 1, "{signal}");
        }
        assert_eq!(blocked_in_child(), before);
    }
}
