//! Tiers that demote the sample whose next use is farthest in the future, each into the next tier.
//!
//! A sample that was read, or demoted by a faster tier, is compared with those in the tier: the one
//! with the farthest next use moves to the next tier, and is evicted after the last. With samples
//! of equal size this is the stack of Mattson et al. (1970, doi:10.1147/sj.92.0078) for Belady's
//! rule with bypass: for every j the first j tiers together hold what one cache of their joint
//! capacity would hold. With unequal sizes a sample enters a tier if the samples with farther next
//! uses take at least its bytes; the optimum would be a knapsack.
//!
//! An unknown next use counts as farthest, and is looked up again before it causes an eviction.

use alloc::vec::Vec;

use super::{Read, heaps::Heaps};
use crate::{
    id::{Epoch, SampleId, TierId},
    retention::{
        future_accesses::{FutureAccesses, NextUse, Use},
        policy::slower,
        residency::Residency,
    },
};

/// The key of a next use that is not known yet: beyond every known use.
const LATER: u64 = u64::MAX - 1;

/// The key of a sample that is not used again: beyond [`LATER`].
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Farthest {
    heaps: Heaps,
    epoch: Epoch,
}

impl Farthest {
    pub(super) fn new(samples: usize, tiers: usize) -> Self {
        Self { heaps: Heaps::new(samples, tiers), epoch: Epoch(0) }
    }

    pub(super) fn drop(&mut self, sample: SampleId, residency: &mut Residency) {
        if let Some(tier) = residency.tier_of(sample) {
            self.heaps.leave(sample, tier);
            residency.take_out(sample);
        }
    }

    /// Keeps a sample that was read in the tier that fits its next use, or evicts it.
    pub(super) fn keep(
        &mut self,
        read: Read,
        next: NextUse,
        future: &FutureAccesses,
        residency: &mut Residency,
    ) {
        self.renew(read.at, future, residency);
        let carried = Carried { sample: read.sample, key: key(next), now: read.at };
        let current = residency.tier_of(read.sample);
        if let Some(current) = current {
            self.heaps.leave(read.sample, current);
        }
        self.settle(carried, None, current, future, residency);
    }

    pub(super) fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        let key = self.heaps.key(sample);
        self.heaps.leave(sample, from);
        if let Some(to) = to {
            self.heaps.enter(sample, to, key);
        }
    }

    /// Puts a sample into the first tier below `above` where samples with farther next uses can
    /// make room for it, and demotes those; evicts it if there is no such tier. `current`
    /// is the tier of a sample that was just read, if any.
    fn settle(
        &mut self,
        carried: Carried,
        above: Option<TierId>,
        current: Option<TierId>,
        future: &FutureAccesses,
        residency: &mut Residency,
    ) {
        let Carried { sample, key, .. } = carried;
        let mut tier = slower(above, sample, residency);
        while let Some(here) = tier {
            if current == Some(here) {
                self.heaps.enter(sample, here, key);
                return;
            }
            if let Some(farther) = self.make_way(carried, here, future, residency) {
                if current.is_some() {
                    // It lies in staging; the demoted samples need its place.
                    residency.take_out(sample);
                }
                // The nearest first, so that none of them is moved twice.
                for (sample, key) in farther.into_iter().rev() {
                    let carried = Carried { sample, key, now: carried.now };
                    self.settle(carried, Some(here), None, future, residency);
                }
                // There is room: the demoted samples made it.
                if residency.put(sample, here).is_ok() {
                    self.heaps.enter(sample, here, key);
                }
                return;
            }
            tier = slower(Some(here), sample, residency);
        }
        residency.take_out(sample);
    }

    /// Removes from the heap of a tier the samples that make room for a sample with a nearer next
    /// use, the farthest first; none, and `None`, if they are not enough.
    fn make_way(
        &mut self,
        carried: Carried,
        tier: TierId,
        future: &FutureAccesses,
        residency: &Residency,
    ) -> Option<Vec<(SampleId, u64)>> {
        let mut free = residency.free(tier);
        let mut farther = Vec::new();
        while free < residency.len_of(carried.sample) {
            let farthest = self.farthest(tier, carried.now, future);
            let Some((sample, key)) = farthest.filter(|(_, key)| *key > carried.key) else {
                for (sample, key) in farther {
                    self.heaps.enter(sample, tier, key);
                }
                return None;
            };
            self.heaps.leave(sample, tier);
            free.0 += residency.len_of(sample).0;
            farther.push((sample, key));
        }
        Some(farther)
    }

    fn farthest(
        &mut self,
        tier: TierId,
        now: Use,
        future: &FutureAccesses,
    ) -> Option<(SampleId, u64)> {
        loop {
            let sample = self.heaps.greatest(tier)?;
            let known = self.heaps.key(sample);
            if known != LATER {
                return Some((sample, known));
            }
            match key(future.next_use(sample, now)) {
                LATER => return Some((sample, LATER)),
                key => self.heaps.change(sample, tier, key),
            }
        }
    }

    /// Looks up next uses that should have happened an epoch ago: a trainer that jumps leaves such
    /// samples behind, and without this they would stay for ever.
    fn renew(&mut self, now: Use, future: &FutureAccesses, residency: &Residency) {
        if now.epoch <= self.epoch {
            return;
        }
        self.epoch = now.epoch;
        let past = key(NextUse::At(Use { epoch: Epoch(now.epoch.0 - 1), place: 0 }));
        for tier in residency.tiers() {
            let samples = self.heaps.samples(tier);
            let stale: Vec<_> = samples.filter(|sample| self.heaps.key(*sample) < past).collect();
            for sample in stale {
                self.heaps.change(sample, tier, key(future.next_use(sample, now)));
            }
        }
    }
}

/// A sample on its way to a tier.
#[derive(Debug, Clone, Copy)]
struct Carried {
    sample: SampleId,
    /// The key of its next use.
    key: u64,
    now: Use,
}

/// Later uses have greater keys.
fn key(next: NextUse) -> u64 {
    match next {
        NextUse::At(next) => u64::from(next.epoch.0) << 32 | u64::from(next.place),
        NextUse::Later => LATER,
        NextUse::Never => NEVER,
    }
}
