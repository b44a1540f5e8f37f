//! The operations of one rank that wait for a channel, by the batch that needs them.
//!
//! The batches that a rank waits for lie beside one another, and each has a queue of its own, in which
//! operations come almost in the order of their ids. Those of batches far off stand in a tree.
//!
//! Invariant, checked by `mod tests`: it holds what a sorted set would.

use alloc::{
    collections::{BTreeSet, VecDeque},
    vec::Vec,
};

use crate::{id::OpId, sorted_queue::SortedQueue};

/// The distance from the first to the last batch that have queues of their own.
const SPAN_MAX: u64 = 1 << 12;

/// Operations with the number of the batch that needs them, in ascending order.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The number of the first of the batches.
    first: u64,
    /// Neither the first nor the last queue is empty.
    batches: VecDeque<SortedQueue<OpId>>,
    /// Operations for batches beyond these.
    others: BTreeSet<(u64, OpId)>,
    len: usize,
    /// Empty queues, whose memory is used again.
    spare: Vec<SortedQueue<OpId>>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, number: u64, op: OpId) {
        let is_new = match self.batch_for(number) {
            Some(queue) => queue.insert(op),
            None => self.others.insert((number, op)),
        };
        self.len += usize::from(is_new);
    }

    pub(super) fn first(&self) -> Option<(u64, OpId)> {
        let first = self.batches.front().and_then(|queue| Some((self.first, queue.first()?)));
        match (first, self.others.first()) {
            (Some(first), Some(other)) => Some(first.min(*other)),
            (first, other) => first.or(other.copied()),
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<(u64, OpId)> {
        let (number, op) = self.first()?;
        self.remove(number, op);
        Some((number, op))
    }

    /// Returns whether the operation was there.
    pub(super) fn remove(&mut self, number: u64, op: OpId) -> bool {
        let queue = self.slot(number).and_then(|slot| self.batches.get_mut(slot));
        let was_there =
            queue.is_some_and(|queue| queue.remove(op)) || self.others.remove(&(number, op));
        self.len -= usize::from(was_there);
        self.trim();
        was_there
    }

    fn slot(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    /// The queue of a batch; a new one if the batch lies near the others.
    fn batch_for(&mut self, number: u64) -> Option<&mut SortedQueue<OpId>> {
        if self.batches.is_empty() {
            self.first = number;
        }
        let end = self.first + self.batches.len() as u64;
        if end.max(number + 1) - self.first.min(number) > SPAN_MAX {
            return None;
        }
        for _ in number..self.first {
            self.batches.push_front(self.spare.pop().unwrap_or_default());
        }
        for _ in end..=number {
            self.batches.push_back(self.spare.pop().unwrap_or_default());
        }
        self.first = self.first.min(number);
        let slot = self.slot(number)?;
        self.batches.get_mut(slot)
    }

    fn trim(&mut self) {
        while self.batches.front().is_some_and(SortedQueue::is_empty) {
            self.spare.extend(self.batches.pop_front());
            self.first += 1;
        }
        while self.batches.back().is_some_and(SortedQueue::is_empty) {
            self.spare.extend(self.batches.pop_back());
        }
        self.spare.truncate(self.batches.len() + 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_queue_is_a_sorted_set(
            acts in prop::collection::vec((0_u64..20, 0_u64..20, 0_u8..9), 1..300),
        ) {
            let mut waiting = Waiting::default();
            let mut set = BTreeSet::new();
            for (number, op, act) in acts {
                let op = OpId(op);
                match act {
                    0 => prop_assert_eq!(waiting.remove(number, op), set.remove(&(number, op))),
                    1 | 2 => prop_assert_eq!(waiting.pop_first(), set.pop_first()),
                    _ if set.contains(&(number, op)) => {}
                    _ => {
                        // Most come in order.
                        let number = if act > 4 { number + 20 } else { number };
                        let number = if act > 7 { number * SPAN_MAX / 8 } else { number };
                        if set.insert((number, op)) {
                            waiting.insert(number, op);
                        }
                    }
                }
                prop_assert_eq!(waiting.len(), set.len());
                prop_assert_eq!(waiting.first(), set.first().copied());
            }
        }
    }
}
