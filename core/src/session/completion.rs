//! What follows when an operation starts, ends or fails, for its batch, its tier and its trainers.

use alloc::{collections::VecDeque, vec::Vec};

use super::{
    Answer, Fault, Form, Held, OnError, Operation, Promotion, Refusal, Retention, Session, Slot,
    deadlines::BatchNumber,
    entry::EntryRef,
    operations::{PendingOp, Started, Work},
    staging::Claim,
};
use crate::{
    batch::Entry,
    id::{BatchId, ChunkId, OpId, Rank, SampleId, TierId},
    units::{Bytes, Nanoseconds},
};

impl Session {
    /// Plans an operation for an entry of a batch, or for the node, and starts it if it waits for no other.
    /// A copy from staging waits for `arrival`.
    pub(super) fn plan(
        &mut self,
        work: Work,
        entry: Option<EntryRef>,
        arrival: Option<OpId>,
    ) -> OpId {
        let lead = self.lead(&work);
        let due = entry.map(|EntryRef { batch, .. }| match self.staging.batch_mut(batch) {
            Some(staged) => {
                staged.pending += u32::from(work.uses_staging());
                let is_transformed = !staged.inputs.is_empty();
                staged.number.earlier_by(if is_transformed { lead } else { 0 })
            }
            None => BatchNumber::of(batch, self.planner.spec()),
        });
        let (op, is_free) = self.operations.plan(work, entry, due, arrival, &self.deadlines);
        if is_free {
            self.start_one(op);
        }
        op
    }

    /// The number of steps before its batch by which an arrival is due, so that there is time to transform
    /// the sample: as many as the transform is expected to last.
    fn lead(&self, work: &Work) -> u64 {
        let Some(transform) = &self.settings.transform else { return 0 };
        let (form, len) = match work {
            Work::Run(Operation::Fetch { to, .. }) => (Form::Stored, to.len),
            Work::Run(Operation::Receive { to, .. }) => (transform.cached, to.len),
            Work::Run(Operation::Promote { parts }) => (transform.cached, Promotion::bytes(parts)),
            Work::Run(_) | Work::DropChunk(..) | Work::Lend(_) | Work::ReadInPlace { .. } => {
                return 0;
            }
        };
        self.deadlines.steps_within(self.progress.transform_times.expected(form, len))
    }

    pub(super) fn handle_completed(&mut self, op: OpId, outcome: Result<(), Fault>) {
        if self.operations.free_slot(op, outcome, &mut self.progress, self.now) {
            let runnable = self.end(op, outcome);
            self.start(runnable);
            if !self.is_settled {
                self.close_arenas();
            }
        }
    }

    pub(super) fn handle_parts_failed(&mut self, op: OpId, failed: &[(usize, Fault)]) {
        let is_list = self.operations.get(op).is_some_and(|pending| pending.work.is_list());
        if let ([(_, fault)], false) = (failed, is_list) {
            // Others may wait for its bytes.
            self.handle_completed(op, Err(*fault));
        } else if self.operations.free_slot(op, Ok(()), &mut self.progress, self.now) {
            self.fetch_parts(op, failed);
            let runnable = self.end(op, Ok(()));
            self.start(runnable);
            self.close_arenas();
        }
    }

    /// Fetches the samples of a list that their tier could not give.
    fn fetch_parts(&mut self, op: OpId, failed: &[(usize, Fault)]) {
        let Some(entry) = self.operations.get(op).and_then(|pending| pending.entry) else { return };
        for Promotion { sample, to, .. } in self.operations.take_parts(op, failed) {
            self.note_unreadable(sample);
            let Some(index) = self.staging.batch(entry.batch).and_then(|it| it.index_at(to)) else {
                continue;
            };
            let to = Slot { len: self.settings.stored()[sample.0 as usize], ..to };
            let fetch = Operation::Fetch { sample, to, retention: Retention::Kept };
            self.plan(Work::Run(fetch), Some(EntryRef { index, ..entry }), None);
        }
        for (_, fault) in failed {
            if let Fault::Poisoned(tier, chunk) = *fault {
                self.give_up_chunk(tier, chunk);
            }
        }
    }

