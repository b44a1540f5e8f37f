//! Which batch gets a place next, and what it needs and leaves: the decisions of a session.

use alloc::vec;

use super::{
    Command, Origin, Place, Refusal, Retention, Session, Slot,
    ahead::Reading,
    ops::{Access, Touch},
    show::Needed,
    staging::{Staged, Taker},
    stall::Marks,
    work::Kind,
};
use crate::{
    batch::Batch,
    id::{BatchId, ChunkId, OpId, SampleId, TierId},
    retention::{cache::Change, policy::Read},
    space::Piece,
    units::Bytes,
};

/// A sample on its way into staging.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    batch: BatchId,
    slot: Slot,
    op: OpId,
}

/// A batch that has its place, of which the first samples are planned. Until all are it is not complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unfinished {
    batch: BatchId,
    planned: usize,
}

impl Session {
    /// Gives batches places until every rank has what it may have, the earliest batch first, or the slice
    /// is used up.
    pub(super) fn stage(&mut self) {
        let staged_max = self.settings.staged_batches;
        let mut left = self.slice.map_or(usize::MAX, |slice| slice.get() as usize);
        loop {
            if let Some(unfinished) = self.unfinished.take() {
                left -= self.stage_samples(unfinished, left);
            }
            let next = || self.ranks.values().filter_map(|it| it.next(staged_max)).min();
            self.has_more = self.unfinished.is_some() || (left == 0 && next().is_some());
            if self.has_more {
                return;
            }
            let Some(batch) = next() else { return };
            if !self.stage_batch(batch)
                && let Some(staging) = self.ranks.get_mut(&batch.rank)
            {
                staging.is_blocked = true;
            }
        }
    }

    /// Gives one batch its place; what it needs is planned next. Returns `false` if the rank must wait: for
    /// room, for its trainer to publish the order, or for someone to ask.
    fn stage_batch(&mut self, id: BatchId) -> bool {
        let after = self.future.spec().after(id);
        let need = self.need_of(id);
        let staging = self.ranks.get_mut(&id.rank).expect("only ranks of this node are staged");
        if let Some(staged) = staging.staged.get_mut(&id) {
            if staged.is_stale {
                // Its place is free as soon as nothing is on its way there.
                return false;
            }
            if staged.taker == Taker::Dropped {
                // It was dropped to save room, and there is room again before its bytes arrived.
                staged.taker = Taker::Nobody;
            }
            staging.advance(id, after);
            return true;
        }
        if self.prepare(id).is_none() {
            return false;
        }
        let staging = self.ranks.get_mut(&id.rank).expect("only ranks of this node are staged");
        let Some(samples) = self.future.batch(id) else { return false };
        if samples.is_empty() {
            staging.cursor = self.future.spec().next_epoch(id);
            return true;
        }
        let sizes = &self.settings.sizes;
        let with_len = samples.iter().map(|sample| (*sample, sizes[sample.0 as usize]));
        let batch = Batch::lay_out(id, with_len);
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
        let taker = staging.take_wanted(id).map_or(Taker::Nobody, Taker::Requested);
        let staged = Staged {
            batch,
            need,
            local: Bytes(0),
            cold: Bytes(0),
            piece,
            // Until everything is planned: what is shown may be complete at once.
            pending: 1,
            unreadable: None,
            taker,
            is_stale: false,
            marks: Marks::new(staging.opened_at, self.now, self.settings.tiers.len()),
        };
        staging.staged.insert(id, staged);
        self.unfinished = Some(Unfinished { batch: id, planned: 0 });
        true
    }

    /// Plans what up to `most` further samples of a batch need, and returns how many that were. What nobody
    /// wants any more is left as it is.
    fn stage_samples(&mut self, unfinished: Unfinished, most: usize) -> usize {
        let Unfinished { batch, planned } = unfinished;
        // Memory may have changed since the batch got its place, and with it the plan.
        let reading = self.prepare(batch).unwrap_or(Reading::Stray);
        let mut count = 0;
        while let Some((sample, slot)) = self.slot_to_fill(batch, planned + count) {
            if count == most {
                self.unfinished = Some(Unfinished { batch, planned: planned + count });
                return count;
            }
            self.stage_sample(batch, reading, planned + count, slot, sample);
            count += 1;
        }
        self.note_staged(batch);
        let staging = self.ranks.get_mut(&batch.rank).expect("only ranks of this node are staged");
        staging.staged.get_mut(&batch).into_iter().for_each(|staged| staged.pending -= 1);
        self.look_at(batch);
        count
    }

    /// Sample and place of an entry of a batch that is still wanted.
    fn slot_to_fill(&self, batch: BatchId, index: usize) -> Option<(SampleId, Slot)> {
        let staged = self.ranks.get(&batch.rank)?.staged.get(&batch)?;
        let entry = staged.batch.entries.get(index).filter(|_| staged.taker != Taker::Dropped)?;
        Some((entry.sample, staged.slot_of(entry)))
    }

    /// Refuses a batch if someone asked for it, and returns whether someone did.
    fn refuse_wanted(&mut self, batch: BatchId, reason: Refusal) -> bool {
        let after = self.future.spec().after(batch);
        let Some(staging) = self.ranks.get_mut(&batch.rank) else { return false };
        let Some(connection) = staging.take_wanted(batch) else { return false };
        staging.advance(batch, after);
        self.refuse(connection, batch, reason);
        true
    }

