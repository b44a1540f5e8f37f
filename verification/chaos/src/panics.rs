//! Threads that panic: a part is started again with an order to panic at one place, after some passes.
//!
//! Only builds with debug assertions take the order (`numa_memory::drill`).

use std::{
    cell::Cell,
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitStatus},
    rc::Rc,
};

use nix::sys::signal::Signal;

use crate::part::Part;

/// What tells a process where to panic.
const VARIABLE: &str = "TIERFEED_DRILL";

/// What a process ends with that panicked.
const EXIT_CODE: i32 = 101;

/// Where threads of an agent come by while it serves, and how often at least before the panic.
const OF_AGENT: [(&str, u64); 6] =
    [("loop", 40), ("handoff", 5), ("link", 1), ("read", 5), ("main-memory", 3), ("cxl-memory", 1)];

/// As [`OF_AGENT`], where objects come from a bucket: no thread reads there.
const OF_AGENT_WITH_BUCKET: [(&str, u64); 6] = [
    ("loop", 40),
    ("handoff", 5),
    ("link", 1),
    ("request", 5),
    ("main-memory", 3),
    ("cxl-memory", 1),
];

const OF_MANAGER: [(&str, u64); 2] = [("manager", 3), ("accept", 0)];

/// How many more times than at least a place is passed, at most.
const SPREAD: u64 = 4;

/// What became of a part that was told to panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It lives, or begins.
    Awaited,
    Panicked,
    /// It was killed before.
    Lost,
}

/// An order to panic, and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct Drill {
    place: &'static str,
    passes: u64,
    state: Rc<Cell<State>>,
}

impl Drill {
    pub(crate) fn drawn(part: Part, has_bucket: bool, victim: u64) -> Self {
        let places = match (part, has_bucket) {
            (Part::Manager, _) => &OF_MANAGER[..],
            (_, false) => &OF_AGENT,
            (_, true) => &OF_AGENT_WITH_BUCKET,
        };
        let count = places.len() as u64;
        let at = usize::try_from(victim % count).unwrap_or_default();
        let (place, least) = places[at];
        let passes = least + victim / count % (least * SPREAD).max(1);
        Self { place, passes, state: Rc::new(Cell::new(State::Awaited)) }
    }

    /// Gives the order to a process that is about to begin. Looking for symbols would take longer than a
    /// process has that panicked.
    pub(crate) fn give(&self, command: &mut Command) {
        let order = format!("{}:{}", self.place, self.passes);
        command.env(VARIABLE, order).env("RUST_BACKTRACE", "0");
    }

    pub(crate) fn place(&self) -> &'static str {
        self.place
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// The process ended, and no other fault ended it. Whether that was the panic: on a busy machine a
    /// process that panicked and is not gone in time kills itself.
    pub(crate) fn end(&self, status: ExitStatus) -> bool {
        let is_killed = status.signal() == Some(Signal::SIGKILL as i32);
        let is_panic = is_killed || status.code() == Some(EXIT_CODE);
        self.state.set(if is_panic { State::Panicked } else { State::Lost });
        is_panic
    }

    /// Another fault ended the process.
    pub(crate) fn lose(&self) {
        if self.state() == State::Awaited {
            self.state.set(State::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_place_is_drawn_and_passed_so_often_at_least() {
        for (part, has_bucket, places) in [
            (Part::Agent, false, &OF_AGENT[..]),
            (Part::Agent, true, &OF_AGENT_WITH_BUCKET),
            (Part::Manager, false, &OF_MANAGER),
        ] {
            let drills = (0..1000).map(|victim| Drill::drawn(part, has_bucket, victim * 7919));
            let drawn: BTreeSet<_> = drills
                .map(|it| {
                    let (_, least) = places.iter().find(|(place, _)| *place == it.place).unwrap();
                    assert!((*least..=least * (SPREAD + 1)).contains(&it.passes), "{it:?}");
                    it.place
                })
                .collect();
            assert_eq!(drawn.len(), places.len());
        }
    }

    #[test]
    fn only_the_end_of_a_panic_is_one() {
        let drill = || Drill::drawn(Part::Agent, false, 0);
        let (panicked, slow, killed, failed) = (drill(), drill(), drill(), drill());
        assert!(panicked.end(ExitStatus::from_raw(EXIT_CODE << 8)));
        panicked.lose();
        assert!(slow.end(ExitStatus::from_raw(Signal::SIGKILL as i32)));
        killed.lose();
        assert!(!failed.end(ExitStatus::from_raw(1 << 8)));
        let states = [panicked, slow, killed, failed].map(|it| it.state());
        let expected = [State::Panicked, State::Panicked, State::Lost, State::Lost];
        assert_eq!(states, expected);
    }
}
