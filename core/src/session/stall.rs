//! What a trainer waits for: every nanosecond of a wait is attributed to one cause.
//!
//! A batch has a [`Timeline`] of when each thing that it needed was there. The trainer says when it began to
//! wait for the batch and when it had it. This wait is cut at the times of the timeline, and each part counts
//! for the slowest thing that was still missing then: staging memory that was not open, a range in it, the
//! cold store, other nodes, the tiers from the slowest up, transforms, the copy that a tier keeps, the batch before, and
//! last the hand-off to the trainer. So a cause hides those that follow it in this list: the part of a tier is what
//! would be left if the cold store were infinitely fast.
//!
//! Where the loop that calls the session has no idle time left ([`LoopLoad`]), no device is what is waited for,
//! however late its bytes were asked for: the whole wait then counts for the agent.
//!
//! What a trainer does itself before it can use a batch (waiting for an answer that brings none, reading
//! the batch, decoding it) it measures itself and tells in a [`Tally`](super::Tally).
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. The parts of a wait add up to the wait.
//! 2. What was there before the wait began has no part in it.

use alloc::{vec, vec::Vec};

use serde::{Deserialize, Serialize};

use crate::{
    id::TierId,
    session::Wait,
    units::{Bytes, Nanoseconds},
};

/// The time that trainers waited, by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallBreakdown {
    /// The staging memory of the rank was not there yet: the agent had just started.
    pub start: Nanoseconds,
    /// The batch was not placed in staging: too little room, or too few batches ahead.
    pub room: Nanoseconds,
    pub cold: Nanoseconds,
    pub peers: Nanoseconds,
    /// Copies from each tier, by [`TierId`].
    pub tiers: Vec<Nanoseconds>,
    /// Transforms of samples that had arrived.
    pub transforming: Nanoseconds,
    /// A new chunk of a tier into which a sample was to be copied.
    pub chunk: Nanoseconds,
    /// Copies into a tier: a sample that stays is copied before its batch is handed over.
    pub keep: Nanoseconds,
    /// The batch was ready, but an earlier request of the same trainer was not.
    pub turn: Nanoseconds,
    /// All of the batch was there, and it was on its way: the agent had not looked at the request yet, or
    /// the trainer not at the answer.
    pub hand_off: Nanoseconds,
    /// The loop of the agent, which had no idle time left: it stands for all parts above, except the start
    /// and the transforms.
    pub agent: Nanoseconds,
    /// The agent answered without a batch, or not at all.
    pub unanswered: Nanoseconds,
    pub self_read: Nanoseconds,
    pub decoding: Nanoseconds,
}

impl StallBreakdown {
    #[must_use]
    pub fn none(tiers: usize) -> Self {
        Self { tiers: vec![Nanoseconds(0); tiers], ..Self::default() }
    }

    #[must_use]
    pub fn total(&self) -> Nanoseconds {
        let sum = self.parts().fold(0_u64, |sum, (_, part)| sum.saturating_add(part.0));
        Nanoseconds(sum)
    }