    fn note_unreadable(&mut self, sample: SampleId) {
        self.is_settled = false;
        self.progress.tier_faults += 1;
        // If the sample is being written anew, only its old bytes are lost.
        if !self.operations.is_written(sample) {
            self.planner.cache_mut().forget(sample);
        }
    }

    pub(super) fn handle_transformed(
        &mut self,
        op: OpId,
        outcome: Result<(), Fault>,
        took: Nanoseconds,
    ) {
        if let Some((form, len, epoch)) = self.operations.running_transform(op) {
            self.progress.worked(epoch, form, took);
            if outcome.is_ok() {
                self.progress.transform_times.note(form, len, took);
            }
        }
        self.handle_completed(op, outcome);
    }

    /// Starts operations that wait for no other any more, and those that may run once these ended at once.
    pub(super) fn start(&mut self, ops: Vec<OpId>) {
        let mut runnable = VecDeque::from(ops);
        while let Some(op) = runnable.pop_front() {
            runnable.extend(self.begin(op));
        }
    }

    fn start_one(&mut self, op: OpId) {
        let runnable = self.begin(op);
        self.start(runnable);
    }

    /// Returns the operations that may run because this one ended at once.
    fn begin(&mut self, op: OpId) -> Vec<OpId> {
        match self.operations.start(op, self.now) {
            Started::Queued => {}
            Started::Ended(outcome) => return self.end(op, outcome),
            Started::Refetched(entry) => self.unpin(entry),
        }
        Vec::new()
    }

    /// Returns the operations that may run now.
    fn end(&mut self, op: OpId, outcome: Result<(), Fault>) -> Vec<OpId> {
        if let Err(Fault::Poisoned(tier, chunk)) = outcome {
            self.give_up_chunk(tier, chunk);
        }
        let Some(pending) = self.operations.get(op) else { return Vec::new() };
        if let (Work::Run(Operation::Promote { parts }), Err(fault)) = (&pending.work, outcome) {
            let [Promotion { sample, .. }] = &parts[..] else {
                let all: Vec<_> = (0..parts.len()).map(|part| (part, fault)).collect();
                self.fetch_parts(op, &all);
                return self.end(op, Ok(()));
            };
            self.note_unreadable(*sample);
            let entry = self.operations.fetch_instead(op, self.now);
            entry.into_iter().for_each(|entry| self.unpin(entry));
            return Vec::new();
        }
        if let (Work::Run(Operation::Receive { .. }), Err(_)) = (&pending.work, outcome) {
            let entry = self.operations.fetch_instead(op, self.now);
            entry.into_iter().for_each(|entry| self.progress.unreceived(entry.batch.epoch));
            return Vec::new();
        }
        if outcome.is_ok()
            && let Some(runnable) = self.transform_arrived(op)
        {
            return runnable;
        }
        let Some((pending, runnable)) = self.operations.remove(op) else { return Vec::new() };
        self.is_settled &= outcome.is_ok() && pending.work.serves_one_batch();
        self.note_time(&pending, outcome);
        self.apply(&pending, outcome);
        if let Err(fault) = outcome
            && !pending.work.is_apart_from_copies()
        {
            self.operations.lose_source(op, fault);
        }
        if matches!(pending.work, Work::Run(Operation::AddChunk { .. })) {
            self.note_chunk(&runnable);
        }
        self.release_staging(&pending);
        runnable
    }

