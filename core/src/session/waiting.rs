//! The operations of one rank that wait for a channel, by the batch that needs them.
//!
//! They come almost in that order, as batches are planned one after the other, so those that do stand in a
//! queue, and only the others in a tree.
//!
//! Invariant, checked by `mod tests`: it holds what a sorted set would.

use alloc::collections::{BTreeSet, VecDeque};

use crate::id::OpId;

/// Operations with the number of the batch that needs them, in ascending order.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    in_order: VecDeque<(u64, OpId)>,
    others: BTreeSet<(u64, OpId)>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    pub(super) fn insert(&mut self, number: u64, op: OpId) {
        if self.in_order.back().is_none_or(|last| *last < (number, op)) {
            self.in_order.push_back((number, op));
        } else {
            self.others.insert((number, op));
        }
    }

    pub(super) fn first(&self) -> Option<(u64, OpId)> {
        match (self.in_order.front(), self.others.first()) {
            (Some(front), Some(other)) => Some(*front.min(other)),
            (front, other) => front.or(other).copied(),
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<(u64, OpId)> {
        let is_in_order = match (self.in_order.front(), self.others.first()) {
            (Some(front), Some(other)) => front < other,
            (front, _) => front.is_some(),
        };
        if is_in_order { self.in_order.pop_front() } else { self.others.pop_first() }
    }

    /// Removes an operation. Returns whether it was there.
    pub(super) fn remove(&mut self, number: u64, op: OpId) -> bool {
        if self.others.remove(&(number, op)) {
            return true;
        }
        let place = self.in_order.binary_search(&(number, op));
        place.is_ok_and(|place| self.in_order.remove(place).is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_queue_is_a_sorted_set(
            acts in prop::collection::vec((0_u64..20, 0_u64..20, 0_u8..8), 1..300),
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
