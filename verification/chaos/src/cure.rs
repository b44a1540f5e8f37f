//! How the faults of a chaos run end, and what is healed then.

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
    calls::Failing,
    cast::Cast,
    group::Group,
    panics::{Drill, State},
    part::Part,
    scene::{Scene, Source},
    silence::Silence,
};

/// A second agent is turned away within this time, however busy the machine is.
const REFUSAL_MAX: Duration = Duration::from_secs(30);

/// A trainer answers within this time after all other faults were healed.
const FORK_MAX: Duration = Duration::from_secs(30);

/// A place at which a thread shall panic is passed within this time, if at all.
const PANIC_MAX: Duration = Duration::from_secs(10);

/// How a fault ends.
#[derive(Debug)]
pub(crate) enum Cure {
    /// By itself.
    None,
    Continue(Part),
    Remove(PathBuf),
    /// A directory that was put aside comes back.
    Return {
        from: PathBuf,
        to: PathBuf,
    },
    Restore(Vec<Displaced>),
    /// The control group of the agent has too little memory.
    Relax,
    /// The store has made trouble of this number.
    Pacify(u64),
    TakeBack(#[expect(dead_code, reason = "held for its drop")] Box<MemoryClient>),
    End(Child),
    /// Closes the silent connections.
    Speak(#[expect(dead_code, reason = "held for its drop")] Silence),
    /// A part was told to panic.
    Panic {
        part: Part,
        drill: Drill,
    },
    /// System calls of a part fail.
    Work(Failing),
    /// It must have been turned away.
    Refused(Child),
    /// A trainer was told to start a process that keeps its socket, and is killed when it did.
    Orphan {
        /// The file that tells it so.
        fork: PathBuf,
        /// Where the number of that process will be.
        number: PathBuf,
        rank: u32,
        /// When the next trainer begins.
        after: Duration,
    },
}

/// What came of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Inflicted,
    /// Whoever was to take part in it did not.
    Nothing,
}

/// An object that is elsewhere while a fault has its place.
#[derive(Debug)]
pub(crate) struct Displaced {
    pub(crate) object: PathBuf,
    pub(crate) aside: PathBuf,
}

impl Cure {
    /// Whether the fault can end, `late` after its time.
    pub(crate) fn is_ready(&mut self, late: Duration) -> bool {
        match self {
            Self::Refused(child) => late > REFUSAL_MAX || !matches!(child.try_wait(), Ok(None)),
            Self::Orphan { fork, number, .. } => {
                // Who took the order is about to obey it, unless it was killed.
                let is_taken = !fork.exists();
                number.exists() || late > if is_taken { 2 * FORK_MAX } else { FORK_MAX }
            }
            Self::Panic { drill, .. } => late > PANIC_MAX || drill.state() != State::Awaited,
            _ => true,
        }
    }

    /// Ends a fault.
    pub(crate) fn apply(self, cast: &mut Cast, scene: &Scene) -> anyhow::Result<Effect> {
        match self {
            Self::None | Self::TakeBack(_) | Self::Speak(_) => (),
            // A part that was killed meanwhile and started again is not stopped; the signal is harmless.
            Self::Continue(part) => drop(cast.signal(part, Signal::SIGCONT)?),
            Self::Remove(path) => fs::remove_file(path)?,
            Self::Return { from, to } => bring_back(&from, &to)?,
            Self::Restore(displaced) => displaced.iter().try_for_each(restore)?,
            Self::Relax => scene.group.as_ref().map_or(Ok(()), Group::relax)?,
            Self::Pacify(number) => match &scene.source {
                Source::Bucket(store) => store.end(number)?,
                Source::Files => (),
            },
            Self::End(child) => drop(end(child)?),
            Self::Panic { part, drill } => match drill.state() {
                State::Panicked => (),
                State::Lost => return Ok(Effect::Nothing),
                State::Awaited => {
                    // A drill that stayed armed would panic later, in a calm.
                    cast.kill(part, Duration::ZERO)?;
                    return Ok(Effect::Nothing);
                }
            },
            Self::Work(failing) => {
                let failed = failing.end()?;
                if failed.is_empty() {
                    return Ok(Effect::Nothing);
                }
                for (call, count) in failed {
                    *cast.failed_calls.entry(call).or_default() += count;
                }
            }
            Self::Refused(mut child) => match child.try_wait()? {
                Some(status) if status.code() == Some(2) => (),
                Some(status) => bail!("a second agent was not turned away: {status}"),
                None => {
                    end(child)?;
                    bail!("a second agent was let in")
                }
            },
            Self::Orphan { fork, number, rank, after } => {
                // It is there if no trainer took it.
                drop(fs::remove_file(fork));
                let Ok(text) = fs::read_to_string(&number) else { return Ok(Effect::Nothing) };
                fs::remove_file(number)?;
                cast.adopt(Pid::from_raw(text.trim().parse()?));
                cast.kill(Part::Trainer(rank), after)?;
            }
        }
        Ok(Effect::Inflicted)
    }

    /// Whether a second agent is about to be turned away, which must find the first.
    pub(crate) const fn needs_agent(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the agent may end by itself as long as the fault lasts.
    pub(crate) const fn excuses_agent(&self) -> bool {
        matches!(self, Self::Return { .. } | Self::Remove(_))
    }
}

fn end(mut child: Child) -> io::Result<ExitStatus> {
    // An error means that it ended before.
    let _ = child.kill();
    child.wait()
}

fn bring_back(from: &Path, to: &Path) -> anyhow::Result<()> {
    // An agent that came meanwhile made another; it has it open, and chunks have no names.
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
    // Lets go whoever waits in the pipe; there is nobody to let go in an error.
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NONBLOCK.bits();
    drop(options.write(true).custom_flags(flags).open(object));
    Ok(fs::rename(aside, object)?)
}