    /// Lets an arrival that ended well go on with its transform. Returns the operations that may run now;
    /// `None` if there is nothing to transform. A dropped batch needs no transform, unless a tier takes the
    /// prepared form.
    fn transform_arrived(&mut self, op: OpId) -> Option<Vec<OpId>> {
        let cached = self.settings.transform.as_ref()?.cached;
        let arrival = self.operations.get(op)?;
        let EntryRef { batch, index } = arrival.entry?;
        let (sample, from, form, retention) = match arrival.work {
            Work::Run(Operation::Fetch { sample, to, retention }) => {
                (sample, to, Form::Stored, retention)
            }
            Work::Run(Operation::Receive { sample, to, .. }) => {
                (sample, to, cached, Retention::Dropped)
            }
            Work::Run(Operation::Promote { ref parts }) => match parts[..] {
                [Promotion { sample, to, .. }] => (sample, to, cached, Retention::Dropped),
                _ => return None,
            },
            Work::Run(_) | Work::DropChunk(..) | Work::Lend(_) | Work::ReadInPlace { .. } => {
                return None;
            }
        };
        let staged = self.staging.batch_mut(batch)?;
        if staged.inputs.is_empty() {
            // Its dataset has no transform.
            return None;
        }
        let is_copied = form != cached && retention == Retention::Kept;
        if staged.claim == Claim::Dropped && !is_copied {
            staged.is_stale = true;
            return None;
        }
        let len = self.settings.sizes[sample.0 as usize];
        let prepared = staged.input_of(index, len).filter(|_| is_copied);
        let to = staged.slot_of(&staged.batch.entries[index]);
        let epoch = batch.epoch;
        let transform = Operation::Transform { sample, epoch, from, form, prepared, to };
        let number = staged.number;
        let (arrival, runnable) = self.operations.transform(op, transform, number, self.now)?;
        self.note_time(&arrival, Ok(()));
        self.apply(&arrival, Ok(()));
        Some(runnable)
    }

    fn note_time(&mut self, pending: &PendingOp, outcome: Result<(), Fault>) {
        let Some(entry) = pending.entry else { return };
        let Some(staged) = self.staging.batch_mut(entry.batch) else { return };
        let (timeline, now) = (&mut staged.timeline, self.event_at);
        let read = |len| outcome.map_or(Bytes(0), |()| len);
        match &pending.work {
            Work::Run(Operation::Fetch { to, .. }) => timeline.arrived(None, read(to.len), now),
            Work::Run(Operation::Receive { to, .. }) => timeline.received(read(to.len), now),
            // The copy into staging counts the bytes.
            Work::Run(Operation::Prefetch { .. }) => timeline.arrived(None, Bytes(0), now),
            Work::Run(Operation::Promote { parts }) => {
                let tier = parts.first().map(|part| part.from.tier);
                timeline.arrived(tier, read(Promotion::bytes(parts)), now);
            }
            Work::Run(Operation::Transform { .. }) => timeline.transformed(now),
            // Nothing was read for this batch.
            Work::ReadInPlace { tier, .. } => timeline.arrived(Some(*tier), Bytes(0), now),
            work if work.uses_staging() => timeline.kept(now),
            Work::Run(_) | Work::DropChunk(..) | Work::Lend(_) => {}
        }
    }

    fn note_chunk(&mut self, ops: &[OpId]) {
        for op in ops {
            let pending = self.operations.get(*op).filter(|pending| pending.work.uses_staging());
            let entry = pending.and_then(|pending| pending.entry);
            let staged = entry.and_then(|entry| self.staging.batch_mut(entry.batch));
            staged.into_iter().for_each(|staged| staged.timeline.chunk_added(self.event_at));
        }
    }

