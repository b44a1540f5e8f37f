//! Which batch is staged next, and what it needs and leaves: the decisions of a session.

use alloc::{vec, vec::Vec};

use super::{
    Held, LookAhead, Operation, Origin, Place, Promotion, Refusal, Retention, Session, Slot,
    deadlines::BatchNumber, entry::EntryRef, in_place, operations::Work, planner::Reading,
    staging::Claim,
};
use crate::{
    batch::InPlace,
    id::{BatchId, NodeId, OpId, SampleId, TierId},
    retention::cache::Change,
    tier::Kind,
    units::Bytes,
};

/// A sample on its way into staging.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    entry: EntryRef,
    slot: Slot,
    /// `None` while it is the last part of the list that is gathered.
    op: Option<OpId>,
}

/// Samples of a batch that are copied from one tier, planned as one operation when the list is full, or
/// before anything else is planned that might use their places.
#[derive(Debug)]
pub(super) struct Gathered {
    /// That of the first part.
    entry: EntryRef,
    parts: Vec<Promotion>,
    bytes: Bytes,
}

/// The bytes after which a list is full: copying them takes several times as long as waking a thread, and
/// what is needed sooner waits no longer than that.
const LIST_BYTES: Bytes = Bytes(256 << 10);

/// A batch that has its range, of which the first samples are planned. It is complete only when all are.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartlyPlanned {
    batch: BatchId,
    planned: usize,
}

impl Session {
    /// Stages batches until every rank has as many as it may have, the earliest batch first, or the slice
    /// is used up.
    pub(super) fn stage(&mut self) {
        let staged_max = self.depth;
        let mut left = self.slice.map_or(usize::MAX, |slice| slice.get() as usize);
        loop {
            if let Some(partly) = self.partly_planned.take() {
                left -= self.stage_samples(partly, left);
            }
            let next = || self.staging.next(staged_max);
            self.has_more = self.partly_planned.is_some() || (left == 0 && next().is_some());
            if self.has_more {
                return;
            }
            let Some(batch) = next() else { break };
            if !self.stage_batch(batch)
                && let Some(staging) = self.staging.get_mut(batch.rank)
            {
                staging.block();
            }
        }
        self.has_more = self.look_ahead(left);
    }

    /// Gives one batch its range in the arena; its samples are planned next. Returns `false` if the rank
    /// must wait: for room, for its trainer to publish the order, or for a request.
    fn stage_batch(&mut self, id: BatchId) -> bool {
        let after = self.planner.spec().after(id);
        let Some(staging) = self.staging.get_mut(id.rank) else { return false };
        if let Some(goes_on) = staging.resume(id, after) {
            return goes_on;
        }
        if self.planner.prepare(id, self.staging.requested()).is_none() {
            return false;
        }
        let Some(staging) = self.staging.get_mut(id.rank) else { return false };
        let Some(samples) = self.planner.samples(id) else { return false };
        if samples.is_empty() {
            staging.move_cursor(self.planner.spec().next_epoch(id));
            return true;
        }
        self.planner.cache().touch(samples);
        let (batch, inputs) = self.settings.lay_out(id, samples);
        if batch.len > staging.len() {
            let reason = Refusal::TooLarge { needed: batch.len, arena: staging.len() };
            return self.refuse_wanted(id, reason);
        }
        let Some(piece) = staging.make_room(id, batch.len) else {
            let connection = staging.wanted_by(id);
            let is_stuck = connection.is_some_and(|connection| staging.is_stuck_for(connection));
            return is_stuck && !staging.restore() && self.refuse_wanted(id, Refusal::NoRoom);
        };
        staging.advance(id, after);
        let number = BatchNumber::of(id, self.planner.spec());
        staging.place((batch, inputs), number, piece, self.now);
        self.partly_planned = Some(PartlyPlanned { batch: id, planned: 0 });
        true
    }

