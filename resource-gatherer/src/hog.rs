//! Holds memory on purpose, as background jobs of a shared node would.
//!
//! [`control`] decides, [`memory`] holds, [`observer`] sees what others can still take, [`report`] tells.
//! This file is the loop; the clock is an argument.
//!
//! A hog makes a node tight, not dead: it takes in steps of 128 MiB and looks between them, leaves a
//! floor in any case, and gives back when others need memory. If the kernel kills all the same, it
//! kills the hog first ([`oom_score`]).

mod control;
mod memory;
mod observer;
pub mod oom_score;
mod report;

use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds, seconds},
};
use tierfeed_numa_memory::AllocateError;

pub use self::report::{Ending, GivenBack, Goal, KeptBy, OnNode, Point, Reason, Record, Report};
use self::{
    control::{Action, Controller, Observation},
    memory::HeldMemory,
    observer::Observer,
};
use crate::sysroot::{ReadError, Sysroot};

#[derive(Debug)]
pub struct Hog {
    memory: HeldMemory,
    observer: Observer,
    controller: Controller,
    last: Option<Observation>,
}

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub locality: Locality,
    pub goal: Goal,
    /// Counted from when the goal is reached; `None` for no end.
    pub limit: Option<Nanoseconds>,
    /// The longest wait for that.
    pub wait: Nanoseconds,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HogError {
    #[error("NUMA node {} has no memory on this host; see /sys/devices/system/node/has_memory",
        .node.0)]
    AbsentNode { node: NumaNode },
    #[error("NUMA node {} is memory of a GPU, which is never a tier; name another node", .node.0)]
    GpuNode { node: NumaNode },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Reserve(#[from] AllocateError),
    #[error("cannot leave {left}: there are {total} in all, so nothing would be held; leave less")]
    LeavesAll { left: Bytes, total: Bytes },
    #[error(
        "cannot hold {wanted}: of {total} at least {floor} stay with others; take at most {most}"
    )]
    TooMuch { wanted: Bytes, total: Bytes, floor: Bytes, most: Bytes },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The hog is on its way to its goal.
    AtOnce,
    /// The hog rests.
    Later,
    Over(Ending),
}

/// All memory that is not locked is touched once in this many steps at rest: at ten a second that is every 30
/// s, half of what the kernel's proactive reclaim (DAMON) usually waits for.
const TOUCH_ROUND: u64 = 300;

/// The least amount that is touched at once.
const TOUCH_MIN: Bytes = Bytes::mib(2);

impl Hog {
    /// # Errors
    ///
    /// [`HogError::TooMuch`] if the amount could not even be held alone, [`HogError::LeavesAll`] if nothing would
    /// be held; the node is not there, or the kernel does not say how much memory is free.
    pub fn new(settings: Settings) -> Result<Self, HogError> {
        Self::within(Sysroot::live(), settings)
    }

    /// As [`Self::new`], on a machine with as much memory as the tree below `sysroot` says.
    fn within(sysroot: Sysroot<'_>, settings: Settings) -> Result<Self, HogError> {
        let Settings { locality, goal, limit, wait } = settings;
        let observer = Observer::new(sysroot, locality)?;
        let total = observer.total();
        let floor = control::floor(goal, total);
        let most = Bytes(total.0.saturating_sub(floor.0));
        let reserved = match goal {
            Goal::Take(wanted) if wanted > most => {
                return Err(HogError::TooMuch { wanted, total, floor, most });
            }
            Goal::Leave(left) if left >= total => {
                return Err(HogError::LeavesAll { left, total });
            }
            Goal::Take(wanted) => wanted.max(TOUCH_MIN),
            Goal::Leave(_) => total,
        };
        let memory = HeldMemory::reserve(reserved, locality)?;
        let controller = Controller::new(goal, limit, wait);
        Ok(Self { memory, observer, controller, last: None })
    }

    #[must_use]
    pub fn held(&self) -> Bytes {
        self.memory.held()
    }

    /// Held memory that the kernel may not move to swap.
    #[must_use]
    pub fn locked(&self) -> Bytes {
        self.memory.locked()
    }

