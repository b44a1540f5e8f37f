//! Samples that a batch names where they are cached, instead of a copy of them.
//!
//! A sample is shown if its tier is one that trainers map, if it lies in one piece, and if the policy
//! lets it stay there. Nothing moves then: the batch is complete as soon as the sample is in its place.
//! The place stays until the batch is gone, in the residency of the cache and not as an operation that
//! others wait for: a trainer may hold one batch while it asks for the next.
//!
//! What the policy may give up when it is read again is copied in the last steps of an epoch. Batches
//! of the next epoch are staged beside these, and room that comes back only when a trainer lets go would
//! make decisions depend on when that is. In the last epoch nobody needs room any more, so even what the
//! policy gives up is shown.

use alloc::vec::Vec;

use super::{Command, Fault, Place, Retention, Session, Slot, staging::Taker, work::Kind};
use crate::{
    batch::{Entry, Shown},
    id::{BatchId, ChunkId, OpId, SampleId, TierId},
    retention::policy::Stay,
    units::Bytes,
};

/// A sample of a batch that is being staged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) batch: BatchId,
    pub(super) entry: usize,
    pub(super) sample: SampleId,
    pub(super) slot: Slot,
}

/// Steps at the end of an epoch in which nothing is shown that may be given up in the next one, for each
/// batch that is staged ahead: where batches are small, more of them fit.
const STEPS_PER_STAGED: u32 = 2;

impl Session {
    /// Keeps a sample's bytes where they are before the policy is asked, if a batch may name them there.
    pub(super) fn name(&mut self, batch: BatchId, sample: SampleId, len: Bytes) -> Option<Shown> {
        let tier = self.cache.place(sample)?.tier;
        if len.0 == 0 || !self.may_show(batch, tier) {
            return None;
        }
        self.cache.pin(sample)
    }

    /// Lets a batch name a sample that lay in `place` before the policy was asked, if it may still.
    /// Returns whether it does; the operation ends when the sample is there.
    pub(super) fn show(
        &mut self,
        op: OpId,
        needed: Needed,
        shown: Option<Shown>,
        place: &Place,
    ) -> bool {
        let Some(shown) = shown else { return false };
        let Needed { batch, entry, sample, slot } = needed;
        let lies_there = match self.cache.place(sample) {
            Some(now) => now == place,
            // After the last epoch nobody needs its room.
            None => self.is_last(batch),
        };
        let staged = self.ranks.get_mut(&batch.rank).and_then(|it| it.staged.get_mut(&batch));
        let Some(staged) = staged.filter(|_| lies_there) else {
            self.cache.unpin(shown);
            return false;
        };
        staged.batch.entries[entry].shown = Some(shown);
        let kind = Kind::Show { batch, entry, sample, tier: place.tier, slot };
        let source = self.writers.get(&sample).copied();
        self.plan(op, kind, None, &[], source);
        true
    }

    fn may_show(&self, batch: BatchId, tier: TierId) -> bool {
        let spec = self.future.spec();
        if !self.settings.shows.contains(&tier) {
            return false;
        }
        match self.settings.policy.stay(spec.shuffle) {
            Stay::ForGood => true,
            Stay::UntilRead => {
                let last = self.settings.staged_batches.saturating_mul(STEPS_PER_STAGED);
                let is_near_end = batch.step.0.saturating_add(last) >= spec.steps_in(batch.epoch);
                self.is_last(batch) || !is_near_end
            }
            Stay::Unknown => false,
        }
    }

    fn is_last(&self, batch: BatchId) -> bool {
        batch.epoch.0 + 1 >= self.future.spec().epochs
    }

    /// Takes note that a batch does not name the place of one of its samples any more.
    pub(super) fn unname(&mut self, batch: BatchId, entry: usize) {
        let Some(staging) = self.ranks.get_mut(&batch.rank) else { return };
        let staged = staging.staged.get_mut(&batch);
        let shown = staged.and_then(|staged| staged.batch.entries[entry].shown.take());
        staging.unnamed.extend(shown);
    }

    /// Gives the cache back what no batch names any more.
    pub(super) fn put_away(&mut self) {
        let unnamed: Vec<_> =
            self.ranks.values_mut().flat_map(|staging| staging.unnamed.drain(..)).collect();
        if !unnamed.is_empty() {
            unnamed.into_iter().for_each(|shown| self.cache.unpin(shown));
            self.follow_changes(None);
        }
    }

    /// Reads from the cold store what batches that nobody has yet name in a chunk that broke. One that was
    /// dropped is not taken up again. Of those that were handed over, the trainer has to read what is there.
    pub(super) fn fetch_what_is_shown_in(&mut self, tier: TierId, chunk: ChunkId) {
        self.spoil_what_was_dropped(tier, chunk);
        for needed in self.shown_in(tier, chunk) {
            let Needed { batch, entry, sample, slot } = needed;
            let shows_it = |kind: &Kind| match kind {
                Kind::Show { batch: of, entry: at, .. } => (*of, *at) == (batch, entry),
                _ => false,
            };
            let waits = self.works.values_mut().find(|work| shows_it(&work.kind));
            if let Some(work) = waits {
                work.lost = Some(Fault::Poisoned(tier, chunk));
                continue;
            }
            self.unname(batch, entry);
            let op = self.ops.name();
            let retention = Retention::Kept;
            let command = Command::Fetch { op, sample, to: slot, retention };
            let kind = Kind::Arrive { batch, entry, sample, tier: None, slot };
            self.plan(op, kind, Some(command), &[], None);
        }
    }

    /// Lets nobody have a batch that was dropped and names a place in a chunk.
    fn spoil_what_was_dropped(&mut self, tier: TierId, chunk: ChunkId) {
        let staged = self.ranks.values_mut().flat_map(|staging| staging.staged.values_mut());
        let dropped = staged.filter(|staged| staged.taker == Taker::Dropped);
        for staged in dropped {
            staged.is_stale |= staged.batch.entries.iter().any(|it| lies_in(it, tier, chunk));
        }
    }

    fn shown_in(&self, tier: TierId, chunk: ChunkId) -> Vec<Needed> {
        let staged = self.ranks.values().flat_map(|staging| staging.staged.values());
        let awaited = staged.filter(|staged| staged.is_awaited());
        let needed = awaited.flat_map(|staged| {
            let entries = staged.batch.entries.iter().enumerate();
            entries.filter(move |(_, entry)| lies_in(entry, tier, chunk)).map(|(at, entry)| {
                Needed {
                    batch: staged.batch.id,
                    entry: at,
                    sample: entry.sample,
                    slot: staged.slot_of(entry),
                }
            })
        });
        needed.collect()
    }
}

/// Whether a sample is shown in a chunk.
fn lies_in(entry: &Entry, tier: TierId, chunk: ChunkId) -> bool {
    entry.shown.is_some_and(|shown| (shown.tier, shown.chunk) == (tier, chunk))
}

#[cfg(test)]
impl Session {
    /// As if a copy had met broken memory.
    pub(super) fn end_with_poison(&mut self, tier: TierId, chunk: ChunkId) {
        self.give_up(tier, chunk);
        self.put_away();
    }
}
