//! The end of each fault, and what is restored then.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{fcntl::OFlag, sys::signal::Signal, unistd::Pid};
use tierfeed_handoff::MemoryClient;

use crate::{
    failpoint::{Failpoint, State},
    memory_cgroup::MemoryCgroup,
    role::Role,
    silent_connections::SilentConnections,
    supervisor::Supervisor,
    syscall_faults::SyscallFaults,
    testbed::{Source, Testbed},
    workers,
};

/// A second agent is refused within this time, even on a busy machine.
const REFUSAL_MAX: Duration = Duration::from_secs(30);

/// A trainer starts the process that keeps its socket within this time after all other faults ended.
const FORK_MAX: Duration = Duration::from_secs(30);

/// A thread reaches a failpoint within this time, if it reaches it at all.
const PANIC_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) enum Recovery {
    None,
    Continue(Role),
    ContinueWorkers(Vec<Pid>),
    /// A file that filled a disk is removed.
    Remove(PathBuf),
    MoveBack {
        from: PathBuf,
        to: PathBuf,
    },
    Restore(Vec<Displaced>),
    /// The control group of the agent gets its memory limit back.
    RestoreLimit,
    EndStoreFault(u64),
    ReturnLoan(#[expect(dead_code, reason = "held for its drop")] Box<MemoryClient>),
    Kill(Child),
    Close(#[expect(dead_code, reason = "held for its drop")] SilentConnections),
    /// A process was started with a failpoint, and panicked by now.
    Panic {
        role: Role,
        failpoint: Failpoint,
    },
    Join(Vec<(u32, u32)>),
    RestoreRate(u32),
    EndSyscallFaults(SyscallFaults),
    /// A second agent, which must have been refused.
    ExpectRefusal(Child),
    /// A trainer was told to start a process that keeps its socket, and is killed afterwards.
    Orphan {
        /// The file that tells the trainer to start it.
        fork: PathBuf,
        number: PathBuf,
        rank: u32,
        restart_after: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Injected,
    /// The process that it needed did not do its part, as when another fault ended it.
    None,
}

/// An object that is moved aside as long as a fault replaces it.
#[derive(Debug)]
pub(crate) struct Displaced {
    pub(crate) object: PathBuf,
    pub(crate) aside: PathBuf,
}

impl Recovery {
    /// Whether the fault can end; `late` is the time since the end of its duration.
    pub(crate) fn is_ready(&mut self, late: Duration) -> bool {
        match self {
            Self::ExpectRefusal(child) => {
                late > REFUSAL_MAX || !matches!(child.try_wait(), Ok(None))
            }
            Self::Orphan { fork, number, .. } => {
                // A trainer that took the file is about to start the process, unless it was killed.
                let is_taken = !fork.exists();
                number.exists() || late > if is_taken { 2 * FORK_MAX } else { FORK_MAX }
            }
            Self::Panic { failpoint, .. } => late > PANIC_MAX || failpoint.state() != State::Armed,
            _ => true,
        }
    }

    /// Ends the fault, and returns whether it took place.
    pub(crate) fn apply(
        self,
        supervisor: &mut Supervisor,
        testbed: &Testbed,
    ) -> anyhow::Result<Effect> {
        match self {
            Self::None | Self::ReturnLoan(_) | Self::Close(_) => (),
            // A process that was restarted meanwhile is not stopped; the signal is harmless.
            Self::Continue(role) => drop(supervisor.signal(role, Signal::SIGCONT)?),
            // Those that ended meanwhile get no signal.
            Self::ContinueWorkers(workers) => drop(workers::signal(&workers, Signal::SIGCONT)),
            Self::Remove(path) => fs::remove_file(path)?,
            Self::MoveBack { from, to } => move_back(&from, &to)?,
            Self::Restore(displaced) => displaced.iter().try_for_each(restore)?,
            Self::RestoreLimit => {
                testbed.cgroup.as_ref().map_or(Ok(()), MemoryCgroup::restore_limit)?;
            }
            Self::EndStoreFault(number) => match &testbed.source {
                Source::Bucket(store) => store.end(number)?,
                Source::Files => (),
            },
            Self::Kill(child) => drop(kill(child)?),
            Self::Join(pairs) => {
                testbed.network.as_ref().map_or(Ok(()), |network| network.join(&pairs))?;
            }
            Self::RestoreRate(host) => {
                testbed.network.as_ref().map_or(Ok(()), |network| network.restore_rate(host))?;
            }
            Self::Panic { role, failpoint } => match failpoint.state() {
                State::Panicked => (),
                State::Preempted => return Ok(Effect::None),
                State::Armed => {
                    // A failpoint that stayed armed would fire later, while no fault is active.
                    supervisor.kill(role, Duration::ZERO)?;
                    return Ok(Effect::None);
                }
            },
            Self::EndSyscallFaults(faults) => {
                let failed = faults.end()?;
                if failed.is_empty() {
                    return Ok(Effect::None);
                }
                for (call, count) in failed {
                    *supervisor.failed_calls.entry(call).or_default() += count;
                }
            }
            Self::ExpectRefusal(mut child) => match child.try_wait()? {
                Some(status) if status.code() == Some(2) => (),
                Some(status) => bail!("a second agent was not refused: {status}"),
                None => {
                    kill(child)?;
                    bail!("a second agent was accepted")
                }
            },
            Self::Orphan { fork, number, rank, restart_after } => {
                // The file is still there if no trainer took it.
                drop(fs::remove_file(fork));
                let Ok(text) = fs::read_to_string(&number) else { return Ok(Effect::None) };
                fs::remove_file(number)?;
                supervisor.track_orphan(Pid::from_raw(text.trim().parse()?));
                supervisor.kill(Role::Trainer(rank), restart_after)?;
            }
        }
        Ok(Effect::Injected)
    }

    /// Whether a second agent runs, which is refused only while the first one runs.
    pub(crate) const fn needs_agent(&self) -> bool {
        matches!(self, Self::ExpectRefusal(_))
    }

    /// Whether the agent may end by itself as long as the fault lasts.
    pub(crate) const fn lets_agent_fail(&self) -> bool {
        matches!(self, Self::MoveBack { .. } | Self::Remove(_))
    }
}

fn kill(mut child: Child) -> io::Result<ExitStatus> {
    // An error means that it ended before.
    let _ = child.kill();
    child.wait()
}

fn move_back(from: &Path, to: &Path) -> anyhow::Result<()> {
    // An agent that started meanwhile made a new directory. It has that open, and its chunks have no names.
    match fs::remove_dir(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{}: left behind", to.display()));
        }
        _ => (),
    }
    Ok(fs::rename(from, to)?)
}

fn restore(displaced: &Displaced) -> anyhow::Result<()> {
    let Displaced { object, aside } = displaced;
    // Opening the pipe for writing releases its readers; it fails if there are none.
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NONBLOCK.bits();
    drop(options.write(true).custom_flags(flags).open(object));
    Ok(fs::rename(aside, object)?)
}