    /// In the order in which a batch meets the causes.
    pub fn parts(&self) -> impl Iterator<Item = (StallCause, Nanoseconds)> + '_ {
        let tiers = slowest_first(&self.tiers);
        let first = [
            (StallCause::Start, self.start),
            (StallCause::Room, self.room),
            (StallCause::Cold, self.cold),
            (StallCause::Peers, self.peers),
        ];
        let last = [
            (StallCause::Transforming, self.transforming),
            (StallCause::Chunk, self.chunk),
            (StallCause::Keep, self.keep),
            (StallCause::Turn, self.turn),
            (StallCause::HandOff, self.hand_off),
            (StallCause::Agent, self.agent),
            (StallCause::Unanswered, self.unanswered),
            (StallCause::SelfRead, self.self_read),
            (StallCause::Decoding, self.decoding),
        ];
        first.into_iter().chain(tiers).chain(last)
    }

    pub fn add(&mut self, other: &Self) {
        self.tiers.resize(self.tiers.len().max(other.tiers.len()), Nanoseconds(0));
        for (cause, part) in other.parts() {
            self.note(cause, part);
        }
    }

    /// The same wait if the loop of the agent has this load.
    pub(super) fn under(self, load: LoopLoad) -> Self {
        match load {
            LoopLoad::Light => self,
            LoopLoad::Full => {
                let Self { start, transforming, .. } = self;
                let agent = self.total().0 - start.0 - transforming.0;
                let none = Self::none(self.tiers.len());
                Self { start, transforming, agent: Nanoseconds(agent), ..none }
            }
        }
    }

    /// The same proportions in a wait of another length, without the hand-off. Where ranks wait for each
    /// other, as in a simulation, a batch that waits for a trainer waits for other ranks. Time that no
    /// cause explains is left to the hand-off.
    #[must_use]
    pub fn scaled(&self, total: Nanoseconds) -> Self {
        let sum = u128::from(self.total().0.saturating_sub(self.hand_off.0));
        let part = |part: Nanoseconds| {
            let scaled = (u128::from(part.0) * u128::from(total.0)).checked_div(sum);
            Nanoseconds(scaled.and_then(|it| u64::try_from(it).ok()).unwrap_or(0))
        };
        let mut scaled = Self::none(self.tiers.len());
        for (cause, time) in self.parts().filter(|(cause, _)| *cause != StallCause::HandOff) {
            scaled.note(cause, part(time));
        }
        // Rounding leaves at most a nanosecond for each part.
        let rest = Nanoseconds(total.0.saturating_sub(scaled.total().0));
        let largest = scaled.parts().max_by_key(|(_, part)| *part).filter(|(_, part)| part.0 > 0);
        scaled.note(largest.map_or(StallCause::HandOff, |(cause, _)| cause), rest);
        scaled
    }

    pub(super) fn note(&mut self, cause: StallCause, part: Nanoseconds) {
        let sum = match cause {
            StallCause::Start => &mut self.start,
            StallCause::Room => &mut self.room,
            StallCause::Cold => &mut self.cold,
            StallCause::Peers => &mut self.peers,
            StallCause::Tier(tier) => match self.tiers.get_mut(usize::from(tier.0)) {
                Some(sum) => sum,
                None => return,
            },
            StallCause::Transforming => &mut self.transforming,
            StallCause::Chunk => &mut self.chunk,
            StallCause::Keep => &mut self.keep,
            StallCause::Turn => &mut self.turn,
            StallCause::HandOff => &mut self.hand_off,
            StallCause::Agent => &mut self.agent,
            StallCause::Unanswered => &mut self.unanswered,
            StallCause::SelfRead => &mut self.self_read,
            StallCause::Decoding => &mut self.decoding,
        };
        sum.0 = sum.0.saturating_add(part.0);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StallCause {
    Start,
    Room,
    Cold,
    Peers,
    Tier(TierId),
    Transforming,
    Chunk,
    Keep,
    Turn,
    HandOff,
    Agent,
    Unanswered,
    SelfRead,
    Decoding,
}

/// Whether the loop that calls the session keeps up with its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoopLoad {
    #[default]
    Light,
    /// It has no idle time, so it asks late for all that a batch needs.
    Full,
}

/// The time at which each thing that a batch needed was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    opened: Nanoseconds,
    pub(super) placed: Nanoseconds,
    cold: Nanoseconds,
    peers: Nanoseconds,
    tiers: Vec<Nanoseconds>,
    transformed: Nanoseconds,
    chunk: Nanoseconds,
    keep: Nanoseconds,
    turn: Nanoseconds,
    delivered: Option<Nanoseconds>,
    arrived: Bytes,
}

impl Timeline {
    pub(super) fn new(opened: Nanoseconds, placed: Nanoseconds, tiers: usize) -> Self {
        let zero = Nanoseconds(0);
        Self {
            opened,
            placed,
            cold: zero,
            peers: zero,
            tiers: vec![zero; tiers],
            transformed: zero,
            chunk: zero,
            keep: zero,
            turn: zero,
            delivered: None,
            arrived: Bytes(0),
        }
    }

