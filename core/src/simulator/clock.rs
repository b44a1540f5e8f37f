//! Virtual time, and what is due.
//!
//! What a link carries ends almost in the order in which it began, so each link has a queue of its own, and
//! only what ends before others that began earlier stands in a heap.
//!
//! Invariant, checked by `mod tests`: things happen in the order of their times, and what is due at the same
//! time in the order in which it was scheduled.

use alloc::{
    collections::{BinaryHeap, VecDeque},
    vec::Vec,
};
use core::cmp::{Ordering, Reverse};

use crate::units::Nanoseconds;

/// A queue of events that come in order: the number of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane(pub(super) usize);

#[derive(Debug)]
pub(super) struct Clock<D> {
    pub(super) now: Nanoseconds,
    lanes: Vec<VecDeque<Entry<D>>>,
    others: BinaryHeap<Reverse<Entry<D>>>,
    scheduled: u64,
}

/// Ordered by its time alone.
#[derive(Debug)]
struct Entry<D> {
    time: Nanoseconds,
    /// Counts the events that were scheduled.
    number: u64,
    due: D,
}

impl<D> Entry<D> {
    fn key(&self) -> (Nanoseconds, u64) {
        (self.time, self.number)
    }
}

impl<D> PartialEq for Entry<D> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<D> Eq for Entry<D> {}

impl<D> PartialOrd for Entry<D> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<D> Ord for Entry<D> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<D> Default for Clock<D> {
    fn default() -> Self {
        Self::with_lanes(0)
    }
}

impl<D> Clock<D> {
    pub(super) fn with_lanes(lanes: usize) -> Self {
        Self {
            now: Nanoseconds(0),
            lanes: (0..lanes).map(|_| VecDeque::new()).collect(),
            others: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    /// At the present time if `time` is past.
    pub(super) fn at(&mut self, time: Nanoseconds, due: D) {
        let entry = self.entry(time, due);
        self.others.push(Reverse(entry));
    }

    /// As [`Self::at`], for an event after which probably nothing of the lane is due.
    pub(super) fn at_end(&mut self, lane: Lane, time: Nanoseconds, due: D) {
        let entry = self.entry(time, due);
        match self.lanes.get_mut(lane.0) {
            Some(lane) if lane.back().is_none_or(|last| *last < entry) => lane.push_back(entry),
            _ => self.others.push(Reverse(entry)),
        }
    }

    fn entry(&mut self, time: Nanoseconds, due: D) -> Entry<D> {
        self.scheduled += 1;
        Entry { time: time.max(self.now), number: self.scheduled, due }
    }

    /// Takes the next event, and moves the time there.
    pub(super) fn next(&mut self) -> Option<D> {
        let other = self.others.peek().map(|entry| entry.0.key());
        let fronts = self.lanes.iter().enumerate();
        let fronts = fronts.filter_map(|(lane, queue)| Some((queue.front()?.key(), lane)));
        let entry = match (fronts.min(), other) {
            (Some((key, lane)), other) if other.is_none_or(|other| key < other) => {
                self.lanes[lane].pop_front()?
            }
            _ => self.others.pop()?.0,
        };
        self.now = entry.time;
        Some(entry.due)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_due_first_happens_first(
            acts in prop::collection::vec((0_u64..50, 0_usize..5, any::<bool>()), 1..300),
        ) {
            let mut clock = Clock::with_lanes(3);
            let mut due: Vec<(u64, u64)> = Vec::new();
            for (number, (time, lane, happens)) in (0..).zip(acts) {
                if happens {
                    let first = due.iter().min().copied();
                    prop_assert_eq!(clock.next(), first.map(|(_, number)| number));
                    due.retain(|it| Some(*it) != first);
                    prop_assert!(first.is_none_or(|(time, _)| clock.now == Nanoseconds(time)));
                } else {
                    let time = clock.now.0.saturating_add(time).saturating_sub(5);
                    match lane {
                        4 => clock.at(Nanoseconds(time), number),
                        lane => clock.at_end(Lane(lane), Nanoseconds(time), number),
                    }
                    due.push((time.max(clock.now.0), number));
                }
            }
        }
    }
}
