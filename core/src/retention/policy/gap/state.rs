//! The state of each sample in a plan: sixteen bytes, so that reading one costs one cache miss.

use alloc::vec::Vec;
use core::hint::black_box;

use crate::{
    id::{Epoch, SampleId, TierId},
    order::Spec,
    retention::future_accesses::Orders,
    space::{GRAIN, Space},
    units::Bytes,
};

const OUT: u8 = 0xf;

/// Tiers that a plan can tell apart; slower ones stay empty.
pub(super) const TIERS_MAX: usize = OUT as usize;

/// The most epochs that are looked into: each takes four bytes for each of the node's reads, and the time
/// to permute it before the first batch.
pub(super) const GAP_MAX: u32 = 32;

#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// Position in the planned epoch.
    pub(super) place: u32,
    grains: u32,
    /// The epochs after the planned one that read the sample.
    uses: Uses,
    is_here: bool,
    /// The tier after the use that is being planned.
    next: u8,
    /// The tier after the last use that was planned.
    latest: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It lies in a tier then, independent of the present decision.
    Kept,
    /// The present plan decides.
    Open,
    Cold,
}

impl State {
    pub(super) fn new(len: Bytes) -> Self {
        let grains = u32::try_from(Space::rounded(len).0 / GRAIN).unwrap_or(u32::MAX);
        Self { place: 0, grains, uses: Uses(0), is_here: false, next: OUT, latest: OUT }
    }

    pub(super) fn len(&self) -> u64 {
        u64::from(self.grains) * GRAIN
    }

    /// Records a read in the planned epoch; the sample leaves its tier if no other decision
    /// follows. Returns whether it is the first read of it there.
    pub(super) fn enter(&mut self, epoch: Epoch, place: u32) -> bool {
        self.place = place;
        self.uses.remove(epoch);
        self.next = OUT;
        !core::mem::replace(&mut self.is_here, true)
    }

    /// Records a use in an epoch that is later than all recorded before. Returns whether it is the
    /// next one of a sample that the planned epoch reads.
    pub(super) fn is_used_in(&mut self, epoch: Epoch) -> bool {
        let is_next = self.is_here && self.uses == Uses(0);
        self.uses.add(epoch);
        is_next
    }

    pub(super) fn leave(&mut self) {
        self.is_here = false;
        self.latest = self.next;
    }

    pub(super) fn forget_uses(&mut self) {
        self.uses = Uses(0);
    }

    /// Epochs from the planned one to the next use; `None` unless the planned one reads the sample and the
    /// next use is within the look-ahead.
    pub(super) fn gap(&self, planned: Epoch) -> Option<usize> {
        self.uses.next_after(planned).filter(|_| self.is_here)
    }

    /// Its standing in the epoch `gap` after the planned one, which reads it.
    pub(super) fn standing(&self, planned: Epoch, gap: usize) -> Standing {
        if self.uses.next_after(planned).is_none_or(|next| next < gap) {
            // It is used again in between: a gap shorter than the given one, which stays.
            Standing::Kept
        } else if self.is_here {
            Standing::Open
        } else if self.latest != OUT {
            Standing::Kept
        } else {
            Standing::Cold
        }
    }

    pub(super) fn forget_plan(&mut self, tier: Option<TierId>) {
        let tier = tier.map_or(OUT, |tier| tier.0.min(OUT));
        (self.is_here, self.next, self.latest) = (false, tier, tier);
        self.forget_uses();
    }

    pub(super) fn decide(&mut self, tier: Option<u8>) {
        self.next = tier.unwrap_or(OUT);
    }

    /// The tier after the use in the epoch that is being planned.
    pub(super) fn decided(&self) -> Option<u8> {
        (self.next != OUT).then_some(self.next)
    }

    /// The tier in which it lies when the planned epoch reads it.
    pub(super) fn tier(&self) -> Option<u8> {
        (self.latest != OUT).then_some(self.latest)
    }
}

/// The epochs of a moving window of [`Uses::BITS`], one bit for each, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Uses(u32);

impl Uses {
    const BITS: u32 = GAP_MAX;

    fn add(&mut self, epoch: Epoch) {
        self.0 |= 1 << (epoch.0 % Self::BITS);
    }

    fn remove(&mut self, epoch: Epoch) {
        self.0 &= !(1 << (epoch.0 % Self::BITS));
    }

    /// The distance from `epoch` to the first of them. All are later than `epoch`.
    fn next_after(self, epoch: Epoch) -> Option<usize> {
        let from_next = self.0.rotate_right(epoch.0.wrapping_add(1) % Self::BITS);
        (from_next != 0).then(|| from_next.trailing_zeros() as usize + 1)
    }
}

/// The states of all samples, which are larger than the CPU caches.
///
/// If each state were read and changed in turn, each access would wait for memory. So the states of a block
/// of samples are read first, independently of each other, and then used in the caches.
#[derive(Debug)]
pub(super) struct States(Vec<State>);

/// Few enough that the states are still in the first-level cache when they are used: 256 lines are 16 KiB.
const BLOCK: usize = 256;

impl States {
    pub(super) fn new(states: impl Iterator<Item = State>) -> Self {
        Self(states.collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut State> {
        self.0.iter_mut()
    }

    pub(super) fn get_mut(&mut self, sample: SampleId) -> &mut State {
        &mut self.0[sample.0 as usize]
    }

    pub(super) fn visit(&self, samples: &[SampleId], mut see: impl FnMut(SampleId, &State)) {
        for block in samples.chunks(BLOCK) {
            self.touch(block);
            block.iter().for_each(|sample| see(*sample, &self.0[sample.0 as usize]));
        }
    }

    pub(super) fn visit_mut(
        &mut self,
        samples: &[SampleId],
        mut see: impl FnMut(SampleId, &mut State),
    ) {
        for block in samples.chunks(BLOCK) {
            self.touch(block);
            block.iter().for_each(|sample| see(*sample, &mut self.0[sample.0 as usize]));
        }
    }

    fn touch(&self, samples: &[SampleId]) {
        black_box(samples.iter().fold(0, |sum, sample| sum ^ self.0[sample.0 as usize].grains));
    }
}

/// Visits the batches of a node in the order in which ranks in lock-step read them.
pub(super) fn for_each_batch(
    spec: &Spec,
    orders: &Orders,
    epoch: Epoch,
    see: &mut dyn FnMut(&[SampleId]),
) {
    let Some(order) = orders.get(&epoch) else { return };
    for step in (0..spec.steps_in(epoch)).map(crate::id::Step) {
        for local_rank in 0..spec.world.ranks_per_node {
            see(order.batch(local_rank, step));
        }
    }
}
