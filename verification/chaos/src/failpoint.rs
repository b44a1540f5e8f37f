//! Threads that panic: a process is restarted with a failpoint, a place in its code at which a thread panics
//! after some passes.
//!
//! Only builds with debug assertions have failpoints (`numa_memory::failpoint`).

use std::{
    cell::Cell,
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitStatus},
    rc::Rc,
};

use nix::sys::signal::Signal;

use crate::role::Role;

const VARIABLE: &str = "TIERFEED_DRILL";

const EXIT_CODE: i32 = 101;

/// Failpoints that threads of an agent pass while it serves, and the least passes before the panic. Where objects
/// come from a bucket, no thread reads files, and `read` is `request`.
const OF_AGENT: [(&str, u64); 6] =
    [("loop", 40), ("handoff", 5), ("link", 1), ("read", 5), ("main-memory", 3), ("cxl-memory", 1)];

/// As [`OF_AGENT`], for a manager.
const OF_MANAGER: [(&str, u64); 2] = [("manager", 3), ("accept", 0)];

/// A failpoint is passed at most 1 + this many times its least number of passes.
const PASSES_FACTOR: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Armed,
    Panicked,
    /// Another fault ended it before.
    Preempted,
}

#[derive(Debug, Clone)]
pub(crate) struct Failpoint {
    place: &'static str,
    passes: u64,
    state: Rc<Cell<State>>,
}

impl Failpoint {
    pub(crate) fn select(role: Role, has_bucket: bool, target: u64) -> Self {
        let places = if role == Role::Manager { &OF_MANAGER[..] } else { &OF_AGENT };
        let count = places.len() as u64;
        let at = usize::try_from(target % count).unwrap_or_default();
        let (place, least) = match places[at] {
            ("read", least) if has_bucket => ("request", least),
            other => other,
        };
        let passes = least + target / count % (least * PASSES_FACTOR).max(1);
        Self { place, passes, state: Rc::new(Cell::new(State::Armed)) }
    }

    /// Arms it for a process that is about to start, without backtraces: looking up symbols takes longer than
    /// a process that panicked has before it ends itself.
    pub(crate) fn arm(&self, command: &mut Command) {
        let value = format!("{}:{}", self.place, self.passes);
        command.env(VARIABLE, value).env("RUST_BACKTRACE", "0");
    }

    pub(crate) fn place(&self) -> &'static str {
        self.place
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// Records that the process ended by itself, and returns whether the panic ended it. On a busy machine a
    /// process that panicked and is not gone in time kills itself.
    pub(crate) fn note_exit(&self, status: ExitStatus) -> bool {
        let is_killed = status.signal() == Some(Signal::SIGKILL as i32);
        let is_panic = is_killed || status.code() == Some(EXIT_CODE);
        self.state.set(if is_panic { State::Panicked } else { State::Preempted });
        is_panic
    }

    pub(crate) fn note_kill(&self) {
        if self.state() == State::Armed {
            self.state.set(State::Preempted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_failpoint_is_selected_within_its_bounds_of_passes() {
        for (role, has_bucket, places) in [
            (Role::Agent(0), false, &OF_AGENT[..]),
            (Role::Agent(0), true, &OF_AGENT),
            (Role::Manager, false, &OF_MANAGER),
        ] {
            let failpoints =
                (0..1000).map(|target| Failpoint::select(role, has_bucket, target * 7919));
            let drawn: BTreeSet<_> = failpoints
                .map(|it| {
                    assert!(it.place != if has_bucket { "read" } else { "request" });
                    let listed = if it.place == "request" { "read" } else { it.place };
                    let (_, least) = places.iter().find(|(place, _)| *place == listed).unwrap();
                    assert!((*least..=least * (PASSES_FACTOR + 1)).contains(&it.passes), "{it:?}");
                    it.place
                })
                .collect();
            assert_eq!(drawn.len(), places.len());
        }
    }

    #[test]
    fn only_exits_of_a_panic_count_as_panics() {
        let failpoint = || Failpoint::select(Role::Agent(0), false, 0);
        let (panicked, slow, killed, failed) = (failpoint(), failpoint(), failpoint(), failpoint());
        assert!(panicked.note_exit(ExitStatus::from_raw(EXIT_CODE << 8)));
        panicked.note_kill();
        assert!(slow.note_exit(ExitStatus::from_raw(Signal::SIGKILL as i32)));
        killed.note_kill();
        assert!(!failed.note_exit(ExitStatus::from_raw(1 << 8)));
        let states = [panicked, slow, killed, failed].map(|it| it.state());
        let expected = [State::Panicked, State::Panicked, State::Preempted, State::Preempted];
        assert_eq!(states, expected);
    }
}