    /// Refuses a batch if a trainer asked for it, and returns whether one did.
    fn refuse_wanted(&mut self, batch: BatchId, reason: Refusal) -> bool {
        let after = self.planner.spec().after(batch);
        let Some(staging) = self.staging.get_mut(batch.rank) else { return false };
        let Some(connection) = staging.take_wanted(batch) else { return false };
        staging.advance(batch, after);
        self.refuse(connection, batch, reason);
        true
    }

    /// Plans up to `most` further samples of a batch, and returns their number. The samples of a batch that
    /// was dropped meanwhile are not planned.
    fn stage_samples(&mut self, partly: PartlyPlanned, most: usize) -> usize {
        let PartlyPlanned { batch, planned } = partly;
        // A tier may have been resized since the batch got its range, and the plan with it.
        let reading = self.planner.prepare(batch, self.staging.requested());
        let reading = reading.unwrap_or(Reading::Stray);
        let mut count = 0;
        while let Some((sample, slot)) = self.slot_to_fill(batch, planned + count) {
            if count == most {
                self.plan_gathered();
                self.partly_planned = Some(PartlyPlanned { batch, planned: planned + count });
                return count;
            }
            self.stage_sample(EntryRef { batch, index: planned + count }, sample, slot, reading);
            count += 1;
        }
        self.plan_gathered();
        if let Some(next) = self.planner.leads_to(batch) {
            self.apply_schedule(next);
            self.planner.begin_next();
        }
        if let Some(staged) = self.staging.batch_mut(batch) {
            // It was dropped before all of it was planned: a request for it later must not get the rest
            // as it lies in the arena.
            staged.is_stale |= planned + count < staged.batch.entries.len();
            staged.pending -= 1;
        }
        self.check_complete(batch);
        count
    }

    /// The sample of an entry of a batch that is still wanted, and the slot for its bytes in the cached
    /// form.
    fn slot_to_fill(&self, batch: BatchId, index: usize) -> Option<(SampleId, Slot)> {
        let staged = self.staging.batch(batch)?;
        let entry = staged.batch.entries.get(index).filter(|_| staged.claim != Claim::Dropped)?;
        let len = self.settings.sizes[entry.sample.0 as usize];
        let slot = staged.input_of(index, len).unwrap_or_else(|| staged.slot_of(entry));
        Some((entry.sample, slot))
    }

    /// Plans the operations that bring a sample to its batch, and those that follow from it in the tiers.
    fn stage_sample(&mut self, entry: EntryRef, sample: SampleId, slot: Slot, reading: Reading) {
        self.overtake(sample);
        let held = match self.planner.cache().due(sample) {
            Some(_) => Held::Ahead,
            None => Held::Retained,
        };
        let bypasses = |tier| self.settings.aim.bypasses(self.settings.policy, tier);
        let place = self.planner.cache().place(sample).filter(|it| !bypasses(it.tier));
        let mut pin = None;
        if reading == Reading::Planned {
            if place.is_some() {
                // First the pin: what the policy decides then cannot take the bytes away.
                pin = self.pin(entry.batch, sample, slot);
            }
            self.planner.read(entry, sample);
            let retained = place.as_ref().filter(|_| held == Held::Retained).map(|it| it.tier);
            let stays = self.planner.cache().place(sample).map(|place| place.tier);
            self.progress.decisions.note(entry, sample, retained, stays);
        } else {
            self.planner.cache_mut().use_up(sample);
        }
        let work = match (place, pin) {
            (Some(place), Some(pin)) if self.names_in_place(entry, sample, pin, &place) => {
                Some(Work::ReadInPlace { sample, tier: place.tier, slot, held })
            }
            (Some(from), _) => {
                self.note_local(entry.batch, slot);
                self.gather(entry, Promotion { sample, from, to: slot, held })
            }
            (None, _) => Some(Work::Run(match self.peer_of(sample) {
                Some(from) => {
                    self.note_remote(entry.batch, slot);
                    Operation::Receive { sample, from, to: slot }
                }
                None => self.fetch_of(entry.batch, sample, slot),
            })),
        };
        let op = work.map(|work| self.plan(work, Some(entry), None));
        self.follow_changes(Some(Arrival { entry, slot, op }));
        if self.settings.look_ahead != LookAhead::Off {
            self.fetch_again(sample, entry.batch);
            self.follow_changes(None);
        }
    }

