//! Tiers that demote their oldest sample first, each into the next.

use crate::{
    id::{SampleId, TierId},
    retention::{
        policy::{fastest, lists::Lists, slower},
        residency::Residency,
    },
};

#[derive(Debug)]
pub(super) struct Queues(Lists);

impl Queues {
    pub(super) fn new(samples: usize, tiers: usize) -> Self {
        Self(Lists::new(samples, tiers))
    }

    pub(super) fn oldest(&self, tier: TierId) -> Option<SampleId> {
        self.0.oldest(usize::from(tier.0))
    }

    /// The sample must be in no queue.
    pub(super) fn enter(&mut self, sample: SampleId, tier: TierId) {
        self.0.enter(sample, usize::from(tier.0));
    }

    pub(super) fn leave(&mut self, sample: SampleId, tier: TierId) {
        self.0.leave(sample, usize::from(tier.0));
    }

    /// Puts a sample that lies in no tier into the fastest that can hold it. Other samples are
    /// demoted for it, the oldest first.
    pub(super) fn admit(&mut self, sample: SampleId, residency: &mut Residency) {
        if let Some(tier) = fastest(sample, residency) {
            self.settle(sample, tier, residency, &mut |_| true);
        }
    }

    /// Removes the oldest sample of a tier: it moves one tier down if it is `wanted` there, else it is
    /// evicted. Returns whether there was one.
    pub(super) fn give_up_oldest(
        &mut self,
        tier: TierId,
        residency: &mut Residency,
        wanted: &mut dyn FnMut(SampleId) -> bool,
    ) -> bool {
        let Some(oldest) = self.oldest(tier) else { return false };
        self.leave(oldest, tier);
        match slower(Some(tier), oldest, residency).filter(|_| wanted(oldest)) {
            Some(below) => self.settle(oldest, below, residency, wanted),
            None => residency.take_out(oldest),
        }
        true
    }

    /// Puts a sample that is in no queue into a tier that could hold it if it were empty.
    fn settle(
        &mut self,
        sample: SampleId,
        tier: TierId,
        residency: &mut Residency,
        wanted: &mut dyn FnMut(SampleId) -> bool,
    ) {
        while residency.free(tier) < residency.len_of(sample)
            && self.give_up_oldest(tier, residency, wanted)
        {}
        match residency.put(sample, tier) {
            Ok(()) => self.enter(sample, tier),
            Err(_) => residency.take_out(sample),
        }
    }

    pub(super) fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.leave(sample, from);
        if let Some(to) = to {
            self.enter(sample, to);
        }
    }
}
