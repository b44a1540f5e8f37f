//! A table by key, for what is looked up at every read: one access to memory where a tree needs several.
//!
//! Open addressing with linear probing; what is removed leaves no mark, because those behind it move up. The
//! hash is fixed, so equal operations in equal order give equal tables. There is no iteration in an order
//! that means anything: [`HashTable::iter`] is for sums and for what is sorted afterwards.
//!
//! Invariant, checked by `mod tests`: it holds what a map would.

use alloc::{vec, vec::Vec};
use core::hash::{Hash, Hasher};

/// A map from keys to small values.
#[derive(Debug, Clone)]
pub(crate) struct HashTable<K, V> {
    /// Its length is a power of two, or zero.
    slots: Vec<Option<(K, V)>>,
    len: usize,
}

impl<K, V> Default for HashTable<K, V> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

/// Slots of the smallest table that is not empty.
const SLOTS_MIN: usize = 16;

impl<K: Copy + Eq + Hash, V: Copy> HashTable<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: K) -> Option<V> {
        let (_, value) = self.slots.get(self.find(key)?).copied().flatten()?;
        Some(value)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let at = self.find(key)?;
        self.slots.get_mut(at)?.as_mut().map(|(_, value)| value)
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.find(key).is_some()
    }

    /// Returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(key) {
            return Some(core::mem::replace(known, value));
        }
        if self.len * 8 >= self.slots.len() * 5 {
            self.grow();
        }
        self.add(key, value);
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let mut hole = self.find(key)?;
        let (_, removed) = self.slots[hole].take()?;
        self.len -= 1;
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some((next, _)) = &self.slots[at] else { return Some(removed) };
            // It moves up if its own slot is not behind the hole.
            let from_home = at.wrapping_sub(self.home(*next)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at].take();
                hole = at;
            }
        }
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.slots.iter().flatten().copied()
    }

    fn find(&self, key: K) -> Option<usize> {
        // A table that was large once is not read for nothing.
        if self.len == 0 {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        loop {
            match self.slots.get(at)? {
                None => return None,
                Some((other, _)) if *other == key => return Some(at),
                Some(_) => at = (at + 1) & mask,
            }
        }
    }

    fn home(&self, key: K) -> usize {
        let mut mixer = Mixer(0);
        key.hash(&mut mixer);
        let bits = self.slots.len().trailing_zeros();
        usize::try_from(mixer.finish() >> 32).map_or(0, |hash| hash & ((1 << bits) - 1))
    }

    /// The key must not be in the table.
    fn add(&mut self, key: K, value: V) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some((key, value));
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let before = core::mem::replace(&mut self.slots, vec![None; slots]);
        before.into_iter().flatten().for_each(|(key, value)| self.add(key, value));
    }
}

/// Multiplies each word into the hash.
///
/// # Source
///
/// Knuth, The Art of Computer Programming, volume 3, section 6.4: multiplicative hashing by the golden ratio.
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeMap, vec::Vec};

    use proptest::prelude::*;

    use super::*;
    use crate::id::SampleId;

    proptest! {
        #[test]
        fn the_table_is_a_map(acts in prop::collection::vec((0_u32..60, 0_u8..6), 1..600)) {
            let mut table = HashTable::default();
            let mut map = BTreeMap::new();
            for (number, (key, act)) in (0_u32..).zip(acts) {
                // Some keys lie far apart, so that they meet in few slots.
                let key = SampleId(if key % 3 == 0 { key << 26 } else { key });
                match act {
                    0 | 1 => prop_assert_eq!(table.remove(key), map.remove(&key)),
                    2 => {
                        table.get_mut(key).into_iter().for_each(|value| *value += 1);
                        map.get_mut(&key).into_iter().for_each(|value| *value += 1);
                    }
                    _ => prop_assert_eq!(table.insert(key, number), map.insert(key, number)),
                }
                prop_assert_eq!(table.get(key), map.get(&key).copied());
                prop_assert_eq!(table.contains(key), map.contains_key(&key));
                prop_assert_eq!(table.len(), map.len());
            }
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_unstable();
            prop_assert!(entries.into_iter().eq(map));
        }
    }
}
