//! Holds memory on purpose, as background jobs of a shared node would.
//!
//! [`goal`] says what shall be held and when, [`decision`] what to do next, [`course`] leads through
//! the schedule, [`holding`] has the memory, [`lookout`] sees what others can still take. This file
//! ties them together; the clock is an argument.
//!
//! A hog makes a node tight, not dead: it takes in steps of 128 MiB and looks between them, leaves a
//! floor in any case, and gives back when others need memory. If the kernel kills all the same, it
//! kills the hog first ([`oom_score`]).

pub mod course;
pub mod decision;
pub mod goal;
pub mod holding;
pub mod lookout;
pub mod oom_score;
pub mod record;
pub mod report;
mod strain;

use tierfeed_core::{
    tier::Locality,
    units::{Bytes, Nanoseconds},
};

pub use self::{
    course::Ending,
    goal::{Goal, Profile, ProfileError, Schedule},
    lookout::LookoutError,
    report::Report,
};
use self::{
    course::{Course, Order},
    decision::{Action, Look, Reason},
    holding::Holding,
    lookout::Lookout,
    record::Record,
};
use crate::sysroot::{ReadError, Sysroot};

/// A hog at work.
#[derive(Debug)]
pub struct Hog {
    locality: Locality,
    holding: Holding,
    lookout: Lookout,
    course: Course,
    last_look: Option<Look>,
}

/// What a hog shall do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it takes memory.
    pub locality: Locality,
    /// What it holds and when.
    pub schedule: Schedule,
    /// How long it may take until it holds the first amount.
    pub wait: Nanoseconds,
}

/// Why a hog cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HogError {
    /// The place cannot be watched.
    #[error(transparent)]
    Lookout(#[from] LookoutError),
    /// No machine of this size can hold so much.
    #[error(
        "cannot hold {wanted}: of {total} at least {floor} stay with others; take at most {most}"
    )]
    TooMuch {
        /// What it was told to hold.
        wanted: Bytes,
        /// What the place has.
        total: Bytes,
        /// What others keep in any case.
        floor: Bytes,
        /// The most that could be asked for.
        most: Bytes,
    },
}

/// When the next step of a hog is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At once: it is on its way to its goal.
    AtOnce,
    /// After a moment: it rests.
    Later,
    /// Never: it is over.
    Over(Ending),
}

/// All that is not locked is touched once in so many steps in which a hog rests: with ten a second
/// every 30 s, half of what the kernel's proactive reclaim (DAMON) usually waits for.
const TOUCH_ROUND: u64 = 300;

/// The least that is touched at once.
const TOUCH_MIN: Bytes = Bytes::mib(2);

impl Hog {
    /// A hog that holds nothing yet.
    ///
    /// # Errors
    ///
    /// [`HogError::TooMuch`] if a step of the schedule cannot be held whatever others do; the node is
    /// not there, or the kernel does not say how much memory is free.
    pub fn new(settings: Settings) -> Result<Self, HogError> {
        Self::within(Sysroot::live(), settings)
    }

    /// As [`Self::new`], on a machine with as much memory as the tree below `sysroot` says.
    fn within(sysroot: Sysroot<'_>, settings: Settings) -> Result<Self, HogError> {
        let Settings { locality, schedule, wait } = settings;
        let lookout = Lookout::new(sysroot, locality)?;
        let total = lookout.total();
        for step in schedule.profile().steps() {
            let floor = decision::floor(step.goal, total);
            let most = Bytes(total.0.saturating_sub(floor.0));
            match step.goal {
                Goal::Take(wanted) if wanted > most => {
                    return Err(HogError::TooMuch { wanted, total, floor, most });
                }
                Goal::Take(_) | Goal::Leave(_) => (),
            }
        }
        let holding = Holding::new(locality);
        let course = Course::new(schedule, wait);
        Ok(Self { locality, holding, lookout, course, last_look: None })
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Bytes {
        self.holding.held()
    }

    /// What the kernel may not move to swap of it.
    #[must_use]
    pub fn locked(&self) -> Bytes {
        self.holding.locked()
    }

    /// Whether its schedule runs: it holds or held its first amount.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.course.has_started()
    }

    /// What it shall hold at `now`, if anything.
    #[must_use]
    pub fn goal(&self, now: Nanoseconds) -> Option<Goal> {
        self.course.goal(now).map(|(_, goal)| goal)
    }

