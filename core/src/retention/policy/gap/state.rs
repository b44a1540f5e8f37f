//! What a plan knows of each sample: twelve bytes, so that looking at one costs one cache miss.

use crate::{
    id::{Epoch, SampleId, TierId},
    order::Spec,
    retention::future_accesses::Orders,
    space::{GRAIN, Space},
    units::Bytes,
};

/// In no tier.
const OUT: u8 = 0xf;

/// Set in a gap if the node reads the sample in the epoch that is planned.
const HERE: u8 = 0x80;

/// Tiers that a plan can tell apart; slower ones stay empty.
pub(super) const TIERS_MAX: usize = OUT as usize;

/// Epochs that are looked into at most: each takes four bytes for each of the node's reads, and the time
/// to permute it before the first batch.
pub(super) const GAP_MAX: u32 = 32;

/// One sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// Where in the planned epoch it is read.
    pub(super) place: u32,
    /// What it takes in a tier.
    grains: u32,
    /// Epochs from the planned one to the next use after it, if that is looked into; and [`HERE`].
    gap: u8,
    /// Its tier after the use that is being planned.
    next: u8,
    /// Its tier after the last use that was planned.
    latest: u8,
}

/// What is known of a sample that is used in a certain later epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Lies in a tier then, whatever is decided now.
    Kept,
    /// Is decided now.
    Open,
    /// Is read cold then.
    Cold,
}

impl State {
    pub(super) fn new(len: Bytes) -> Self {
        let grains = u32::try_from(Space::rounded(len).0 / GRAIN).unwrap_or(u32::MAX);
        Self { place: 0, grains, gap: 0, next: OUT, latest: OUT }
    }

    /// What it takes in a tier, in bytes.
    pub(super) fn len(&self) -> u64 {
        u64::from(self.grains) * GRAIN
    }

    /// Notes that it is read in the epoch that is planned; it leaves its tier if nothing else follows.
    pub(super) fn enter(&mut self, place: u32) {
        self.place = place;
        self.gap = HERE;
        self.next = OUT;
    }

    /// Notes a next use so many epochs later, nearer than any that was noted before. Returns the gap
    /// that this takes the place of, if the sample is read in the planned epoch.
    pub(super) fn is_used_after(&mut self, gap: u8) -> Replaced {
        let before = self.gap;
        self.gap = before & HERE | gap;
        match before {
            HERE => Replaced::Nothing,
            before if before & HERE != 0 => Replaced::Gap(usize::from(before & !HERE)),
            _ => Replaced::NotHere,
        }
    }

    /// Ends the planning of an epoch that reads it.
    pub(super) fn leave(&mut self) {
        self.gap = 0;
        self.latest = self.next;
    }

    /// Epochs to its next use, if that is looked into.
    pub(super) fn gap(&self) -> Option<usize> {
        let gap = self.gap & !HERE;
        (gap != 0).then_some(usize::from(gap))
    }

    /// What is known of it in the epoch `gap` after the planned one, which reads it.
    pub(super) fn standing(&self, gap: usize) -> Standing {
        if usize::from(self.gap & !HERE) < gap {
            // Used again in between: a shorter gap than the one in question, which stays.
            Standing::Kept
        } else if self.gap & HERE != 0 {
            Standing::Open
        } else if self.latest != OUT {
            Standing::Kept
        } else {
            Standing::Cold
        }
    }

    /// Takes what is true for what was planned.
    pub(super) fn forget_plan(&mut self, lies: Option<TierId>) {
        let lies = lies.map_or(OUT, |tier| tier.0.min(OUT));
        (self.gap, self.next, self.latest) = (0, lies, lies);
    }

    pub(super) fn decide(&mut self, tier: Option<u8>) {
        self.next = tier.unwrap_or(OUT);
    }

    /// Its tier after its use in the epoch that is being planned.
    pub(super) fn decided(&self) -> Option<u8> {
        (self.next != OUT).then_some(self.next)
    }

    /// The tier in which it lies when the planned epoch reads it.
    pub(super) fn lies(&self) -> Option<u8> {
        (self.latest != OUT).then_some(self.latest)
    }
}

/// What a nearer next use takes the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The planned epoch does not read the sample.
    NotHere,
    /// No use was noted before.
    Nothing,
    /// A use so many epochs later.
    Gap(usize),
}

/// Shows the batches of a node in the order in which ranks in lock-step read them.
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
