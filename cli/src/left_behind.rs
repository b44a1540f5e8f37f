//! What trainers have left behind: processes whose parents ended before them, as a training behind a shell script.
//!
//! The kernel gives them to this process as its children.

use std::{collections::BTreeSet, fs, io};

use nix::{
    sys::{
        prctl::set_child_subreaper,
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The children of this process that it did not start.
#[derive(Debug)]
pub(crate) struct LeftBehind {
    /// Others wait for them.
    own: BTreeSet<Pid>,
    told: BTreeSet<Pid>,
    children: Stream,
}

impl LeftBehind {
    /// From now on this process gets them; `own` is one that it started. Must be called within a tokio runtime.
    pub(crate) fn adopt(own: Option<Pid>) -> io::Result<Self> {
        let children = signal(SignalKind::child())?;
        set_child_subreaper(true)?;
        Ok(Self { own: own.into_iter().collect(), told: BTreeSet::new(), children })
    }

    /// Leaves out one that this process started.
    pub(crate) fn leave_out(&mut self, own: Pid) {
        self.own.insert(own);
    }

    /// Waits until a child has ended, or came and ended.
    pub(crate) async fn changed(&mut self) {
        if self.children.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Those that live. The others get the wait that every child must have.
    pub(crate) fn alive(&self) -> Vec<Pid> {
        let lives = |pid: &Pid| {
            !self.own.contains(pid)
                && matches!(waitpid(*pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
        };
        children_of(Pid::this()).into_iter().filter(lives).collect()
    }

    /// Says `signal` once to each that lives; whether there is any.
    pub(crate) fn tell(&mut self, signal: Signal) -> bool {
        let alive = self.alive();
        for pid in &alive {
            if self.told.insert(*pid) {
                tracing::info!(pid = pid.as_raw(), %signal, "a trainer left a process behind");
                send(*pid, signal);
            }
        }
        !alive.is_empty()
    }
}

/// A child that was not waited for keeps its number, so no other process is hit.
pub(crate) fn send(pid: Pid, signal: Signal) {
    if let Err(error) = kill(pid, signal) {
        tracing::debug!(pid = pid.as_raw(), %error, "a process could not be signalled");
    }
}

/// A process, and all that it and its children have started.
pub(crate) fn tree_of(root: Pid) -> Vec<Pid> {
    let all = with_parents();
    let (mut found, mut at) = (vec![root], 0);
    while let Some(parent) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let children = with_parents().into_iter().filter(|(_, of)| *of == parent);
    children.map(|(pid, _)| pid).collect()
}

/// All processes, each with its parent.
fn with_parents() -> Vec<(Pid, Pid)> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers.map(Pid::from_raw).filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

/// `None` once it is gone.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}
