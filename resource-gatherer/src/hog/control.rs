//! Decides what a hog does after each observation: takes, gives back, rests or ends. Pure: the clock and
//! what is observed are arguments.
//!
//! 1. What others can still take never falls below the floor of the goal because of a hog.
//! 2. When others take more and the floor is not left, the hog gives back, all it has if need be.
//! 3. While others wait for memory the hog takes nothing, and gives back an eighth at a time.
//! 4. With a steady machine it comes to rest at its goal, or as near as the floor allows.
//!
//! Between giving back and taking lies a band in which it rests: what the kernel calls available
//! moves by some MiB all the time. The time of the hog starts when it holds its goal; until then the
//! controller waits, but not for ever.

use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_numa_memory::ballast::QUANTUM;

use super::report::{Ending, Goal, Reason, Record};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Observation {
    /// Memory that others can still take there: the least of host, node and control group.
    pub(super) available: Bytes,
    pub(super) total: Bytes,
    pub(super) stall: Stall,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stall {
    /// No task waits, or the kernel does not say.
    None,
    /// Tasks wait or did a moment ago, perhaps only because the hog took memory.
    Recent,
    /// Tasks wait although the hog took nothing.
    OfOthers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Take(Bytes),
    GiveBack(Bytes, Reason),
    Rest,
    End(Ending),
}

/// Taken between two observations: a tenth of a second on memory that the host must bring first.
pub(super) const STEP: Bytes = Bytes::mib(128);

/// Half of the band in which a hog rests.
const MARGIN: Bytes = Bytes::mib(4);

/// At most this much above the floor, the hog counts as having taken all but the floor.
const NEAR: Bytes = Bytes::mib(16);

/// The share of all memory, in per cent, that a hog told to take an amount leaves to others.
const TAKE_FLOOR_PERCENT: u64 = 5;

/// The share that a hog told to leave an amount leaves in any case.
const LEAVE_FLOOR_PERCENT: u64 = 1;

/// The least floor: the kernel itself needs some.
const FLOOR_MIN: Bytes = Bytes::mib(32);

/// The least that is given back under pressure.
const RELIEF_MIN: Bytes = Bytes::mib(64);

/// After the kernel refused memory that was free, the hog asks again after this long.
const RETRY_AFTER: Nanoseconds = Nanoseconds(1_000_000_000);

#[derive(Debug)]
pub(super) struct Controller {
    goal: Goal,
    limit: Option<Nanoseconds>,
    wait: Nanoseconds,
    started: Option<Nanoseconds>,
    /// The kernel refused memory, so none is taken before this time.
    refused_until: Nanoseconds,
    pub(super) record: Record,
}

impl Controller {
    /// Keeps to `goal` until `limit`, or without end, if it is reached within `wait`.
    pub(super) fn new(goal: Goal, limit: Option<Nanoseconds>, wait: Nanoseconds) -> Self {
        let record = Record::new(goal);
        Self { goal, limit, wait, started: None, refused_until: Nanoseconds(0), record }
    }

    pub(super) fn goal(&self) -> Goal {
        self.goal
    }

    pub(super) fn has_started(&self) -> bool {
        self.started.is_some()
    }

    pub(super) fn elapsed(&self, now: Nanoseconds) -> Nanoseconds {
        Nanoseconds(self.started.map_or(0, |started| now.0.saturating_sub(started.0)))
    }

    pub(super) fn next(&mut self, now: Nanoseconds, seen: &Observation, held: Bytes) -> Action {
        if self.limit.is_some_and(|limit| self.elapsed(now) >= limit) {
            return Action::End(Ending::Time);
        }
        self.record.note_observation(now, seen.available, held);
        if is_reached(seen, held, self.goal) {
            self.record.note_reached(now);
            self.started.get_or_insert(now);
        } else if self.started.is_none() && now >= self.wait {
            return Action::End(Ending::Unreached);
        }
        match next_action(seen, held, self.goal) {
            Action::Take(_) if now < self.refused_until => Action::Rest,
            action => action,
        }
    }

    /// Notes that the kernel refused memory, with what it said; the hog tries again a second later.
    pub(super) fn note_refusal(&mut self, now: Nanoseconds, said: String) {
        self.refused_until = Nanoseconds(now.0 + RETRY_AFTER.0);
        self.record.refusal = Some(said);
    }
}

/// The memory that `goal` leaves to others in any case on a place with `total`.
pub(super) fn floor(goal: Goal, total: Bytes) -> Bytes {
    let share = |percent: u64| Bytes(total.0 / 100 * percent).max(FLOOR_MIN);
    match goal {
        Goal::Take(_) => share(TAKE_FLOOR_PERCENT),
        Goal::Leave(left) => left.max(share(LEAVE_FLOOR_PERCENT)),
    }
}

/// Whether the hog holds what `goal` asks for, or can get nothing more within it.
pub(super) fn is_reached(seen: &Observation, held: Bytes, goal: Goal) -> bool {
    match goal {
        Goal::Take(wanted) => held >= wanted,
        Goal::Leave(_) => seen.available.0 <= floor(goal, seen.total).0.saturating_add(NEAR.0),
    }
}

pub(super) fn next_action(seen: &Observation, held: Bytes, goal: Goal) -> Action {
    let floor = floor(goal, seen.total);
    if seen.available < floor && held.0 > 0 {
        let lacking = floor.0.saturating_add(MARGIN.0) - seen.available.0;
        return Action::GiveBack(whole_quanta(lacking).min(held), Reason::OthersGrew);
    }
    if seen.stall == Stall::OfOthers && held.0 > 0 {
        let relief = whole_quanta(held.0 / 8).max(RELIEF_MIN);
        return Action::GiveBack(relief.min(held), Reason::Pressure);
    }
    let wanted = match goal {
        Goal::Take(wanted) => whole_quanta(wanted.0),
        Goal::Leave(_) => Bytes(u64::MAX),
    };
    let surplus = seen.available.0.saturating_sub(floor.0);
    if seen.stall != Stall::None || surplus < 2 * MARGIN.0 {
        return Action::Rest;
    }
    let takeable = (surplus - MARGIN.0) / QUANTUM.0 * QUANTUM.0;
    match Bytes(takeable.min(STEP.0).min(wanted.0.saturating_sub(held.0))) {
        Bytes(0) => Action::Rest,
        bytes => Action::Take(bytes),
    }
}

fn whole_quanta(bytes: u64) -> Bytes {
    Bytes(bytes.div_ceil(QUANTUM.0).saturating_mul(QUANTUM.0))
}

#[cfg(test)]
mod tests;
