//! What the page cache of Linux keeps: two lists, and shadow entries of evicted samples.
//!
//! After `mm/workingset.c` and `mm/vmscan.c` of the kernel, as far as they concern file pages that are only
//! read, without swap and without multi-generational lists:
//!
//! 1. What is read from the cold store enters the inactive list. If it is read again before it is
//!    evicted, it moves to the active list.
//! 2. The oldest sample of the inactive list is evicted. Its shadow entry holds the age of the
//!    lists, which counts the bytes that were evicted or activated.
//! 3. If it is read again, its refault distance is the age since then: the room that it lacked. If
//!    that is at most the size of the active list, evicting active samples instead would have kept
//!    it, and it enters the active list at once.
//! 4. While the inactive list is smaller than 1/20 of the active one, the oldest sample of the
//!    active list moves to the inactive one.
//!
//! Simplified: a sample stands for its pages, so it is read whole and has no other read-ahead; the
//! kernel marks a page at the first access and activates it at the second, here the first access is
//! the one that reads it in; the limit of 4 is the kernel's for 40 GiB (`inactive_is_low`), for
//! tiers of any size; the kernel also ages the active list when refaults activate, and reclaims in
//! batches. The lists extend over all tiers: like a zone, a tier takes what the faster ones have no
//! room for, and nothing moves between them.

use alloc::{sync::Arc, vec, vec::Vec};

use super::{Policy, Read, Setting, fastest, first_with_room, lists::Lists};
use crate::{
    id::{SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
    space::Space,
    units::Bytes,
};

const INACTIVE: u8 = 0;

const ACTIVE: u8 = 1;

/// The most times that the active list may be larger than the inactive one.
const RATIO: u64 = 20;

/// Marks a sample that was never evicted.
const NO_SHADOW: u64 = u64::MAX;

/// Keeps samples that were read twice within the reach of the lists.
#[derive(Debug)]
pub(super) struct PageCache {
    sizes: Arc<[Bytes]>,
    lists: Lists,
    /// List of each sample that is kept.
    list_of: Vec<u8>,
    /// The shadow entry of each sample that is not kept: the age at which it was evicted.
    shadows: Vec<u64>,
    used: [Bytes; 2],
    age: u64,
}

impl PageCache {
    pub(super) fn new(setting: &Setting) -> Self {
        let samples = setting.sizes.len();
        Self {
            sizes: Arc::clone(&setting.sizes),
            lists: Lists::new(samples, 2),
            list_of: vec![INACTIVE; samples],
            shadows: vec![NO_SHADOW; samples],
            used: [Bytes(0); 2],
            age: 0,
        }
    }

    fn len_of(&self, sample: SampleId) -> u64 {
        Space::rounded(self.sizes[sample.0 as usize]).0
    }

    fn enter(&mut self, sample: SampleId, list: u8) {
        self.lists.enter(sample, usize::from(list));
        self.list_of[sample.0 as usize] = list;
        self.used[usize::from(list)].0 += self.len_of(sample);
    }

    fn leave(&mut self, sample: SampleId) {
        let list = self.list_of[sample.0 as usize];
        self.lists.leave(sample, usize::from(list));
        self.used[usize::from(list)].0 -= self.len_of(sample);
    }

    /// The sample must be in no list.
    fn activate(&mut self, sample: SampleId) {
        self.enter(sample, ACTIVE);
        self.age += self.len_of(sample);
    }

    /// Whether the refault distance is at most the size of the active list (rule 3).
    fn was_evicted_too_early(&self, sample: SampleId) -> bool {
        let shadow = self.shadows[sample.0 as usize];
        shadow != NO_SHADOW && self.age - shadow <= self.used[usize::from(ACTIVE)].0
    }

    /// Evicts the oldest sample of the inactive list.
    fn reclaim(&mut self) -> Option<SampleId> {
        let [inactive, active] = [INACTIVE, ACTIVE].map(usize::from);
        while self.used[inactive].0.saturating_mul(RATIO) < self.used[active].0
            && let Some(oldest) = self.lists.oldest(active)
        {
            self.leave(oldest);
            self.enter(oldest, INACTIVE);
        }
        let oldest = self.lists.oldest(inactive)?;
        self.leave(oldest);
        self.shadows[oldest.0 as usize] = self.age;
        self.age += self.len_of(oldest);
        Some(oldest)
    }
}

impl Policy for PageCache {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, read: Read, _: &FutureAccesses, residency: &mut Residency) {
        let sample = read.sample;
        if residency.tier_of(sample).is_some() {
            if self.list_of[sample.0 as usize] == INACTIVE {
                self.leave(sample);
                self.activate(sample);
            }
            return;
        }
        if fastest(sample, residency).is_none() {
            return;
        }
        let is_active = self.was_evicted_too_early(sample);
        let tier = loop {
            if let Some(tier) = first_with_room(sample, residency) {
                break tier;
            }
            let Some(evicted) = self.reclaim() else { return };
            residency.take_out(evicted);
        };
        // There is room: the tier was chosen for the sample.
        if residency.put(sample, tier).is_ok() {
            if is_active { self.activate(sample) } else { self.enter(sample, INACTIVE) }
        }
    }

    fn displaced(&mut self, sample: SampleId, _: TierId, to: Option<TierId>) {
        if to.is_none() {
            self.leave(sample);
        }
    }
}
