//! Tiers that give up what is used farthest in the future, each into the next.
//!
//! What is read, or was given up by a faster tier, is compared with what the tier holds: whichever is
//! used farthest goes on to the next tier, and out after the last. With samples of equal size this is
//! the stack of Mattson et al. (1970, doi:10.1147/sj.92.0078) for Belady's rule with bypass: for every j
//! the first j tiers together hold what one cache of their joint capacity would hold. With unequal sizes
//! a sample enters a tier if those that are used farther than it take at least its bytes; the best
//! choice would be a knapsack.
//!
//! A next use that is not known counts as farthest, and is looked for again before anything is given up
//! on its account.

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

/// Beyond every use that is known.
const LATER: u64 = u64::MAX - 1;

/// Beyond even that.
const NEVER: u64 = u64::MAX;

/// When each sample that is kept is used next.
#[derive(Debug)]
pub(super) struct Farthest {
    heaps: Heaps,
    /// The last epoch of which a read was seen.
    epoch: Epoch,
}

impl Farthest {
    pub(super) fn new(samples: usize, tiers: usize) -> Self {
        Self { heaps: Heaps::new(samples, tiers), epoch: Epoch(0) }
    }

    /// Takes what was read out of its tier.
    pub(super) fn drop(&mut self, sample: SampleId, residency: &mut Residency) {
        if let Some(tier) = residency.tier_of(sample) {
            self.heaps.leave(sample, tier);
            residency.take_out(sample);
        }
    }

    /// Keeps what was read where its next use has it belong, or not at all.
    pub(super) fn keep(
        &mut self,
        read: Read,
        next: NextUse,
        future: &FutureAccesses,
        residency: &mut Residency,
    ) {
        self.renew(read.at, future, residency);
        let carried = Carried { sample: read.sample, key: key(next), now: read.at };
        let home = residency.tier_of(read.sample);
        if let Some(home) = home {
            self.heaps.leave(read.sample, home);
        }
        self.settle(carried, None, home, future, residency);
    }

    /// Follows a sample that was moved by something else.
    pub(super) fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        let key = self.heaps.key(sample);
        self.heaps.leave(sample, from);
        if let Some(to) = to {
            self.heaps.enter(sample, to, key);
        }
    }

    /// Puts a sample into the first tier below `above` in which it may take the place of what is used
    /// farther, and that down; out of all tiers if there is none. A sample that was read has its `home`
    /// in the tier where it lies.
    fn settle(
        &mut self,
        carried: Carried,
        above: Option<TierId>,
        home: Option<TierId>,
        future: &FutureAccesses,
        residency: &mut Residency,
    ) {
        let Carried { sample, key, .. } = carried;
        let mut tier = slower(above, sample, residency);
        while let Some(here) = tier {
            if home == Some(here) {
                self.heaps.enter(sample, here, key);
                return;
            }
            if let Some(farther) = self.make_way(carried, here, future, residency) {
                if home.is_some() {
                    // It lies in staging; its place is needed by what goes down.
                    residency.take_out(sample);
                }
                // The nearest first, so that none of them is moved twice.
                for (sample, key) in farther.into_iter().rev() {
                    let carried = Carried { sample, key, now: carried.now };
                    self.settle(carried, Some(here), None, future, residency);
                }
                // There is room: the others made way.
                if residency.put(sample, here).is_ok() {
                    self.heaps.enter(sample, here, key);
                }
                return;
            }
            tier = slower(Some(here), sample, residency);
        }
        residency.take_out(sample);
    }

    /// Takes those out of the heap of a tier that must leave it for a sample that is used before them,
    /// the farthest first; none, and `None`, if there are not enough of them.
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

    /// Looks again for the next use of what should have been used an epoch ago: a trainer that goes on
    /// elsewhere leaves such samples behind, and they would stay for ever.
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

/// A sample that looks for its tier.
#[derive(Debug, Clone, Copy)]
struct Carried {
    sample: SampleId,
    /// When it is used next.
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
