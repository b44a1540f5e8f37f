//! A sorted set for keys that come almost in order, and leave almost in order.
//!
//! What comes in order stands in a queue, and only the rest in a tree. What leaves from the middle of the
//! queue leaves its slot empty until the ends of the queue reach it, or until most slots are empty.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. It holds what a sorted set would.
//! 2. At most half of the slots, and [`SLOTS_MIN`] more, are empty, none of them at an end.

use alloc::collections::{BTreeSet, VecDeque};

/// A queue of up to this length is never shortened in the middle.
const SLOTS_MIN: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct SortedQueue<K> {
    queue: VecDeque<Slot<K>>,
    /// Slots of the queue that hold nothing.
    empty: usize,
    others: BTreeSet<K>,
}

#[derive(Debug, Clone, Copy)]
struct Slot<K> {
    key: K,
    is_live: bool,
}

impl<K> Default for SortedQueue<K> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), empty: 0, others: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> SortedQueue<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.others.is_empty()
    }

    /// Returns whether the key was not there.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        if self.queue.back().is_none_or(|last| last.key < key) {
            if self.others.contains(&key) {
                return false;
            }
            self.queue.push_back(Slot { key, is_live: true });
            return true;
        }
        match self.slot(key) {
            Some(at) => {
                let slot = &mut self.queue[at];
                let is_new = !core::mem::replace(&mut slot.is_live, true);
                self.empty -= usize::from(is_new);
                is_new
            }
            None => self.others.insert(key),
        }
    }

    /// Returns whether the key was there.
    pub(crate) fn remove(&mut self, key: K) -> bool {
        if self.queue.front().is_some_and(|first| first.key == key) {
            self.queue.pop_front();
            self.trim();
            return true;
        }
        let slot = self.slot(key).map(|at| &mut self.queue[at]);
        let Some(slot) = slot.filter(|slot| slot.is_live) else {
            return self.others.remove(&key);
        };
        slot.is_live = false;
        self.empty += 1;
        self.trim();
        if self.empty > self.queue.len() / 2 + SLOTS_MIN {
            self.queue.retain(|slot| slot.is_live);
            self.empty = 0;
        }
        true
    }

    pub(crate) fn first(&self) -> Option<K> {
        let first = self.queue.front().map(|slot| slot.key);
        match (first, self.others.first().copied()) {
            (Some(first), Some(other)) => Some(first.min(other)),
            (first, other) => first.or(other),
        }
    }

    pub(crate) fn last(&self) -> Option<K> {
        self.queue.back().map(|slot| slot.key).max(self.others.last().copied())
    }

    pub(crate) fn find(&self, is_wanted: impl Fn(K) -> bool) -> Option<K> {
        let mut live = self.queue.iter().filter(|slot| slot.is_live).map(|slot| slot.key);
        let first = live.find(|key| is_wanted(*key));
        let mut others = self.others.iter().copied();
        let other = others.find(|key| is_wanted(*key));
        match (first, other) {
            (Some(first), Some(other)) => Some(first.min(other)),
            (first, other) => first.or(other),
        }
    }

    pub(crate) fn rfind(&self, is_wanted: impl Fn(K) -> bool) -> Option<K> {
        let mut live = self.queue.iter().rev().filter(|slot| slot.is_live).map(|slot| slot.key);
        let last = live.find(|key| is_wanted(*key));
        let mut others = self.others.iter().rev().copied();
        last.max(others.find(|key| is_wanted(*key)))
    }

    /// Keys that came in order first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = K> + '_ {
        let live = self.queue.iter().filter(|slot| slot.is_live).map(|slot| slot.key);
        live.chain(self.others.iter().copied())
    }

    /// The slot of a key in the queue, empty or not.
    fn slot(&self, key: K) -> Option<usize> {
        self.queue.binary_search_by(|slot| slot.key.cmp(&key)).ok()
    }

    /// Removes empty slots at the ends.
    fn trim(&mut self) {
        while self.queue.front().is_some_and(|slot| !slot.is_live) {
            self.queue.pop_front();
            self.empty -= 1;
        }
        while self.queue.back().is_some_and(|slot| !slot.is_live) {
            self.queue.pop_back();
            self.empty -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_queue_is_a_sorted_set(
            acts in prop::collection::vec((0_u32..300, 0_u8..9), 1..900),
        ) {
            let mut queue = SortedQueue::default();
            let mut set = BTreeSet::new();
            for (number, (key, act)) in (0_u32..).zip(acts) {
                match act {
                    0 => {
                        let first = set.pop_first();
                        prop_assert!(first.is_none_or(|first| queue.remove(first)));
                    }
                    1..4 => prop_assert_eq!(queue.remove(key), set.remove(&key)),
                    // Most come in order.
                    4..7 => prop_assert_eq!(queue.insert(number / 2), set.insert(number / 2)),
                    _ => prop_assert_eq!(queue.insert(key), set.insert(key)),
                }
                prop_assert_eq!(queue.is_empty(), set.is_empty(), "invariant 1");
                prop_assert_eq!(queue.first(), set.first().copied());
                prop_assert_eq!(queue.last(), set.last().copied());
                let is_wanted = |key: u32| key % 3 == 1;
                prop_assert_eq!(queue.find(is_wanted), set.iter().copied().find(|it| is_wanted(*it)));
                let last = set.iter().rev().copied().find(|it| is_wanted(*it));
                prop_assert_eq!(queue.rfind(is_wanted), last);
                prop_assert!(queue.empty <= queue.queue.len() / 2 + SLOTS_MIN, "invariant 2");
            }
            let mut keys: Vec<u32> = queue.iter().collect();
            keys.sort_unstable();
            prop_assert!(keys.into_iter().eq(set));
        }
    }
}
