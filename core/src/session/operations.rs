//! The operations that were planned and have not ended: what each waits for, and which is given out next.
//!
//! An operation waits for those that touch the same bytes ([`super::dependencies`]), then for a slot in the
//! window of its channel ([`super::edf_scheduler`]). What follows from its end is decided by
//! [`super::completion`].

use alloc::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};
use core::num::NonZeroU32;

use super::{
    Command, Fault, Form, Held, Memory, Operation, Origin, Progress, Promotion, Retention,
    Settings, Slot, Transform,
    assignment::{Assignment, Rates},
    deadlines::{BatchNumber, Deadlines},
    dependencies::{Access, Accesses, Dependencies, Mode},
    edf_scheduler::{Channel, EdfScheduler, Transfer, WindowSlot},
    entry::EntryRef,
    op_table::OpTable,
};
use crate::{
    hash_table::HashTable,
    id::{BatchId, ChunkId, Epoch, OpId, SampleId, TierId},
    place::Place,
    space::Piece,
    units::{Bytes, Nanoseconds},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// The data plane executes it.
    Run(Operation),
    /// It ends at once.
    DropChunk(TierId, ChunkId),
    /// Another node is sent a sample from where it is cached. The caller sends it, and says when it is
    /// done.
    Lend(Place),
    /// A batch reads a sample where it is cached. Nothing moves: this ends as soon as the sample is there.
    ReadInPlace {
        sample: SampleId,
        tier: TierId,
        /// The place of the sample if it has to be fetched after all.
        slot: Slot,
        held: Held,
    },
}

impl Work {
    /// Whether the operation uses the staging bytes of its batch, which stay until it ended.
    pub(super) fn uses_staging(&self) -> bool {
        self.is_arrival()
            || matches!(self, Self::Run(Operation::Demote { from: Origin::Staging(_), .. }))
    }

    /// Whether the end of the operation has no effect but that its batch lacks less.
    pub(super) fn serves_one_batch(&self) -> bool {
        self.is_arrival() || matches!(self, Self::Run(Operation::Demote { .. }))
    }