    /// Whether its time runs, as it does from when it held its goal.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.controller.has_started()
    }

    #[must_use]
    pub fn goal(&self) -> Goal {
        self.controller.goal()
    }

    /// The amount that would be held at the goal, by the last observation.
    #[must_use]
    pub fn target(&self) -> Bytes {
        match (self.goal(), self.last) {
            (Goal::Take(bytes), _) => bytes,
            (goal @ Goal::Leave(_), Some(seen)) => {
                let floor = control::floor(goal, seen.total);
                Bytes(self.held().0 + seen.available.0.saturating_sub(floor.0))
            }
            (Goal::Leave(_), None) => Bytes(0),
        }
    }

    #[must_use]
    pub fn record(&self) -> &Record {
        &self.controller.record
    }

    /// Observes, and takes, gives back or rests. `now` counts from the first step.
    ///
    /// # Errors
    ///
    /// The kernel's report of its memory cannot be read; what is held stays held.
    pub fn step(&mut self, now: Nanoseconds) -> Result<Pace, ReadError> {
        let seen = self.observer.observe(now)?;
        self.last = Some(seen);
        match self.controller.next(now, &seen, self.held()) {
            Action::Take(bytes) => {
                self.observer.stalls.note_taking();
                if let Err(refusal) = self.memory.take(bytes) {
                    self.controller.note_refusal(now, with_source(&refusal));
                    return Ok(Pace::Later);
                }
                Ok(Pace::AtOnce)
            }
            Action::GiveBack(bytes, reason) => {
                if let Err(refusal) = self.memory.give_back(bytes) {
                    self.controller.note_refusal(now, refusal.to_string());
                    return Ok(Pace::Later);
                }
                self.controller.record.note_given_back(now, bytes, reason);
                Ok(Pace::AtOnce)
            }
            Action::Rest => {
                let part = Bytes(self.held().0 / TOUCH_ROUND).max(TOUCH_MIN);
                if let Err(refusal) = self.memory.touch_part(part) {
                    self.controller.note_refusal(now, refusal.to_string());
                }
                Ok(Pace::Later)
            }
            Action::End(ending) => Ok(Pace::Over(ending)),
        }
    }

    /// Gives everything back, and tells what happened.
    ///
    /// # Errors
    ///
    /// The kernel's report of its memory cannot be read; everything is given back all the same.
    pub fn end(mut self, now: Nanoseconds, ending: Ending) -> Result<Report, ReadError> {
        let held = self.held();
        let before = self.observer.observe(now);
        let record = &mut self.controller.record;
        if let Ok(seen) = &before {
            record.note_last(now, seen.available, held);
        }
        record.note_given_back(now, held, Reason::End);
        let mut report =
            Report::new(record.clone(), &self.memory, self.observer.locality(), ending);
        drop(self.memory);
        report.floor_bytes = control::floor(self.controller.goal(), self.observer.total()).0;
        report.held_for_s = seconds(self.controller.elapsed(now));
        report.available_bytes_final = before?.available.0;
        report.available_bytes_after = self.observer.observe(now)?.available.0;
        Ok(report)
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    fn settings(goal: Goal) -> Settings {
        Settings { locality: Locality::Anywhere, goal, limit: None, wait: Nanoseconds(1) }
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
        assert_eq!((report.held_bytes_final, report.record.held_bytes_max), (twenty, twenty));
        assert!(report.resident_bytes.unwrap() >= twenty);
        assert_eq!(report.record.given_back.last().unwrap().bytes, twenty);
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
        // 5 % of 1 GiB is 51 MiB, and 4 MiB more stay for small changes of others.
        assert_eq!(hog.held(), Bytes::mib(24));
        machine.write("proc/meminfo", &meminfo(56));
        assert_eq!(settle(&mut hog), Pace::Later);
        assert!(!hog.has_started());
        assert_eq!(hog.step(Nanoseconds(1)).unwrap(), Pace::Over(Ending::Unreached));
    }

    #[test]
    fn memory_of_a_gpu_is_not_held() {
        let machine = FakeSysroot::machine("gh200");
        let hog = |locality| {
            let settings = Settings { locality, ..settings(Goal::Take(Bytes::mib(64))) };
            Hog::within(Sysroot(machine.path()), settings)
        };
        let refused = hog(Locality::Numa(NumaNode(1))).unwrap_err();
        assert!(matches!(refused, HogError::GpuNode { node: NumaNode(1) }), "{refused}");
        let grace = Bytes(502_267_904 << 10);
        for locality in [Locality::Anywhere, Locality::Numa(NumaNode(0))] {
            assert_eq!(hog(locality).unwrap().observer.total(), grace);
        }
    }

    #[test]
    fn more_than_the_machine_can_give_is_refused_at_once() {
        let refused = Hog::new(settings(Goal::Take(Bytes(1 << 60)))).unwrap_err();
        assert!(matches!(refused, HogError::TooMuch { wanted: Bytes(wanted), .. }
            if wanted == 1 << 60));
        let machine = machine(900);
        let leave = |mib| {
            Hog::within(Sysroot(machine.path()), settings(Goal::Leave(Bytes::mib(mib)))).map(drop)
        };
        let refused = leave(1024).unwrap_err();
        assert!(refused.to_string().contains("there are 1 GiB in all"), "{refused}");
        assert!(leave(1023).is_ok());
    }
}