    fn apply(&mut self, pending: &PendingOp, outcome: Result<(), Fault>) {
        let (is_done, entry) = (outcome.is_ok(), pending.entry);
        match &pending.work {
            Work::Run(Operation::OpenArena { rank, .. }) => self.arena_opened(*rank, is_done),
            Work::Run(Operation::TrimArena { rank, offset, len }) => {
                let staging = self.staging.get_mut(*rank);
                staging.into_iter().for_each(|it| it.trimmed(*offset, *len));
            }
            Work::Run(Operation::RestoreArena { rank, offset, len }) => {
                let staging = self.staging.get_mut(*rank);
                staging.into_iter().for_each(|it| it.restored(*offset, *len, is_done));
            }
            Work::Run(Operation::AddChunk { tier, chunk }) => {
                if let Err(fault) = outcome {
                    self.progress.tier_faults += 1;
                    self.planner.cache_mut().lose_chunk(*tier, *chunk);
                    self.operations.lose_chunk(*tier, *chunk, fault);
                }
            }
            Work::Run(Operation::Fetch { sample, to, .. }) => match (entry, outcome) {
                (Some(entry), Ok(())) => {
                    let dataset = self.dataset_of(entry.batch);
                    self.progress.read(entry.batch.epoch, None, to.len);
                    self.progress.read_cold_of(dataset, to.len);
                }
                (Some(entry), Err(fault)) => self.lose_sample(*sample, entry, fault),
                (None, _) => {}
            },
            Work::Run(Operation::Receive { to, .. }) => {
                entry.into_iter().for_each(|it| self.progress.received(it.batch.epoch, to.len));
            }
            Work::Run(Operation::Transform { sample, from, form, to, .. }) => {
                let Some(entry) = entry else { return };
                let made = outcome.map(|()| to.len);
                self.progress.transformed(entry.batch.epoch, *form, from.len, made);
                if let Err(fault) = outcome {
                    self.lose_sample(*sample, entry, fault);
                }
            }
            Work::Run(Operation::Promote { parts }) => {
                let Some(entry) = entry.filter(|_| is_done) else { return };
                // What was fetched ahead was counted then.
                for part in parts.iter().filter(|part| part.held == Held::Retained) {
                    self.progress.read(entry.batch.epoch, Some(part.from.tier), part.to.len);
                }
            }
            Work::ReadInPlace { tier, slot, held: Held::Retained, .. } => {
                if let Some(entry) = entry.filter(|_| is_done) {
                    self.progress.read_in_place(entry.batch.epoch, *tier, slot.len);
                }
            }
            Work::Run(Operation::Prefetch { len, .. }) if is_done => {
                if let Some(entry) = entry {
                    let dataset = self.dataset_of(entry.batch);
                    self.progress.read_ahead(entry.batch.epoch, *len);
                    self.progress.read_cold_of(dataset, *len);
                }
                self.progress.in_vain.0 += if pending.is_in_vain { len.0 } else { 0 };
                self.written(pending, outcome);
            }
            Work::Run(
                Operation::Prefetch { .. } | Operation::Advance { .. } | Operation::Demote { .. },
            ) => self.written(pending, outcome),
            // What was fetched ahead was counted then.
            Work::ReadInPlace { held: Held::Ahead, .. } | Work::DropChunk(..) | Work::Lend(_) => {}
        }
    }

    fn written(&mut self, pending: &PendingOp, outcome: Result<(), Fault>) {
        let Work::Run(
            Operation::Prefetch { sample, to, .. }
            | Operation::Advance { sample, to, .. }
            | Operation::Demote { sample, to, .. },
        ) = &pending.work
        else {
            return;
        };
        self.is_settled &= !self.planner.cache_mut().note_arrived(*sample);
        if outcome.is_err() {
            self.progress.tier_faults += u64::from(pending.lost.is_none());
            if self.planner.cache().place(*sample).as_ref() == Some(to) {
                self.planner.cache_mut().forget(*sample);
            }
        } else if let Some(entry) = pending.entry {
            self.progress.wrote(entry.batch.epoch, to);
        }
    }

    fn arena_opened(&mut self, rank: Rank, is_open: bool) {
        let Some(staging) = self.staging.get_mut(rank) else { return };
        let waiting = if is_open { staging.opened(self.now) } else { staging.refused() };
        for connection in waiting {
            self.answers.push(if is_open {
                Answer::Admit { connection, rank }
            } else {
                Answer::Reject { connection, rank }
            });
        }
    }

    fn lose_sample(&mut self, sample: SampleId, entry: EntryRef, fault: Fault) {
        self.progress.fault(sample, fault);
        let EntryRef { batch, index } = entry;
        if self.staging.batch(batch).is_none() {
            return;
        }
        let skipped = self.skip(batch, sample, fault);
        let Some(staged) = self.staging.batch_mut(batch) else { return };
        match skipped {
            Ok(()) => staged.batch.entries[index].len = None,
            Err(refusal) => {
                staged.refusal.get_or_insert(refusal);
            }
        }
    }

    /// Goes without a sample of a batch, if the job allows it.
    fn skip(&mut self, batch: BatchId, sample: SampleId, fault: Fault) -> Result<(), Refusal> {
        let share = match self.settings.on_error {
            OnError::Skip(share) if fault.is_of_sample() => share,
            OnError::Skip(_) | OnError::Fail => return Err(fault.refusal(sample)),
        };
        let dataset = self.dataset_of(batch);
        let spec = self.planner.spec();
        let samples = spec.of_dataset(dataset).map_or(0, |it| it.samples);
        let most = share.most(samples, spec.world.ranks());
        let skipped = self.skipped.note(batch.epoch, (batch.rank, dataset), sample, most);
        if skipped <= most {
            return Ok(());
        }
        Err(Refusal::TooManySkipped { sample, fault, skipped, most })
    }

