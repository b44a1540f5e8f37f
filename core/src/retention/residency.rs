//! Which sample lies in which tier, counted in bytes.
//!
//! A policy writes the residency and nothing else. The place of a sample in a tier, and the time
//! when its bytes get there, follow from it ([`crate::retention::cache`], [`crate::session`]).
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A sample lies in at most one tier.
//! 2. A tier holds more than its capacity only after its capacity fell.

use alloc::{sync::Arc, vec::Vec};
use core::hint::black_box;

use crate::{
    id::{SampleId, TierId},
    space::Space,
    units::Bytes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub capacity: Bytes,
    pub used: Bytes,
}

impl Level {
    #[must_use]
    pub fn free(self) -> Bytes {
        Bytes(self.capacity.0.saturating_sub(self.used.0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub sample: SampleId,
    pub from: Option<TierId>,
    pub to: Option<TierId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{needed} do not fit into the {free} that are free in the tier")]
pub struct NoRoom {
    pub needed: Bytes,
    pub free: Bytes,
}

/// Which sample lies in which tier: a byte for each sample beside its size.
#[derive(Debug)]
pub struct Residency {
    sizes: Arc<[Bytes]>,
    levels: Vec<Level>,
    tier_of: TierMap,
    kept: usize,
    resizes: u64,
    moves: Vec<Move>,
}

const OUT: u8 = u8::MAX;

/// Samples per page of [`TierMap`]: the first write after a snapshot copies one page.
const PAGE: usize = 4096;

/// The tier of each sample at one moment. Copies share the pages that have not changed since.
#[derive(Debug, Clone)]
pub struct TierMap {
    pages: Vec<Arc<[u8; PAGE]>>,
}

impl TierMap {
    fn new(samples: usize) -> Self {
        let page = || Arc::new([OUT; PAGE]);
        Self { pages: (0..samples.div_ceil(PAGE)).map(|_| page()).collect() }
    }

    #[must_use]
    pub fn tier_of(&self, sample: SampleId) -> Option<TierId> {
        let sample = sample.0 as usize;
        let tier = self.pages[sample / PAGE][sample % PAGE];
        (tier != OUT).then_some(TierId(tier))
    }

    fn set(&mut self, sample: SampleId, tier: u8) {
        let sample = sample.0 as usize;
        Arc::make_mut(&mut self.pages[sample / PAGE])[sample % PAGE] = tier;
    }
}

impl Residency {
    /// Empty tiers of `capacities`, fastest first, for samples of `sizes`.
    ///
    /// # Panics
    ///
    /// If there are more than 255 tiers.
    #[must_use]
    pub fn new(sizes: Arc<[Bytes]>, capacities: impl IntoIterator<Item = Bytes>) -> Self {
        let level = |capacity| Level { capacity, used: Bytes(0) };
        let levels: Vec<_> = capacities.into_iter().map(level).collect();
        assert!(levels.len() < usize::from(OUT), "tiers are counted in a byte");
        let tier_of = TierMap::new(sizes.len());
        Self { sizes, levels, tier_of, kept: 0, resizes: 0, moves: Vec::new() }
    }

    /// Fastest first.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    #[must_use]
    pub fn free(&self, tier: TierId) -> Bytes {
        self.levels.get(usize::from(tier.0)).map_or(Bytes(0), |level| level.free())
    }

    /// Fastest first.
    pub fn tiers(&self) -> impl DoubleEndedIterator<Item = TierId> + use<> {
        (0..u8::try_from(self.levels.len()).unwrap_or(OUT)).map(TierId)
    }

    /// Samples of the dataset.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.sizes.len()
    }

    /// Samples that lie in some tier.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept
    }

    #[must_use]
    pub fn tier_of(&self, sample: SampleId) -> Option<TierId> {
        self.tier_of.tier_of(sample)
    }

    /// Reads the tiers and lengths of samples that are asked for one by one soon, independently of each
    /// other, so that they are in the CPU caches then.
    pub(crate) fn touch(&self, samples: &[SampleId]) {
        let read = |sample: &SampleId| {
            let len = self.sizes.get(sample.0 as usize).map_or(0, |len| len.0);
            let page = &self.tier_of.pages[sample.0 as usize / PAGE];
            len ^ u64::from(page[sample.0 as usize % PAGE])
        };
        black_box(samples.iter().fold(0, |sum, sample| sum ^ read(sample)));
    }

    /// A snapshot of the tiers of all samples, for another thread.
    #[must_use]
    pub fn tier_map(&self) -> TierMap {
        self.tier_of.clone()
    }

    /// Bytes that a sample takes in a tier.
    #[must_use]
    pub fn len_of(&self, sample: SampleId) -> Bytes {
        Space::rounded(self.sizes[sample.0 as usize])
    }

    /// Puts a sample into a tier and removes it from the tier that held it.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the tier has too little room; nothing changes then.
    pub fn put(&mut self, sample: SampleId, tier: TierId) -> Result<(), NoRoom> {
        let from = self.tier_of(sample);
        if from == Some(tier) {
            return Ok(());
        }
        let (needed, free) = (self.len_of(sample), self.free(tier));
        if needed > free {
            return Err(NoRoom { needed, free });
        }
        match from {
            Some(from) => self.levels[usize::from(from.0)].used.0 -= needed.0,
            None => self.kept += 1,
        }
        self.levels[usize::from(tier.0)].used.0 += needed.0;
        self.tier_of.set(sample, tier.0);
        self.moves.push(Move { sample, from, to: Some(tier) });
        Ok(())
    }

    pub fn take_out(&mut self, sample: SampleId) {
        let Some(from) = self.tier_of(sample) else { return };
        let len = self.len_of(sample);
        self.levels[usize::from(from.0)].used.0 -= len.0;
        self.tier_of.set(sample, OUT);
        self.kept -= 1;
        self.moves.push(Move { sample, from: Some(from), to: None });
    }

    pub fn resize(&mut self, tier: TierId, capacity: Bytes) {
        if let Some(level) = self.levels.get_mut(usize::from(tier.0)) {
            level.capacity = capacity;
            self.resizes += 1;
        }
    }

    /// Counts the calls of [`Self::resize`].
    #[must_use]
    pub fn resizes(&self) -> u64 {
        self.resizes
    }

    /// The moves since the last call, in order.
    pub fn drain_moves(&mut self) -> alloc::vec::Drain<'_, Move> {
        self.moves.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_used_is_what_lies_there(
            ops in prop::collection::vec((0_u32..20, prop::option::of(0_u8..3)), 1..100),
            lens in prop::collection::vec(0_u64..300, 20),
        ) {
            let sizes: Arc<[Bytes]> = lens.into_iter().map(Bytes).collect();
            let mut residency = Residency::new(sizes, [Bytes(640), Bytes(320), Bytes(960)]);
            for (sample, tier) in ops {
                let sample = SampleId(sample);
                let before = (residency.tier_of(sample), residency.levels().to_vec());
                match tier.map(TierId) {
                    Some(tier) => if let Err(NoRoom { needed, free }) = residency.put(sample, tier) {
                        prop_assert!(needed > free);
                        prop_assert_eq!(before, (residency.tier_of(sample), residency.levels().to_vec()));
                    } else {
                        prop_assert_eq!(residency.tier_of(sample), Some(tier), "invariant 1");
                    },
                    None => residency.take_out(sample),
                }
                for tier in residency.tiers() {
                    let of_tier = (0..20).map(SampleId).filter(|it| residency.tier_of(*it) == Some(tier));
                    let used = of_tier.map(|it| residency.len_of(it).0).sum::<u64>();
                    let level = residency.levels()[usize::from(tier.0)];
                    prop_assert_eq!(level.used.0, used);
                    prop_assert!(level.used <= level.capacity, "invariant 2");
                }
            }
            prop_assert_eq!(residency.kept(), (0..20).filter(|it| residency.tier_of(SampleId(*it)).is_some()).count());
        }
    }
}
