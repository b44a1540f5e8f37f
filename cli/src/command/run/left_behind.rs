//! Processes that trainers have left behind: their parents ended before them, as in a training behind a shell
//! script.
//!
//! The kernel gives them to this process as its children.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use nix::{
    sys::{
        prctl::set_child_subreaper,
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::{
    signal::unix::{Signal as Stream, SignalKind, signal},
    time::Instant,
};

use super::process_tree::{children_of, name_of, tree_of};
use crate::{
    deadline,
    signals::{ignored_by, was_sent_to},
};

/// How long trainers may take to end after one of them has failed, and what they leave behind if it is not waited for.
pub(crate) const GRACE: Duration = Duration::from_secs(20);

/// How long a process may take to end after the kernel was told to end it, as in a read of a lost store.
pub(crate) const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// How long they are waited for before it is said.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// The children of this process that it did not start.
#[derive(Debug)]
pub(crate) struct LeftBehind {
    /// Children that others wait for.
    own: BTreeSet<Pid>,
    told: BTreeSet<(Pid, Signal)>,
    /// The signals that each process ignored before the trainers got one.
    ignored: BTreeMap<Pid, Vec<Signal>>,
    /// The time at which each is killed that ignored the signal.
    kill_at: BTreeMap<Pid, Instant>,
    say_at: Option<Instant>,
    is_said: bool,
    look_at: Option<Instant>,
    children: Stream,
}

impl LeftBehind {
    /// From now on this process gets them; `own` is one that it started. Must be called within a tokio runtime.
    pub(crate) fn adopt(own: Option<Pid>) -> io::Result<Self> {
        let children = signal(SignalKind::child())?;
        set_child_subreaper(true)?;
        Ok(Self {
            own: own.into_iter().collect(),
            told: BTreeSet::new(),
            ignored: BTreeMap::new(),
            kill_at: BTreeMap::new(),
            say_at: None,
            is_said: false,
            look_at: None,
            children,
        })
    }

    pub(crate) fn leave_out(&mut self, own: Pid) {
        self.own.insert(own);
    }

    /// Waits until a child has ended, or came and ended, or they must be looked at again.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            Some(()) = self.children.recv() => {}
            () = deadline::reached(self.look_at) => {}
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

    /// Notes which signals are ignored, before trainers get one: while one saves, it may ignore any.
    pub(crate) fn note_ignored(&mut self) {
        self.ignored = tree_of(Pid::this()).into_iter().map(|pid| (pid, ignored_by(pid))).collect();
    }

    /// A process that was not waited for keeps its number, so no other one is hit.
    pub(crate) fn send(&mut self, pid: Pid, signal: Signal) {
        self.told.insert((pid, signal));
        if let Err(error) = kill(pid, signal) {
            tracing::debug!(pid = pid.as_raw(), %error, "a process could not be signalled");
        }
    }

    fn tell(&mut self, pid: Pid, signal: Signal) {
        if !self.told.contains(&(pid, signal)) {
            tracing::info!(pid = pid.as_raw(), %signal, "a trainer left a process behind");
            self.send(pid, signal);
        }
    }

    /// Sends `signal` once to each that lives; returns whether there is any.
    pub(crate) fn tell_all(&mut self, signal: Signal) -> bool {
        let alive = self.look();
        alive.iter().for_each(|pid| self.tell(*pid, signal));
        !alive.is_empty()
    }

    /// Sends `signal` once to each that lives, as the trainers have ended after it. A process that ignored
    /// it, as a shell lets those ignore SIGINT that it starts beside a training, is ended. Returns whether
    /// any must be waited for.
    pub(crate) fn end_after(&mut self, signal: Signal) -> bool {
        let alive = self.look();
        let (ignoring, told): (Vec<_>, Vec<_>) =
            alive.into_iter().partition(|pid| self.has_ignored(*pid, signal));
        for pid in &told {
            if !was_sent_to(*pid, signal) {
                self.tell(*pid, signal);
            }
        }
        let is_ending = self.end(&ignoring);
        if told.is_empty() && !ignoring.is_empty() && !is_ending {
            tracing::warn!("what was killed does not end; it is left alone");
        }
        is_ending || !told.is_empty()
    }

    fn has_ignored(&self, pid: Pid, signal: Signal) -> bool {
        let noted = self.ignored.get(&pid);
        noted.map_or_else(|| ignored_by(pid).contains(&signal), |it| it.contains(&signal))
    }

    /// Ends these; `false` once there is none that the kernel can end.
    fn end(&mut self, unwanted: &[Pid]) -> bool {
        let (now, mut is_ending) = (Instant::now(), false);
        for pid in unwanted {
            let kill_at = *self.kill_at.entry(*pid).or_insert(now + GRACE);
            let left_at = kill_at + KILLED_WITHIN;
            self.tell(*pid, if now < kill_at { Signal::SIGTERM } else { Signal::SIGKILL });
            if now < left_at {
                self.look_again(if now < kill_at { kill_at } else { left_at });
                is_ending = true;
            }
        }
        is_ending
    }

    /// Those that live. Logs which they are once they are waited for.
    fn look(&mut self) -> Vec<Pid> {
        let (alive, now) = (self.alive(), Instant::now());
        self.look_at = None;
        let say_at = *self.say_at.get_or_insert(now + SAID_AFTER);
        if now < say_at {
            self.look_again(say_at);
        } else if !self.is_said && !alive.is_empty() {
            self.is_said = true;
            let named = alive.iter().map(|pid| format!("{} ({pid})", name_of(*pid)));
            let named = named.collect::<Vec<_>>().join(", ");
            tracing::info!("waits for {named}, left behind by trainers; a second SIGINT kills all");
        }
        alive
    }

    fn look_again(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        process::{Command, Stdio},
    };

    use super::*;

    #[tokio::test]
    async fn a_process_that_ignores_a_signal_only_once_it_got_one_has_not_ignored_it() {
        let script = "trap '' INT; echo; read _; trap '' TERM; echo; read _";
        let mut child = Command::new("sh");
        child.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        said.next().unwrap().unwrap();
        let mut left_behind = LeftBehind::adopt(None).unwrap();
        left_behind.note_ignored();
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        said.next().unwrap().unwrap();
        assert!(left_behind.has_ignored(pid, Signal::SIGINT));
        assert!(!left_behind.has_ignored(pid, Signal::SIGTERM));
        left_behind.ignored.clear();
        assert!(left_behind.has_ignored(pid, Signal::SIGTERM), "one that came later");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
