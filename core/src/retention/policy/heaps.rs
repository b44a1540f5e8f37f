//! The samples of each tier ordered by a key, with access to the greatest.
//!
//! Binary heaps with the index of each sample, so that any sample can be removed: 12 bytes a sample
//! of the dataset and 4 for each that is kept, and at most log2 steps for each change.

use alloc::{vec, vec::Vec};

use crate::id::{SampleId, TierId};

/// A heap for each tier. A sample is in at most one.
#[derive(Debug)]
pub(super) struct Heaps {
    keys: Vec<u64>,
    /// The index of each sample in its heap.
    places: Vec<u32>,
    tiers: Vec<Vec<u32>>,
}

impl Heaps {
    pub(super) fn new(samples: usize, tiers: usize) -> Self {
        Self { keys: vec![0; samples], places: vec![0; samples], tiers: vec![Vec::new(); tiers] }
    }

    /// The sample must be in a heap.
    pub(super) fn key(&self, sample: SampleId) -> u64 {
        self.keys[sample.0 as usize]
    }

    pub(super) fn greatest(&self, tier: TierId) -> Option<SampleId> {
        self.tiers[usize::from(tier.0)].first().copied().map(SampleId)
    }

    /// The samples of a tier, in unspecified order.
    pub(super) fn samples(&self, tier: TierId) -> impl Iterator<Item = SampleId> + '_ {
        self.tiers[usize::from(tier.0)].iter().copied().map(SampleId)
    }

    /// The sample must be in no heap.
    pub(super) fn enter(&mut self, sample: SampleId, tier: TierId, key: u64) {
        self.keys[sample.0 as usize] = key;
        let heap = &mut self.tiers[usize::from(tier.0)];
        heap.push(sample.0);
        let last = heap.len() - 1;
        self.rise(usize::from(tier.0), last);
    }

    pub(super) fn leave(&mut self, sample: SampleId, tier: TierId) {
        let tier = usize::from(tier.0);
        let place = self.places[sample.0 as usize] as usize;
        self.tiers[tier].swap_remove(place);
        if place < self.tiers[tier].len() {
            // The last element belongs above or below its new place.
            let place = self.rise(tier, place);
            self.sink(tier, place);
        }
    }

    pub(super) fn change(&mut self, sample: SampleId, tier: TierId, key: u64) {
        self.keys[sample.0 as usize] = key;
        let place = self.places[sample.0 as usize] as usize;
        let place = self.rise(usize::from(tier.0), place);
        self.sink(usize::from(tier.0), place);
    }

    fn key_at(&self, tier: usize, place: usize) -> u64 {
        self.keys[self.tiers[tier][place] as usize]
    }

    /// Returns the new place of the element.
    fn rise(&mut self, tier: usize, mut place: usize) -> usize {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.key_at(tier, above) >= self.key_at(tier, place) {
                break;
            }
            self.swap(tier, place, above);
            place = above;
        }
        self.note(tier, place);
        place
    }

    fn sink(&mut self, tier: usize, mut place: usize) {
        let len = self.tiers[tier].len();
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            if left >= len {
                break;
            }
            let is_right = right < len && self.key_at(tier, right) > self.key_at(tier, left);
            let below = if is_right { right } else { left };
            if self.key_at(tier, below) <= self.key_at(tier, place) {
                break;
            }
            self.swap(tier, place, below);
            place = below;
        }
        self.note(tier, place);
    }

    fn swap(&mut self, tier: usize, one: usize, other: usize) {
        self.tiers[tier].swap(one, other);
        self.note(tier, one);
        self.note(tier, other);
    }

    fn note(&mut self, tier: usize, place: usize) {
        let sample = self.tiers[tier][place];
        self.places[sample as usize] =
            u32::try_from(place).expect("samples are counted in 32 bits");
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Op {
        Put(u64),
        Leave,
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![3 => (0_u64..30).prop_map(Op::Put), 1 => Just(Op::Leave)]
    }

    proptest! {
        #[test]
        fn the_greatest_is_that_of_a_search(
            ops in prop::collection::vec((0_u32..40, 0_u8..2, any_op()), 1..200),
        ) {
            let mut heaps = Heaps::new(40, 2);
            let mut model = BTreeMap::new();
            for (sample, tier, op) in ops {
                let (sample, tier) = (SampleId(sample), TierId(tier));
                match (op, model.get(&sample).copied()) {
                    (Op::Put(key), Some((here, _))) => {
                        heaps.change(sample, here, key);
                        model.insert(sample, (here, key));
                    }
                    (Op::Put(key), None) => {
                        heaps.enter(sample, tier, key);
                        model.insert(sample, (tier, key));
                    }
                    (Op::Leave, Some((here, _))) => {
                        heaps.leave(sample, here);
                        model.remove(&sample);
                    }
                    (Op::Leave, None) => {}
                }
                for tier in [TierId(0), TierId(1)] {
                    let there = model.values().filter(|(other, _)| *other == tier);
                    let greatest = heaps.greatest(tier).map(|sample| heaps.key(sample));
                    prop_assert_eq!(greatest, there.clone().map(|(_, key)| *key).max());
                    prop_assert_eq!(heaps.samples(tier).count(), there.count());
                }
            }
        }
    }
}