    /// Adds a copy to the list, or returns it as an operation of its own: a transform follows on it, or its
    /// bytes are still on their way, or many threads must wait for its disk at a time.
    fn gather(&mut self, entry: EntryRef, part: Promotion) -> Option<Work> {
        let is_transformed =
            self.staging.batch(entry.batch).is_none_or(|staged| !staged.inputs.is_empty());
        let is_on_disk = self.settings.tiers[usize::from(part.from.tier.0)].kind == Kind::Storage;
        if is_transformed || is_on_disk || self.operations.is_written(part.sample) {
            return Some(Work::Run(Operation::Promote { parts: vec![part] }));
        }
        let is_ended =
            |list: &Gathered| list.bytes >= LIST_BYTES || list.parts[0].from.tier != part.from.tier;
        if self.gathered.as_ref().is_some_and(is_ended) {
            self.plan_gathered();
        }
        let list =
            self.gathered.get_or_insert(Gathered { entry, parts: Vec::new(), bytes: Bytes(0) });
        list.bytes.0 += part.to.len.0;
        list.parts.push(part);
        None
    }

    fn plan_gathered(&mut self) {
        if let Some(Gathered { entry, parts, .. }) = self.gathered.take() {
            self.plan(Work::Run(Operation::Promote { parts }), Some(entry), None);
        }
    }

    /// If a sample that is the last part of the list stays, plans it as an operation of its own, for which
    /// the copy that keeps it can wait.
    fn plan_before(&mut self, changes: &[Change], arrival: Arrival) -> Arrival {
        let stays = changes.iter().any(|change| matches!(change, Change::Kept { .. }));
        if arrival.op.is_some() || !stays {
            return arrival;
        }
        let last = self.gathered.as_mut().and_then(|list| list.parts.pop());
        let last = last.expect("an arrival without an operation is the last part of the list");
        self.gathered = self.gathered.take().filter(|list| !list.parts.is_empty());
        self.plan_gathered();
        let alone = Work::Run(Operation::Promote { parts: vec![last] });
        Arrival { op: Some(self.plan(alone, Some(arrival.entry), None)), ..arrival }
    }

    /// Keeps the bytes of a sample where they are, if its batch may name them there.
    fn pin(&mut self, batch: BatchId, sample: SampleId, slot: Slot) -> Option<InPlace> {
        let tier = self.planner.cache().place(sample)?.tier;
        if slot.len.0 == 0 || !in_place::is_allowed(&self.settings, batch, tier) {
            return None;
        }
        self.planner.cache_mut().pin(sample)
    }

    /// Lets a batch name a pinned sample that lay in `place` before the policy was asked, if it still lies
    /// there. Returns whether it does; if not, the pin is removed.
    fn names_in_place(
        &mut self,
        entry: EntryRef,
        sample: SampleId,
        pin: InPlace,
        place: &Place,
    ) -> bool {
        let EntryRef { batch, index } = entry;
        let lies_there = match self.planner.cache().place(sample) {
            Some(now) => now == *place,
            None => in_place::is_last_epoch(self.planner.spec(), batch),
        };
        let Some(staged) = self.staging.batch_mut(batch).filter(|_| lies_there) else {
            self.planner.cache_mut().unpin(pin);
            return false;
        };
        staged.batch.entries[index].in_place = Some(pin);
        true
    }

    fn note_local(&mut self, batch: BatchId, slot: Slot) {
        self.staging.batch_mut(batch).into_iter().for_each(|staged| staged.local.0 += slot.len.0);
    }

