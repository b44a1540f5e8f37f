//! A map from the ids of operations to what is known of each.
//!
//! Ids increase monotonically, and most operations end soon after they were planned, so the table is a ring
//! over the latest ids. An operation that outlives the others is moved to a map of its own, so that the ring
//! does not grow with all operations that follow it.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. The table holds what a map would.
//! 2. The ring is never longer than [`SPARSE`] times what the table holds, plus [`RING_MIN`].

use alloc::collections::{BTreeMap, VecDeque};

use crate::id::OpId;

/// Slots of the ring for each operation in the table, at most.
const SPARSE: usize = 4;

/// A ring of up to this length is never shortened.
const RING_MIN: usize = 64;

/// A map from operations, which are added in the order of their ids.
#[derive(Debug)]
pub(super) struct OpTable<T> {
    /// The id of the first slot of the ring.
    first: u64,
    ring: VecDeque<Option<T>>,
    /// Operations with ids below `first`.
    aside: BTreeMap<OpId, T>,
    len: usize,
}

impl<T> Default for OpTable<T> {
    fn default() -> Self {
        Self { first: 0, ring: VecDeque::new(), aside: BTreeMap::new(), len: 0 }
    }
}

impl<T> OpTable<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The id must be higher than all others in the table.
    #[inline]
    pub(super) fn insert(&mut self, op: OpId, value: T) {
        if self.ring.is_empty() {
            self.first = op.0;
        }
        let next = self.first + self.ring.len() as u64;
        assert!(op.0 >= next, "{op:?} is not higher than the others in the table");
        for _ in next..op.0 {
            self.ring.push_back(None);
        }
        self.ring.push_back(Some(value));
        self.len += 1;
        self.shorten();
    }

    pub(super) fn get(&self, op: OpId) -> Option<&T> {
        match self.slot(op) {
            Some(slot) => self.ring.get(slot)?.as_ref(),
            None => self.aside.get(&op),
        }
    }

    pub(super) fn get_mut(&mut self, op: OpId) -> Option<&mut T> {
        match self.slot(op) {
            Some(slot) => self.ring.get_mut(slot)?.as_mut(),
            None => self.aside.get_mut(&op),
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, op: OpId) -> Option<T> {
        let removed = match self.slot(op) {
            Some(slot) => self.ring.get_mut(slot)?.take(),
            None => self.aside.remove(&op),
        }?;
        self.len -= 1;
        self.shorten();
        Some(removed)
    }

    /// In the order of ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OpId, &T)> {
        let recent = (self.first..).zip(&self.ring);
        let recent = recent.filter_map(|(id, value)| Some((OpId(id), value.as_ref()?)));
        self.aside.iter().map(|(op, value)| (*op, value)).chain(recent)
    }

    /// In the order of ids.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.aside.values_mut().chain(self.ring.iter_mut().flatten())
    }

    /// The slot of an id in the ring; `None` if the id lies below it.
    fn slot(&self, op: OpId) -> Option<usize> {
        usize::try_from(op.0.checked_sub(self.first)?).ok()
    }

    fn shorten(&mut self) {
        while let Some(oldest) = self.ring.front() {
            let is_too_long = self.ring.len() > SPARSE * self.len + RING_MIN;
            match oldest {
                None => drop(self.ring.pop_front()),
                Some(_) if !is_too_long => return,
                Some(_) => {
                    let value = self.ring.pop_front().flatten();
                    self.aside.extend(value.map(|value| (OpId(self.first), value)));
                }
            }
            self.first += 1;
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
        fn the_table_is_a_map_and_stays_short(
            acts in prop::collection::vec((0_u64..3, 0_usize..400), 1..2000),
            lasting in 0_usize..40,
        ) {
            let mut table = OpTable::default();
            let mut map = BTreeMap::new();
            let mut name = 7;
            for (skipped, pick) in acts {
                name += 1 + skipped;
                table.insert(OpId(name), name);
                map.insert(OpId(name), name);
                // Some operations last, the others end in any order.
                let others = map.keys().skip(lasting.min(map.len() - 1)).copied();
                let others: Vec<OpId> = others.collect();
                for op in [others.get(pick % others.len().max(1)), others.get(pick / 2)] {
                    if let Some(op) = op.filter(|_| pick % 7 > 0) {
                        prop_assert_eq!(table.remove(*op), map.remove(op), "invariant 1");
                    }
                }
                prop_assert_eq!(table.len(), map.len());
                prop_assert!(table.ring.len() <= SPARSE * map.len() + RING_MIN, "invariant 2");
            }
            prop_assert!(table.iter().eq(map.iter().map(|(op, value)| (*op, value))));
            for op in (0..name + 2).map(OpId) {
                prop_assert_eq!(table.get(op), map.get(&op));
                prop_assert_eq!(table.get_mut(op), map.get_mut(&op));
            }
            prop_assert!(table.values_mut().eq(map.values_mut()));
        }
    }
}