    /// `tier` is `None` for the cold store.
    pub(super) fn arrived(&mut self, tier: Option<TierId>, len: Bytes, now: Nanoseconds) {
        self.arrived.0 = self.arrived.0.saturating_add(len.0);
        match tier.and_then(|tier| self.tiers.get_mut(usize::from(tier.0))) {
            Some(last) => *last = now,
            None => self.cold = now,
        }
    }

    pub(super) fn received(&mut self, len: Bytes, now: Nanoseconds) {
        self.arrived.0 = self.arrived.0.saturating_add(len.0);
        self.peers = now;
    }

    /// Also called for a sample that could not be transformed.
    pub(super) fn transformed(&mut self, now: Nanoseconds) {
        self.transformed = now;
    }

    /// Notes that a chunk for which the copy of a sample had to wait is there, or will not be.
    pub(super) fn chunk_added(&mut self, now: Nanoseconds) {
        self.chunk = now;
    }

    /// Notes that the copy of a sample in its tier is there, or will not be.
    pub(super) fn kept(&mut self, now: Nanoseconds) {
        self.keep = now;
    }

    /// Notes the time at which all earlier requests of the same trainer were ready.
    pub(super) fn predecessors_ready(&mut self, since: Nanoseconds) {
        self.turn = since;
    }

    /// The time at which the whole batch was there.
    pub(super) fn ready(&self) -> Nanoseconds {
        let last = [self.placed, self.cold, self.peers, self.transformed, self.chunk, self.keep];
        let last = last.into_iter();
        last.chain(self.tiers.iter().copied()).max().unwrap_or_default()
    }

    /// Returns the causes of the wait.
    pub(super) fn delivered(&mut self, wait: Wait) -> StallBreakdown {
        let taken = wait.until;
        self.delivered = Some(taken);
        let mut causes = StallBreakdown::none(self.tiers.len());
        let mut from = wait.since.0;
        let tiers = slowest_first(&self.tiers);
        let first = [
            (StallCause::Start, self.opened),
            (StallCause::Room, self.placed),
            (StallCause::Cold, self.cold),
            (StallCause::Peers, self.peers),
        ];
        let last = [
            (StallCause::Transforming, self.transformed),
            (StallCause::Chunk, self.chunk),
            (StallCause::Keep, self.keep),
            (StallCause::Turn, self.turn),
        ];
        for (cause, until) in first.into_iter().chain(tiers).chain(last) {
            let until = until.min(taken).0;
            causes.note(cause, Nanoseconds(until.saturating_sub(from)));
            from = from.max(until);
        }
        causes.hand_off = Nanoseconds(wait.len().0.saturating_sub(causes.total().0));
        causes
    }

    /// `None` if no trainer took the batch.
    pub(super) fn held(&self, now: Nanoseconds) -> Option<Nanoseconds> {
        self.delivered.map(|since| Nanoseconds(now.0.saturating_sub(since.0)))
    }

    /// 0 if a trainer took the batch.
    pub(super) fn wasted(&self) -> Bytes {
        if self.delivered.is_some() { Bytes(0) } else { self.arrived }
    }
}