    fn note_remote(&mut self, batch: BatchId, slot: Slot) {
        self.staging.batch_mut(batch).into_iter().for_each(|staged| staged.remote.0 += slot.len.0);
    }

    pub(super) fn peer_of(&self, sample: SampleId) -> Option<NodeId> {
        let holder = self.planner.cache().holder(sample)?;
        let is_asked = self.peers.contains(&holder) && !self.planner.cache().has_place(sample);
        is_asked.then_some(holder)
    }

    fn fetch_of(&mut self, batch: BatchId, sample: SampleId, to: Slot) -> Operation {
        let to = Slot { len: self.settings.stored()[sample.0 as usize], ..to };
        self.staging.batch_mut(batch).into_iter().for_each(|staged| staged.cold.0 += to.len.0);
        let is_kept = self.planner.cache().has_place(sample);
        let retention = if is_kept { Retention::Kept } else { Retention::Dropped };
        Operation::Fetch { sample, to, retention }
    }

    /// Plans the operations that follow from changes of the cache. `arrival` is the sample whose arrival
    /// caused them.
    pub(super) fn follow_changes(&mut self, arrival: Option<Arrival>) {
        let mut changes = core::mem::take(&mut self.changes);
        self.planner.cache_mut().swap_changes(&mut changes);
        let arrival = arrival.map(|arrival| self.plan_before(&changes, arrival));
        if changes.iter().any(Change::uses_places) {
            self.plan_gathered();
        }
        for change in changes.drain(..) {
            match change {
                Change::ChunkAdded { tier, chunk } => {
                    self.plan(Work::Run(Operation::AddChunk { tier, chunk }), None, None);
                }
                Change::ChunkDropped { tier, chunk } => {
                    self.plan(Work::DropChunk(tier, chunk), None, None);
                }
                Change::Kept { sample, to } => {
                    let Arrival { entry, slot, op } = arrival.expect("only what is read is kept");
                    let (from, len) = (Origin::Staging(slot), slot.len);
                    let copy = Operation::Demote { sample, from, len, to };
                    self.plan(Work::Run(copy), Some(entry), op);
                }
                Change::Demoted { sample, len, from, to } => {
                    let copy = Operation::Demote { sample, from: Origin::Tier(from), len, to };
                    self.plan(Work::Run(copy), arrival.map(|arrival| arrival.entry), None);
                }
                Change::FetchedAhead { sample, due, len, to } => {
                    let fetch = Operation::Prefetch { sample, len, to };
                    self.plan(Work::Run(fetch), Some(EntryRef::from(due)), None);
                }
                Change::Shifted { sample, due, len, from, to } => {
                    let runnable = self.cancel_fetch_ahead(sample);
                    let operation = if runnable.is_some() {
                        Operation::Prefetch { sample, len, to }
                    } else if to.tier < from.tier {
                        Operation::Advance { sample, from, len, to }
                    } else {
                        Operation::Demote { sample, from: Origin::Tier(from), len, to }
                    };
                    self.plan(Work::Run(operation), Some(EntryRef::from(due)), None);
                    self.start(runnable.unwrap_or_default());
                }
                Change::Abandoned { sample, due, len } => self.note_abandoned(sample, due, len),
                Change::GaveWay { sample, from } => {
                    self.operations.note_evicted(sample);
                    self.count_eviction(Some(from), true);
                }
                Change::Evicted { sample, from } => {
                    self.operations.note_evicted(sample);
                    self.count_eviction(from, arrival.is_some());
                }
            }
        }
        self.changes = changes;
    }

    fn count_eviction(&mut self, from: Option<TierId>, is_decided: bool) {
        let Some(evictions) = from.and_then(|tier| self.progress.evictions(tier)) else { return };
        let count = if is_decided { &mut evictions.policy } else { &mut evictions.resized };
        *count += 1;
    }
}
