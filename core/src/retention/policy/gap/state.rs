//! The state of each sample in a plan: twelve bytes, so that reading one costs one cache miss.

use crate::{
    id::{Epoch, SampleId, TierId},
    order::Spec,
    retention::future_accesses::Orders,
    space::{GRAIN, Space},
    units::Bytes,
};

/// Marks a sample in no tier.
const OUT: u8 = 0xf;

/// Set in a gap if the node reads the sample in the epoch that is planned.
const HERE: u8 = 0x80;

/// Tiers that a plan can tell apart; slower ones stay empty.
pub(super) const TIERS_MAX: usize = OUT as usize;

/// Epochs that are looked into at most: each takes four bytes for each of the node's reads, and the
/// time to permute it before the first batch.
pub(super) const GAP_MAX: u32 = 32;

/// The state of one sample in a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// Position in the planned epoch.
    pub(super) place: u32,
    /// Size in grains.
    grains: u32,
    /// Epochs from the planned one to the next use after it, if that is within the look-ahead; and
    /// [`HERE`].
    gap: u8,
    /// Its tier after the use that is being planned.
    next: u8,
    /// Its tier after the last use that was planned.
    latest: u8,
}

/// What the plan knows of a sample that is used in a certain later epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It lies in a tier then, independent of the present decision.
    Kept,
    /// The present plan decides.
    Open,
    /// It is read cold then.
    Cold,
}

impl State {
    pub(super) fn new(len: Bytes) -> Self {
        let grains = u32::try_from(Space::rounded(len).0 / GRAIN).unwrap_or(u32::MAX);
        Self { place: 0, grains, gap: 0, next: OUT, latest: OUT }
    }

    /// Bytes that it takes in a tier.
    pub(super) fn len(&self) -> u64 {
        u64::from(self.grains) * GRAIN
    }

    /// Records a read in the planned epoch; the sample leaves its tier if no other decision
    /// follows.
    pub(super) fn enter(&mut self, place: u32) {
        self.place = place;
        self.gap = HERE;
        self.next = OUT;
    }

    /// Records a next use that many epochs later, nearer than any recorded before. Returns the gap
    /// that it replaces, if the sample is read in the planned epoch.
    pub(super) fn is_used_after(&mut self, gap: u8) -> Replaced {
        let before = self.gap;
        self.gap = before & HERE | gap;
        match before {
            HERE => Replaced::Nothing,
            before if before & HERE != 0 => Replaced::Gap(usize::from(before & !HERE)),
            _ => Replaced::NotHere,
        }
    }

    /// Ends the planning of an epoch that reads the sample.
    pub(super) fn leave(&mut self) {
        self.gap = 0;
        self.latest = self.next;
    }

    /// Epochs to its next use, if that is within the look-ahead.
    pub(super) fn gap(&self) -> Option<usize> {
        let gap = self.gap & !HERE;
        (gap != 0).then_some(usize::from(gap))
    }

    /// Its standing in the epoch `gap` after the planned one, which reads it.
    pub(super) fn standing(&self, gap: usize) -> Standing {
        if usize::from(self.gap & !HERE) < gap {
            // It is used again in between: a gap shorter than the given one, which stays.
            Standing::Kept
        } else if self.gap & HERE != 0 {
            Standing::Open
        } else if self.latest != OUT {
            Standing::Kept
        } else {
            Standing::Cold
        }
    }

    /// Replaces the planned tier by the actual one.
    pub(super) fn forget_plan(&mut self, tier: Option<TierId>) {
        let tier = tier.map_or(OUT, |tier| tier.0.min(OUT));
        (self.gap, self.next, self.latest) = (0, tier, tier);
    }

    pub(super) fn decide(&mut self, tier: Option<u8>) {
        self.next = tier.unwrap_or(OUT);
    }

    /// Its tier after its use in the epoch that is being planned.
    pub(super) fn decided(&self) -> Option<u8> {
        (self.next != OUT).then_some(self.next)
    }

    /// The tier in which it lies when the planned epoch reads it.
    pub(super) fn tier(&self) -> Option<u8> {
        (self.latest != OUT).then_some(self.latest)
    }
}

/// The record that a nearer next use replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The planned epoch does not read the sample.
    NotHere,
    /// No next use was recorded before.
    Nothing,
    /// A use that many epochs later.
    Gap(usize),
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