    /// How much it would hold if it had reached its goal at the last look.
    #[must_use]
    pub fn target(&self, now: Nanoseconds) -> Bytes {
        match (self.goal(now), self.last_look) {
            (Some(Goal::Take(bytes)), _) => bytes,
            (Some(goal @ Goal::Leave(_)), Some(look)) => {
                let surplus = look.available.0.saturating_sub(decision::floor(goal, look.total).0);
                Bytes(self.held().0 + surplus)
            }
            (Some(Goal::Leave(_)), None) | (None, _) => Bytes(0),
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn record(&self) -> &Record {
        self.course.record()
    }

    /// Looks, and takes, gives back or rests. `now` counts from the first step.
    ///
    /// # Errors
    ///
    /// The kernel's report of its memory cannot be read; what is held stays held.
    pub fn step(&mut self, now: Nanoseconds) -> Result<Pace, ReadError> {
        let look = self.lookout.look(now)?;
        self.last_look = Some(look);
        let action = match self.course.next(now, &look, self.held()) {
            Order::End(ending) => return Ok(Pace::Over(ending)),
            Order::Do(action) => action,
        };
        match action {
            Action::Take(bytes) => {
                self.lookout.note_taking();
                if let Err(refusal) = self.holding.take(bytes) {
                    self.course.note_refusal(now, said(&refusal));
                    return Ok(Pace::Later);
                }
                Ok(Pace::AtOnce)
            }
            Action::GiveBack(bytes, reason) => {
                self.holding.give_back(bytes);
                self.course.note_given_back(now, bytes, reason);
                Ok(Pace::AtOnce)
            }
            Action::Rest => {
                let part = Bytes(self.held().0 / TOUCH_ROUND).max(TOUCH_MIN);
                if let Err(refusal) = self.holding.keep_warm(part) {
                    self.course.note_refusal(now, refusal.to_string());
                }
                Ok(Pace::Later)
            }
        }
    }

    /// Gives everything back, and tells what happened.
    ///
    /// # Errors
    ///
    /// The kernel's report of its memory cannot be read; everything is given back all the same.
    pub fn end(mut self, now: Nanoseconds, ending: Ending) -> Result<Report, ReadError> {
        let held = report::Held::of(&self.holding, Sysroot::live());
        let before = self.lookout.look(now);
        if let Ok(look) = &before {
            self.course.note_last_look(now, look, self.held());
        }
        self.course.note_given_back(now, self.held(), Reason::End);
        self.holding.give_back(Bytes(u64::MAX));
        let (before, after) = (before?, self.lookout.look(now)?);
        let place = report::Place { locality: self.locality, before, after };
        Ok(Report::new(&self.course, &held, &place, now, ending))
    }
}

/// The message with what is behind it.
fn said(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    fn settings(goal: Goal) -> Settings {
        Settings {
            locality: Locality::Anywhere,
            schedule: Schedule::new(Profile::constant(goal), None),
            wait: Nanoseconds(1),
        }
    }

    /// Steps until the hog rests or is over; time stands still.
    fn settle(hog: &mut Hog) -> Pace {
        loop {
            let pace = hog.step(Nanoseconds(0)).unwrap();
            if pace != Pace::AtOnce {
                return pace;
            }
        }
    }

    #[test]
    fn an_amount_is_taken_held_and_given_back() {
        let mut hog = Hog::new(settings(Goal::Take(Bytes::mib(20)))).unwrap();
        assert_eq!(settle(&mut hog), Pace::Later);
        assert!(hog.has_started());
        let report = hog.end(Nanoseconds(0), Ending::Stopped).unwrap();
        let twenty = Bytes::mib(20).0;
        assert_eq!((report.held_bytes_final, report.held_bytes_max), (twenty, twenty));
        assert!(report.resident_bytes.unwrap() >= twenty);
        assert_eq!(report.given_back.last().unwrap().bytes, twenty);
        let on_nodes: u64 = report.nodes.unwrap().iter().map(|node| node.held_bytes).sum();
        assert_eq!(on_nodes, twenty);
    }

    /// A machine of 1 GiB on which others can take `available_mib`.
    fn machine(available_mib: u64) -> FakeSysroot {
        let machine = FakeSysroot::bare();
        machine.write("proc/meminfo", &meminfo(available_mib));
        machine
    }

    fn meminfo(available_mib: u64) -> String {
        let available = available_mib << 10;
        format!("MemTotal: 1048576 kB\nMemFree: 1024 kB\nMemAvailable: {available} kB\n")
    }

    #[test]
    fn all_but_an_amount_follows_what_others_take_and_give_back() {
        let machine = machine(96);
        let goal = Goal::Leave(Bytes::mib(64));
        let mut hog = Hog::within(Sysroot(machine.path()), settings(goal)).unwrap();
        let mut holds = |available_mib, held_mib| {
            machine.write("proc/meminfo", &meminfo(available_mib));
            hog.step(Nanoseconds(0)).unwrap();
            assert_eq!(hog.held(), Bytes::mib(held_mib));
        };
        holds(96, 28);
        holds(68, 28);
        holds(50, 10);
        holds(30, 0);
        holds(30, 0);
        holds(80, 12);
    }

    #[test]
    fn an_amount_is_not_taken_from_what_others_need() {
        let machine = machine(80);
        let goal = Goal::Take(Bytes::mib(60));
        let mut hog = Hog::within(Sysroot(machine.path()), settings(goal)).unwrap();
        hog.step(Nanoseconds(0)).unwrap();
        // 5 % of 1 GiB is 51 MiB, and 4 MiB more stay so that small changes disturb nobody.
        assert_eq!(hog.held(), Bytes::mib(24));
        machine.write("proc/meminfo", &meminfo(56));
        assert_eq!(settle(&mut hog), Pace::Later);
        assert!(!hog.has_started());
        assert_eq!(hog.step(Nanoseconds(1)).unwrap(), Pace::Over(Ending::Unreached));
    }

    #[test]
    fn more_than_the_machine_can_give_is_refused_at_once() {
        let refused = Hog::new(settings(Goal::Take(Bytes(1 << 60)))).unwrap_err();
        assert!(matches!(refused, HogError::TooMuch { wanted: Bytes(wanted), .. }
            if wanted == 1 << 60));
    }
}