fn slowest_first(tiers: &[Nanoseconds]) -> impl Iterator<Item = (StallCause, Nanoseconds)> + '_ {
    let id = |at| TierId(u8::try_from(at).unwrap_or(u8::MAX));
    tiers.iter().enumerate().rev().map(move |(at, time)| (StallCause::Tier(id(at)), *time))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Opened at 10, placed at 20, cold until 50, the second tier until 40, the first until 60, a chunk at
    /// 65, copies until 70, the batch before at 80. Transformed at 62.
    fn timeline() -> Timeline {
        let mut timeline = Timeline::new(Nanoseconds(10), Nanoseconds(20), 2);
        timeline.arrived(Some(TierId(1)), Bytes(5), Nanoseconds(40));
        timeline.arrived(None, Bytes(6), Nanoseconds(30));
        timeline.arrived(None, Bytes(7), Nanoseconds(50));
        timeline.arrived(Some(TierId(0)), Bytes(8), Nanoseconds(60));
        timeline.transformed(Nanoseconds(62));
        timeline.chunk_added(Nanoseconds(65));
        timeline.kept(Nanoseconds(70));
        timeline.predecessors_ready(Nanoseconds(80));
        timeline
    }

    fn parts(waited: u64) -> Vec<u64> {
        let causes = timeline().delivered(Wait::ending(Nanoseconds(83), Nanoseconds(waited)));
        causes.parts().map(|(_, part)| part.0).collect()
    }

    #[test]
    fn each_part_of_a_wait_is_for_the_slowest_thing_that_is_missing() {
        // Start, room, cold, other nodes, tier 1 (which was done before the cold store), tier 0, transforms, chunk,
        // copies, turn, hand-off, the agent, and what a trainer does itself.
        assert_eq!(parts(83), [10, 10, 30, 0, 0, 10, 2, 3, 5, 10, 3, 0, 0, 0, 0]);
        assert_eq!(parts(38), [0, 0, 5, 0, 0, 10, 2, 3, 5, 10, 3, 0, 0, 0, 0]);
        assert_eq!(parts(2), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(parts(0), [0; 15]);
        assert_eq!(timeline().ready(), Nanoseconds(70));
    }

    #[test]
    fn behind_a_loop_without_idle_time_no_device_is_waited_for() {
        let causes = || timeline().delivered(Wait::ending(Nanoseconds(83), Nanoseconds(83)));
        assert_eq!(causes().under(LoopLoad::Light), causes());
        let full: Vec<u64> = causes().under(LoopLoad::Full).parts().map(|it| it.1.0).collect();
        assert_eq!(full, [10, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 71, 0, 0, 0], "invariant 1 holds");
    }

    #[test]
    fn what_no_trainer_took_was_read_in_vain() {
        let mut timeline = timeline();
        assert_eq!((timeline.wasted(), timeline.held(Nanoseconds(90))), (Bytes(26), None));
        timeline.delivered(Wait::ending(Nanoseconds(83), Nanoseconds(0)));
        assert_eq!(timeline.wasted(), Bytes(0));
        assert_eq!(timeline.held(Nanoseconds(90)), Some(Nanoseconds(7)));
    }

    #[test]
    fn proportions_stay_when_a_wait_is_scaled_and_the_hand_off_goes() {
        let causes = timeline().delivered(Wait::ending(Nanoseconds(83), Nanoseconds(83)));
        let scaled: Vec<u64> = causes.scaled(Nanoseconds(161)).parts().map(|it| it.1.0).collect();
        // 80 ns without the hand-off; the odd one goes to the longest part.
        assert_eq!(scaled, [20, 20, 61, 0, 0, 20, 4, 6, 10, 20, 0, 0, 0, 0, 0]);
        let nothing = StallBreakdown::none(1).scaled(Nanoseconds(7));
        assert_eq!(nothing.hand_off, Nanoseconds(7));
    }

    proptest! {
        #[test]
        fn the_parts_of_a_wait_add_up_and_what_was_there_has_none(
            at in prop::collection::vec(0_u64..100, 8), now in 0_u64..120, waited in 0_u64..120,
        ) {
            let time = |index: usize| Nanoseconds(at[index]);
            let mut timeline = Timeline::new(time(0), time(1), 2);
            timeline.arrived(None, Bytes(1), time(2));
            timeline.arrived(Some(TierId(0)), Bytes(1), time(3));
            timeline.arrived(Some(TierId(1)), Bytes(1), time(4));
            timeline.kept(time(5));
            timeline.transformed(time(7));
            timeline.predecessors_ready(time(6));
            let wait = Wait::ending(Nanoseconds(now), Nanoseconds(waited));
            let causes = timeline.delivered(wait);
            prop_assert_eq!(causes.total(), wait.len(), "invariant 1");
            if time(2) <= wait.since {
                prop_assert_eq!(causes.cold, Nanoseconds(0), "invariant 2");
            }
            if time(7) <= wait.since.max(time(2)) {
                prop_assert_eq!(causes.transforming, Nanoseconds(0), "it hides behind the cold store");
            }
            let mut twice = causes.clone();
            twice.add(&causes);
            prop_assert_eq!(twice.total().0, 2 * wait.len().0);
        }
    }
}