    fn release_staging(&mut self, pending: &PendingOp) {
        let Some(entry) = pending.entry.filter(|_| pending.work.uses_staging()) else { return };
        if let Some(staged) = self.staging.batch_mut(entry.batch) {
            staged.pending -= 1;
        }
        self.check_complete(entry.batch);
    }

    /// If a batch is complete, answers the connection that waits for it, or frees it if it was dropped.
    pub(super) fn check_complete(&mut self, batch: BatchId) {
        let Some(staged) = self.staging.batch(batch).filter(|staged| staged.pending == 0) else {
            return;
        };
        self.is_settled = false;
        let claim = staged.claim;
        let Some(staging) = self.staging.get_mut(batch.rank) else { return };
        // If no trainer asked for it, it may make way from now on.
        staging.unblock();
        match claim {
            Claim::Requested(connection) => self.answer(connection),
            Claim::Dropped => staging.sweep(),
            Claim::Unclaimed | Claim::Leased(..) | Claim::Held(..) => {}
        }
    }

    /// Cancels the arrivals of dropped batches that were not given out, unless a copy of them is to be kept,
    /// so that their room is free for batches that were asked for.
    pub(super) fn cancel_dropped(&mut self) {
        if !self.staging.take_dropped() {
            return;
        }
        for (op, batch) in self.operations.arrivals_without_copy() {
            let staged = self.staging.batch_mut(batch);
            let Some(staged) = staged.filter(|staged| staged.claim == Claim::Dropped) else {
                continue;
            };
            if let Some((pending, runnable)) = self.operations.cancel(op) {
                staged.is_stale = true;
                self.release_staging(&pending);
                self.start(runnable);
            }
        }
    }

    fn unpin(&mut self, EntryRef { batch, index }: EntryRef) {
        self.is_settled = false;
        let staging = self.staging.get_mut(batch.rank);
        staging.into_iter().for_each(|staging| staging.unpin(batch, index));
    }

    fn give_up_chunk(&mut self, tier: TierId, chunk: ChunkId) {
        self.planner.cache_mut().give_up_chunk(tier, chunk);
        self.follow_changes(None);
        self.refetch_in_place(tier, chunk);
    }

    /// Fetches the samples that batches read in place in a chunk that broke, unless a trainer has the
    /// batch: it has to read what is there. A dropped batch is not resumed.
    fn refetch_in_place(&mut self, tier: TierId, chunk: ChunkId) {
        let lies_in = |entry: &Entry| {
            entry.in_place.is_some_and(|place| (place.tier, place.chunk) == (tier, chunk))
        };
        let dropped = self.staging.batches_mut().filter(|staged| staged.claim == Claim::Dropped);
        dropped.for_each(|staged| staged.is_stale |= staged.batch.entries.iter().any(lies_in));
        let awaited = self.staging.batches().filter(|staged| staged.is_awaited());
        let broken = awaited.flat_map(|staged| {
            let entries = staged.batch.entries.iter().enumerate();
            entries.filter(|(_, entry)| lies_in(entry)).map(|(index, entry)| {
                let of = EntryRef { batch: staged.batch.id, index };
                (of, entry.sample, staged.slot_of(entry))
            })
        });
        for (entry, sample, to) in broken.collect::<Vec<_>>() {
            if self.operations.lose_in_place(entry, Fault::Poisoned(tier, chunk)) {
                continue;
            }
            self.unpin(entry);
            let fetch = Operation::Fetch { sample, to, retention: Retention::Kept };
            self.plan(Work::Run(fetch), Some(entry), None);
        }
    }
}

#[cfg(test)]
impl Session {
    /// Acts as if a copy had met broken memory.
    pub(super) fn end_with_poison(&mut self, tier: TierId, chunk: ChunkId) {
        self.give_up_chunk(tier, chunk);
        self.reclaim_unpinned();
    }
}