    /// Whether the operation brings a sample to its batch, or makes a row of it there.
    fn is_arrival(&self) -> bool {
        matches!(
            self,
            Self::Run(
                Operation::Fetch { .. }
                    | Operation::Receive { .. }
                    | Operation::Promote { .. }
                    | Operation::Transform { .. }
            ) | Self::ReadInPlace { .. }
        )
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::Run(Operation::Promote { parts }) if parts.len() > 1)
    }

    /// Whether copies of the arrived bytes into a tier do not wait for the operation: it makes a row and
    /// leaves the bytes in the form that is cached.
    pub(super) fn is_apart_from_copies(&self) -> bool {
        matches!(self, Self::Run(Operation::Transform { prepared: None, .. }))
    }

    /// The sample that the operation writes to its place in a tier.
    fn written(&self) -> Option<SampleId> {
        match self {
            Self::Run(
                Operation::Prefetch { sample, .. }
                | Operation::Advance { sample, .. }
                | Operation::Demote { sample, .. },
            ) => Some(*sample),
            Self::Run(_) | Self::DropChunk(..) | Self::Lend(_) | Self::ReadInPlace { .. } => None,
        }
    }

    /// The channel in whose window the operation needs a slot. A copy between tiers uses two channels;
    /// that of the slower tier counts.
    fn channel(&self) -> Option<Channel> {
        let Self::Run(operation) = self else { return None };
        match operation {
            Operation::Fetch { .. } | Operation::Prefetch { .. } => Some(Channel::Cold),
            Operation::Receive { .. } => Some(Channel::Peers),
            Operation::Transform { .. } => Some(Channel::Transform),
            Operation::Promote { parts } => Some(Channel::Tier(parts.first()?.from.tier)),
            Operation::Advance { from, .. } => Some(Channel::Tier(from.tier)),
            Operation::Demote { to, .. } => Some(Channel::Tier(to.tier)),
            Operation::OpenArena { .. }
            | Operation::TrimArena { .. }
            | Operation::RestoreArena { .. }
            | Operation::AddChunk { .. } => None,
        }
    }

    fn accesses(&self, chunk: Bytes) -> Accesses {
        fn of_place(place: &Place, mode: Mode) -> impl Iterator<Item = Access> + '_ {
            let tier = place.tier;
            place.pieces.iter().map(move |piece| Access { tier, piece: *piece, mode })
        }
        let whole = |tier, id| {
            let piece = Piece { chunk: id, offset: Bytes(0), len: chunk };
            Accesses::One(Access { tier, piece, mode: Mode::Write })
        };
        match self {
            Self::Run(Operation::Promote { parts }) => {
                parts.iter().flat_map(|part| of_place(&part.from, Mode::Read)).collect()
            }
            Self::Lend(from) => of_place(from, Mode::Read).collect(),
            Self::Run(
                Operation::Prefetch { to, .. }
                | Operation::Demote { from: Origin::Staging(_), to, .. },
            ) => of_place(to, Mode::Write).collect(),
            Self::Run(
                Operation::Advance { from, to, .. }
                | Operation::Demote { from: Origin::Tier(from), to, .. },
            ) => of_place(from, Mode::Read).chain(of_place(to, Mode::Write)).collect(),
            Self::Run(Operation::AddChunk { tier, chunk: id }) | Self::DropChunk(tier, id) => {
                whole(*tier, *id)
            }
            Self::Run(_) | Self::ReadInPlace { .. } => Accesses::None,
        }
    }

    /// Whether the operation writes to a chunk, or gives it back.
    fn needs_chunk(&self, tier: TierId, chunk: ChunkId) -> bool {
        match self {
            Self::DropChunk(of, dropped) => (*of, *dropped) == (tier, chunk),
            Self::Run(
                Operation::Prefetch { to, .. }
                | Operation::Advance { to, .. }
                | Operation::Demote { to, .. },
            ) => to.tier == tier && to.pieces.iter().any(|piece| piece.chunk == chunk),
            Self::Run(_) | Self::Lend(_) | Self::ReadInPlace { .. } => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Blocked,
    /// It waits for a slot in the window of its channel.
    Queued,
    Running(WindowSlot),
}

#[derive(Debug)]
pub(super) struct PendingOp {
    pub(super) work: Work,
    /// The entry whose sample it brings, copies to a tier, or makes room for.
    pub(super) entry: Option<EntryRef>,
    state: State,
    /// The batch whose deadline it has: its own, or an earlier one that waits for it.
    due: Option<BatchNumber>,
    waits_for: Vec<OpId>,
    /// The operation that brings the bytes which this one reads.
    source: Option<OpId>,
    pub(super) is_in_vain: bool,
    /// The reason that the bytes to be read, or the chunk to be written, are not there.
    pub(super) lost: Option<Fault>,
    began: Began,
}

/// The time at which an operation was given out, and the time for which all operations of its channel
/// together had run until then.
#[derive(Debug, Clone, Copy, Default)]
struct Began {
    at: Nanoseconds,
    in_flight: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Started {
    /// It waits for a slot, or was given out.
    Queued,
    Ended(Result<(), Fault>),
    /// Its tier cannot give the sample of this entry, so it became a fetch.
    Refetched(EntryRef),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchedAhead {
    /// The fetch was not given out.
    Not,
    Running(OpId),
    Done,
}

#[derive(Debug)]
pub(super) struct Operations {
    pending: OpTable<PendingOp>,
    dependencies: Dependencies,
    scheduler: EdfScheduler,
    /// The operation in flight that brings a cached sample to its place.
    writers: HashTable<SampleId, OpId>,
    /// Commands about arenas and chunks, given out in this order and before operations that need the
    /// memory.
    memory_commands: VecDeque<Command>,
    running: usize,
    running_max: usize,
    chunk: Bytes,
    stored: Arc<[Bytes]>,
    /// The rates of operations by how many run; `None` unless threads are divided by them.
    rates: Option<Rates>,
}

impl Operations {
    pub(super) fn new(settings: &Settings) -> Self {
        let world = settings.order.world;
        let first = world.ranks_of(settings.node).next().expect("a node has ranks");
        let tiers = settings.tiers.len();
        Self {
            pending: OpTable::default(),
            dependencies: Dependencies::default(),
            scheduler: EdfScheduler::new(
                settings.windows,
                settings.transform.as_ref().map_or(NonZeroU32::MIN, Transform::window),
                tiers,
                first,
                world.ranks_per_node,
            ),
            writers: HashTable::default(),
            memory_commands: VecDeque::new(),
            running: 0,
            running_max: settings.operations_max(),
            chunk: settings.chunk,
            stored: Arc::clone(settings.stored()),
            rates: (settings.windows.assignment == Assignment::Lobster).then(Rates::default),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn get(&self, op: OpId) -> Option<&PendingOp> {
        self.pending.get(op)
    }

    pub(super) fn scheduler(&self) -> &EdfScheduler {
        &self.scheduler
    }

    pub(super) fn scheduler_mut(&mut self) -> &mut EdfScheduler {
        &mut self.scheduler
    }

    pub(super) fn rates(&self) -> Option<&Rates> {
        self.rates.as_ref()
    }

    /// Plans an operation for the batch `due`, which gives it its deadline. A copy from staging waits for
    /// `arrival`. Returns the name of the operation, and whether it may start.
    pub(super) fn plan(
        &mut self,
        work: Work,
        entry: Option<EntryRef>,
        due: Option<BatchNumber>,
        arrival: Option<OpId>,
        deadlines: &Deadlines,
    ) -> (OpId, bool) {
        let op = self.dependencies.next_id();
        let source = match &work {
            Work::Run(Operation::Promote { parts }) => match &parts[..] {
                [Promotion { sample, .. }] => self.writers.get(*sample),
                // What is still being written is no part of a list.
                _ => None,
            },
            Work::ReadInPlace { sample, .. } => self.writers.get(*sample),
            Work::Run(Operation::Demote { sample, from, .. }) => {
                let writer = self.writers.insert(*sample, op);
                if matches!(from, Origin::Staging(_)) { arrival } else { writer }
            }
            Work::Run(Operation::Advance { sample, .. }) => self.writers.insert(*sample, op),
            Work::Run(Operation::Prefetch { sample, .. }) => {
                self.writers.insert(*sample, op);
                None
            }
            Work::Run(_) | Work::DropChunk(..) | Work::Lend(_) => None,
        };
        let waits_for = self.dependencies.add(op, work.accesses(self.chunk), source);
        let is_free = waits_for.is_empty();
        if let Some(due) = due {
            self.bring_forward(&waits_for, due, deadlines);
        }
        let state = State::Blocked;
        self.pending.insert(
            op,
            PendingOp {
                work,
                entry,
                state,
                due,
                waits_for,
                source,
                is_in_vain: false,
                lost: None,
                began: Began::default(),
            },
        );
        (op, is_free)
    }

    /// Gives operations, and those that block them, the deadline of a batch that waits for them.
    fn bring_forward(&mut self, ops: &[OpId], due: BatchNumber, deadlines: &Deadlines) {
        let mut left = Vec::from(ops);
        while let Some(op) = left.pop() {
            let Some(pending) = self.pending.get_mut(op) else { continue };
            let Some(before) = pending.due else {
                // No batch needs a copy between tiers, but one may need what the copy waits for.
                left.extend(&pending.waits_for);
                continue;
            };
            if before == due || deadlines.of(before) <= deadlines.of(due) {
                continue;
            }
            pending.due = Some(due);
            left.extend(&pending.waits_for);
            if let (State::Queued, Some(channel)) = (pending.state, pending.work.channel()) {
                self.scheduler.bring_forward(channel, op, before, due);
            }
        }
    }

    /// Queues an operation that waits for no other any more. One whose bytes were lost ends, or is fetched
    /// instead.
    pub(super) fn start(&mut self, op: OpId, now: Nanoseconds) -> Started {
        let Some(pending) = self.pending.get_mut(op) else { return Started::Queued };
        match (&pending.work, pending.lost) {
            (work, Some(_)) if work.is_arrival() => {
                return self.fetch_instead(op, now).map_or(Started::Queued, Started::Refetched);
            }
            (_, Some(fault)) => return Started::Ended(Err(fault)),
            (Work::ReadInPlace { .. } | Work::Lend(_), None) => return Started::Ended(Ok(())),
            (Work::DropChunk(tier, chunk), None) => {
                self.memory_commands.push_back(Command::Free(Memory::Chunk(*tier, *chunk)));
                return Started::Ended(Ok(()));
            }
            (Work::Run(operation), None) => {
                if let Some(channel) = pending.work.channel() {
                    pending.state = State::Queued;
                    self.scheduler.push(channel, pending.due, now, op);
                } else {
                    let operation = operation.clone();
                    pending.state = State::Running(WindowSlot::default());
                    self.memory_commands.push_back(Command::Start { op, operation });
                }
            }
        }
        Started::Queued
    }

    /// Turns an arrival whose tier or peer cannot give the sample into a fetch. Returns its entry.
    pub(super) fn fetch_instead(&mut self, op: OpId, now: Nanoseconds) -> Option<EntryRef> {
        let pending = self.pending.get_mut(op)?;
        // Whether the sample is kept was decided when its tier still had it.
        let (sample, to, retention) = match pending.work {
            Work::Run(Operation::Promote { ref parts }) => match parts[..] {
                [Promotion { sample, to, .. }] => (sample, to, Retention::Kept),
                _ => return None,
            },
            Work::ReadInPlace { sample, slot, .. } => (sample, slot, Retention::Kept),
            Work::Run(Operation::Receive { sample, to, .. }) => (sample, to, Retention::Dropped),
            Work::Run(_) | Work::DropChunk(..) | Work::Lend(_) => return None,
        };
        let to = Slot { len: self.stored[sample.0 as usize], ..to };
        pending.work = Work::Run(Operation::Fetch { sample, to, retention });
        pending.lost = None;
        pending.state = State::Queued;
        self.scheduler.push(Channel::Cold, pending.due, now, op);
        pending.entry
    }

    /// Lets an arrival go on with the transform of its sample, for the batch `number`. Returns the arrival,
    /// and the operations that waited for its bytes or its place and may run now. There are none if the
    /// prepared form is to be copied: they wait for the transform.
    pub(super) fn transform(
        &mut self,
        op: OpId,
        transform: Operation,
        number: BatchNumber,
        now: Nanoseconds,
    ) -> Option<(PendingOp, Vec<OpId>)> {
        let pending = self.pending.get_mut(op)?;
        let work = Work::Run(transform);
        let is_apart = work.is_apart_from_copies();
        // A transform is due with its batch. One whose prepared form is copied to a tier stays due as early as the
        // arrival was: the copy and what waits for that come after it.
        let due = if is_apart { Some(number) } else { pending.due };
        let next = PendingOp {
            work,
            entry: pending.entry,
            state: State::Queued,
            due,
            waits_for: Vec::new(),
            source: None,
            is_in_vain: false,
            lost: None,
            began: Began::default(),
        };
        let arrival = core::mem::replace(pending, next);
        self.scheduler.push(Channel::Transform, due, now, op);
        let runnable = if is_apart { self.dependencies.remove(op) } else { Vec::new() };
        Some((arrival, runnable))
    }

    /// `None` if the operation is no transform, or was not given out.
    pub(super) fn running_transform(&self, op: OpId) -> Option<(Form, Bytes, Epoch)> {
        match self.pending.get(op)? {
            PendingOp {
                work: Work::Run(Operation::Transform { form, from, epoch, .. }),
                state: State::Running(_),
                ..
            } => Some((*form, from.len, *epoch)),
            _ => None,
        }
    }

    /// Takes the parts at these indexes out of a list that was given out.
    pub(super) fn take_parts(&mut self, op: OpId, failed: &[(usize, Fault)]) -> Vec<Promotion> {
        let Some(PendingOp { work: Work::Run(Operation::Promote { parts }), .. }) =
            self.pending.get_mut(op)
        else {
            return Vec::new();
        };
        let (mut taken, mut index) = (Vec::new(), 0);
        parts.retain(|part| {
            let has_failed = failed.iter().any(|(at, _)| *at == index);
            taken.extend(has_failed.then(|| part.clone()));
            index += 1;
            !has_failed
        });
        taken
    }

    /// Keeps the order of commands about memory.
    pub(super) fn free(&mut self, memory: Memory) {
        self.memory_commands.push_back(Command::Free(memory));
    }

    /// The next command for the data plane: first what concerns memory, then the operation with the
    /// earliest deadline in a channel whose window has a free slot.
    pub(super) fn next(
        &mut self,
        deadlines: &Deadlines,
        progress: &mut Progress,
        now: Nanoseconds,
    ) -> Option<Command> {
        if let Some(Command::Free(_)) = self.memory_commands.front() {
            return self.memory_commands.pop_front();
        }
        if self.running >= self.running_max {
            return None;
        }
        let command = match self.memory_commands.pop_front() {
            Some(command) => command,
            None => self.next_scheduled(deadlines, progress, now)?,
        };
        self.running += 1;
        Some(command)
    }

    fn next_scheduled(
        &mut self,
        deadlines: &Deadlines,
        progress: &mut Progress,
        now: Nanoseconds,
    ) -> Option<Command> {
        let (op, slot) = self.scheduler.next(|batch| deadlines.of(batch))?;
        let pending = self.pending.get_mut(op)?;
        pending.state = State::Running(slot);
        let busy = pending.work.channel().and_then(|channel| progress.busy(channel));
        if let Some(busy) = busy {
            busy.begun(now);
            pending.began = Began { at: now, in_flight: busy.in_flight() };
        }
        let Work::Run(operation) = &pending.work else { return None };
        Some(Command::Start { op, operation: operation.clone() })
    }

    /// Frees the slot of an operation that the data plane has ended. Returns `false` if no such operation
    /// runs.
    pub(super) fn free_slot(
        &mut self,
        op: OpId,
        outcome: Result<(), Fault>,
        progress: &mut Progress,
        now: Nanoseconds,
    ) -> bool {
        let Some(pending) = self.pending.get(op) else { return false };
        let State::Running(slot) = pending.state else { return false };
        if let Some(channel) = pending.work.channel() {
            let transfer = match (&pending.work, outcome) {
                (Work::Run(Operation::Fetch { to, .. }), Ok(())) => Transfer::Read(to.len),
                (Work::Run(Operation::Prefetch { len, .. }), Ok(())) => Transfer::Read(*len),
                _ => Transfer::Other,
            };
            self.scheduler.ended(channel, slot, transfer, now);
            if let Some(busy) = progress.busy(channel) {
                busy.ended(now);
                if let (Some(rates), Ok(()), Work::Run(operation)) =
                    (&mut self.rates, outcome, &pending.work)
                {
                    let Began { at, in_flight } = pending.began;
                    let all = Nanoseconds(busy.in_flight().0.saturating_sub(in_flight.0));
                    rates.observe(operation, Nanoseconds(now.0.saturating_sub(at.0)), all);
                }
            }
        }
        self.running = self.running.saturating_sub(1);
        true
    }

    /// Returns the operation, and those that may run now.
    pub(super) fn remove(&mut self, op: OpId) -> Option<(PendingOp, Vec<OpId>)> {
        let pending = self.pending.remove(op)?;
        if let Some(sample) = pending.work.written()
            && self.writers.get(sample) == Some(op)
        {
            self.writers.remove(sample);
        }
        Some((pending, self.dependencies.remove(op)))
    }

    /// Keeps the bytes of a cached sample as they are until [`Self::remove`]; `None` if they are not all
    /// there.
    pub(super) fn lend(&mut self, sample: SampleId, from: Place) -> Option<OpId> {
        let (op, work) = (self.dependencies.next_id(), Work::Lend(from));
        let is_there = !self.is_written(sample)
            && self.dependencies.add(op, work.accesses(self.chunk), None).is_empty();
        if !is_there {
            self.dependencies.remove(op);
            return None;
        }
        let state = State::Running(WindowSlot::default());
        let (entry, due, source, lost) = (None, None, None, None);
        let (waits_for, is_in_vain, began) = (Vec::new(), false, Began::default());
        let pending =
            PendingOp { work, entry, state, due, waits_for, source, is_in_vain, lost, began };
        self.pending.insert(op, pending);
        Some(op)
    }

    /// Whether a sample is on its way to its place in a tier.
    pub(super) fn is_written(&self, sample: SampleId) -> bool {
        self.writers.contains(sample)
    }

    pub(super) fn fetched_ahead(&self, sample: SampleId) -> FetchedAhead {
        let writer = self.writers.get(sample);
        let mut chain = core::iter::successors(writer, |op| self.pending.get(*op)?.source);
        let fetch = chain.find_map(|op| {
            let pending = self.pending.get(op)?;
            matches!(pending.work, Work::Run(Operation::Prefetch { .. })).then_some((op, pending))
        });
        match fetch {
            Some((op, pending)) if matches!(pending.state, State::Running(_)) => {
                FetchedAhead::Running(op)
            }
            Some(_) => FetchedAhead::Not,
            None => FetchedAhead::Done,
        }
    }

    /// Removes the operations that were to bring a sample into a tier, of which none was given out
    /// ([`FetchedAhead::Not`]). Returns the operations that may run now.
    pub(super) fn cancel_writers(&mut self, sample: SampleId) -> Vec<OpId> {
        let mut runnable = Vec::new();
        let mut next = self.writers.get(sample);
        while let Some((pending, freed)) = next.and_then(|op| self.cancel(op)) {
            runnable.extend(freed);
            next = pending.source;
        }
        runnable
    }

    pub(super) fn note_in_vain(&mut self, op: OpId) {
        self.pending.get_mut(op).into_iter().for_each(|pending| pending.is_in_vain = true);
    }

    pub(super) fn note_evicted(&mut self, sample: SampleId) {
        self.writers.remove(sample);
    }

    /// Notes that an operation failed, so that operations that were to read its bytes do not.
    pub(super) fn lose_source(&mut self, op: OpId, fault: Fault) {
        for pending in self.pending.values_mut().filter(|pending| pending.source == Some(op)) {
            pending.lost = Some(fault);
        }
    }

    /// Notes that a chunk could not be had, so that operations that wait for it do not use it.
    pub(super) fn lose_chunk(&mut self, tier: TierId, chunk: ChunkId, fault: Fault) {
        for pending in self.pending.values_mut() {
            if pending.state == State::Blocked && pending.work.needs_chunk(tier, chunk) {
                pending.lost = Some(fault);
            }
        }
    }

    /// Notes that the place where an entry was to be read is broken. Returns whether the entry still waits
    /// for it.
    pub(super) fn lose_in_place(&mut self, entry: EntryRef, fault: Fault) -> bool {
        let reads_it = |pending: &&mut PendingOp| {
            matches!(pending.work, Work::ReadInPlace { .. }) && pending.entry == Some(entry)
        };
        let waiting = self.pending.values_mut().find(reads_it);
        waiting.map(|pending| pending.lost = Some(fault)).is_some()
    }

    /// The arrivals that no copy into a tier waits for, with their batches. Linear in all operations.
    pub(super) fn arrivals_without_copy(&self) -> Vec<(OpId, BatchId)> {
        let sources: BTreeSet<OpId> =
            self.pending.iter().filter_map(|(_, pending)| pending.source).collect();
        let arrivals = self.pending.iter().filter(|(_, pending)| pending.work.is_arrival());
        let unread =
            arrivals.filter(|(op, it)| !sources.contains(op) || it.work.is_apart_from_copies());
        unread.filter_map(|(op, pending)| Some((op, pending.entry?.batch))).collect()
    }

    /// Removes an operation as [`Self::remove`] does; `None` if it was given out.
    pub(super) fn cancel(&mut self, op: OpId) -> Option<(PendingOp, Vec<OpId>)> {
        let pending = self.pending.get(op)?;
        let waits = match (pending.state, pending.work.channel(), pending.due) {
            (State::Queued, Some(channel), Some(due)) => self.scheduler.cancel(channel, op, due),
            (state, ..) => state == State::Blocked,
        };
        if waits { self.remove(op) } else { None }
    }
}