    fn stage_sample(
        &mut self,
        batch: BatchId,
        reading: Reading,
        entry: usize,
        slot: Slot,
        sample: SampleId,
    ) {
        let op = self.ops.name();
        let needed = Needed { batch, entry, sample, slot };
        let place = self.cache.place(sample).cloned();
        let mut shown = None;
        if reading == Reading::Planned {
            shown = self.name(batch, sample, slot.len);
            let read = Read { sample, at: self.future.read_of(batch, entry) };
            self.cache.read(read, &self.future);
        }
        if !place.as_ref().is_some_and(|place| self.show(op, needed, shown, place)) {
            self.bring(op, needed, place);
        }
        self.follow_changes(Some(Arrival { batch, slot, op }));
    }

    /// Plans the copy of a sample out of `place`, or its fetch.
    fn bring(&mut self, op: OpId, needed: Needed, place: Option<Place>) {
        let Needed { batch, entry, sample, slot } = needed;
        let staged = self.ranks.get_mut(&batch.rank).and_then(|it| it.staged.get_mut(&batch));
        if let Some(staged) = staged {
            let sum = if place.is_some() { &mut staged.local } else { &mut staged.cold };
            sum.0 += slot.len.0;
        }
        if let Some(place) = place {
            let command = Command::Promote { op, sample, from: place.clone(), to: slot };
            let kind = Kind::Arrive { batch, entry, sample, tier: Some(place.tier), slot };
            let touch = Touch { tier: place.tier, pieces: place.pieces, access: Access::Read };
            let source = self.writers.get(&sample).copied();
            self.plan(op, kind, command, &[touch], source);
        } else {
            let stays = self.cache.place(sample).is_some();
            let retention = if stays { Retention::Kept } else { Retention::Dropped };
            let command = Command::Fetch { op, sample, to: slot, retention };
            let kind = Kind::Arrive { batch, entry, sample, tier: None, slot };
            self.plan(op, kind, command, &[], None);
        }
    }

    /// Plans the copy of a sample that is being staged to its place in a tier.
    fn retain(&mut self, sample: SampleId, to: Place, arrival: Arrival) {
        let Arrival { batch, slot, op: after } = arrival;
        let op = self.ops.name();
        let from = Origin::Staging(slot);
        let command = Command::Demote { op, sample, from, len: slot.len, to: to.clone() };
        let touch = Touch { tier: to.tier, pieces: to.pieces.clone(), access: Access::Write };
        self.writers.insert(sample, op);
        let kind = Kind::Retain { batch, sample, place: to };
        self.plan(op, kind, command, &[touch], Some(after));
    }

    /// Plans what the cache asks for, in the course of the arrival of a sample if there is one.
    pub(super) fn follow_changes(&mut self, arrival: Option<Arrival>) {
        for change in self.cache.take_changes() {
            match change {
                Change::ChunkAdded { tier, chunk } => {
                    let op = self.ops.name();
                    let touch = self.whole_chunk(tier, chunk);
                    let command = Command::AddChunk { op, tier, chunk };
                    self.plan(op, Kind::AddChunk { tier, chunk }, command, &[touch], None);
                }
                Change::ChunkDropped { tier, chunk } => {
                    let op = self.ops.name();
                    let touch = self.whole_chunk(tier, chunk);
                    let command = Command::DropChunk { tier, chunk };
                    self.plan(op, Kind::DropChunk { tier, chunk }, command, &[touch], None);
                }
                Change::Kept { sample, to } => {
                    let arrival = arrival.expect("only what is read is kept");
                    self.retain(sample, to, arrival);
                }
                Change::Demoted { sample, len, from, to } => {
                    let batch = arrival.map(|arrival| arrival.batch);
                    self.demote(batch, sample, len, from, to);
                }
                Change::Evicted { sample, from } => {
                    self.writers.remove(&sample);
                    let tier = from.and_then(|tier| self.progress.evictions(tier));
                    match (tier, arrival) {
                        (Some(tier), Some(_)) => tier.policy += 1,
                        (Some(tier), None) => tier.resized += 1,
                        (None, _) => {}
                    }
                }
            }
        }
    }

    /// Plans a move that makes room for a sample of `batch`, or for the node.
    fn demote(
        &mut self,
        batch: Option<BatchId>,
        sample: SampleId,
        len: Bytes,
        from: Place,
        to: Place,
    ) {
        let op = self.ops.name();
        let touches = [
            Touch { tier: from.tier, pieces: from.pieces.clone(), access: Access::Read },
            Touch { tier: to.tier, pieces: to.pieces.clone(), access: Access::Write },
        ];
        let from = Origin::Tier(from);
        let command = Command::Demote { op, sample, from, len, to: to.clone() };
        let source = self.writers.insert(sample, op);
        self.plan(op, Kind::Move { batch, sample, place: to }, command, &touches, source);
    }

    fn whole_chunk(&self, tier: TierId, chunk: ChunkId) -> Touch {
        let piece = Piece { chunk, offset: Bytes(0), len: self.settings.chunk };
        Touch { tier, pieces: vec![piece], access: Access::Write }
    }

    /// Looks whether a batch is complete, and if so goes on with whoever waits for it.
    pub(super) fn look_at(&mut self, batch: BatchId) {
        let Some(staging) = self.ranks.get_mut(&batch.rank) else { return };
        let Some(staged) = staging.staged.get(&batch).filter(|it| it.pending == 0) else { return };
        // What nobody asked for may make way from now on.
        staging.is_blocked = false;
        match staged.taker {
            Taker::Requested(connection) => self.answer(connection),
            Taker::Dropped => staging.sweep(),
            Taker::Nobody | Taker::Leased(..) | Taker::Held(..) => {}
        }
    }
}
