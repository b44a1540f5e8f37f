//! The staging memory of one rank.
//!
//! Batches lie in one piece, so the arena is handed out by the same [`Space`] as the tiers, but only
//! contiguously. A batch that no trainer asked for yields to one that a trainer did, and is dropped once
//! every trainer of the rank has asked for a later one.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::mem;

use super::{
    arena::{ARENA, ArenaMemory},
    batch::{Claim, StagedBatch},
    connections::Connections,
};
use crate::{
    batch::{Batch, InPlace},
    id::{BatchId, ConnectionId, Epoch, Rank, Step},
    order::Spec,
    session::{Operation, Refusal, Settings, deadlines::BatchNumber, stall::Timeline},
    space::{Piece, Space},
    units::{Bytes, Nanoseconds},
};

/// The distance from the cursor, beyond the staged batches, from which on a request counts as a jump back.
/// Workers of a loader ask a little out of order.
const JUMP_BATCHES: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Arena {
    Closed,
    Opening,
    Open,
    /// To be closed once nothing is in flight.
    Closing,
    /// The node has no memory for it.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Attached {
    /// It is admitted: the arena is open.
    Admitted,
    /// It waits until the arena is open, or closed and opened again.
    Waiting,
    /// It waits, and the arena has to be opened.
    NeedsArena,
}

#[derive(Debug)]
pub(in crate::session) struct RankStaging {
    rank: Rank,
    tiers: usize,
    arena: Arena,
    staged: BTreeMap<BatchId, StagedBatch>,
    /// Requests for batches that have no range yet, in the order in which they came. The first request is
    /// staged first, so that no answer waits for one behind it.
    wanted: VecDeque<(BatchId, ConnectionId)>,
    connections: Connections,
    /// The next batch to stage if no trainer asks for another.
    cursor: Option<BatchId>,
    /// Whether the next batch found no room or no order, and nothing has changed since.
    is_blocked: bool,
    /// Whether a batch was dropped, so that operations of it may be cancelled.
    has_dropped: bool,
    opened_at: Nanoseconds,
    wasted: Bytes,
    /// Places in tiers that only batches named which are gone.
    unpinned: Vec<InPlace>,
    /// The number of batches that may be staged while memory is short.
    limit: Option<u32>,
    space: Space,
    memory: ArenaMemory,
}

impl RankStaging {
    pub(super) fn new(rank: Rank, settings: &Settings) -> Self {
        Self {
            rank,
            tiers: settings.tiers.len(),
            arena: Arena::Closed,
            staged: BTreeMap::new(),
            wanted: VecDeque::new(),
            connections: Connections::default(),
            cursor: Some(settings.order.first(rank)),
            is_blocked: false,
            has_dropped: false,
            opened_at: Nanoseconds(0),
            wasted: Bytes(0),
            unpinned: Vec::new(),
            limit: None,
            space: Space::new(),
            memory: ArenaMemory::new(settings.arena, settings.staged_max()),
        }
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(in crate::session) fn len(&self) -> Bytes {
        self.memory.len()
    }

    pub(in crate::session) fn staged(&self) -> &BTreeMap<BatchId, StagedBatch> {
        &self.staged
    }

    pub(in crate::session) fn batch_mut(&mut self, batch: BatchId) -> Option<&mut StagedBatch> {
        self.staged.get_mut(&batch)
    }

    pub(super) fn batches_mut(&mut self) -> impl Iterator<Item = &mut StagedBatch> {
        self.staged.values_mut()
    }

    pub(in crate::session) fn leases(&self) -> usize {
        self.staged.values().filter(|staged| staged.is_out()).count()
    }

    pub(in crate::session) fn ready(&self) -> usize {
        self.staged.values().filter(|staged| staged.is_ready()).count()
    }

    pub(super) fn wasted(&self) -> Bytes {
        self.wasted
    }

    pub(in crate::session) fn has_connection(&self, connection: ConnectionId) -> bool {
        self.connections.contains(connection)
    }

    pub(in crate::session) fn has_pending_admissions(&self) -> bool {
        self.connections.has_waiting()
    }

    pub(in crate::session) fn attach(&mut self, connection: ConnectionId) -> Attached {
        if self.arena == Arena::Open {
            self.connections.admit(connection);
            return Attached::Admitted;
        }
        self.connections.wait(connection);
        match self.arena {
            Arena::Closed | Arena::Refused => Attached::NeedsArena,
            Arena::Open | Arena::Opening | Arena::Closing => Attached::Waiting,
        }
    }

    pub(in crate::session) fn open(&mut self) -> Operation {
        self.arena = Arena::Opening;
        Operation::OpenArena { rank: self.rank, len: self.len() }
    }

    /// Returns the connections that waited for the arena. If all of them are gone again, the arena is to be
    /// closed.
    pub(in crate::session) fn opened(&mut self, now: Nanoseconds) -> Vec<ConnectionId> {
        self.arena = Arena::Open;
        self.is_blocked = false;
        self.opened_at = now;
        self.space.add_chunk(ARENA, self.len());
        let admitted = self.connections.take_waiting();
        admitted.iter().for_each(|connection| self.connections.admit(*connection));
        if self.connections.have_left() {
            self.arena = Arena::Closing;
        }
        admitted
    }

    /// Returns the connections that waited for the arena.
    pub(in crate::session) fn refused(&mut self) -> Vec<ConnectionId> {
        self.arena = Arena::Refused;
        self.connections.take_waiting()
    }

    /// Takes back all that `connection` asked for or has. Returns whether it was the last of the rank and
    /// the arena is open.
    pub(super) fn detach(&mut self, connection: ConnectionId) -> bool {
        if !self.connections.remove(connection) {
            return false;
        }
        self.wanted.retain(|(_, other)| *other != connection);
        self.drop_where(|staged| staged.claim.connection() == Some(connection));
        self.sweep();
        self.connections.have_left() && self.arena == Arena::Open
    }

    /// Closes the arena as soon as nothing is in flight there; the next trainer starts at `cursor`.
    pub(in crate::session) fn close(&mut self, cursor: Option<BatchId>) {
        self.cursor = cursor;
        self.arena = Arena::Closing;
        self.memory.unpin();
        self.wanted.clear();
        self.drop_where(|_| true);
        self.has_dropped = true;
        self.sweep();
    }

    pub(super) fn close_if_idle(&mut self) -> bool {
        let is_idle = self.staged.is_empty() && !self.memory.is_changing();
        if self.arena != Arena::Closing || !is_idle {
            return false;
        }
        self.arena = Arena::Closed;
        self.space = Space::new();
        self.memory.closed();
        true
    }

    /// The last request of the trainer that is farthest behind; `None` if none has asked.
    pub(super) fn requested(&self) -> Option<BatchId> {
        self.connections.farthest_behind()
    }

    /// Whether staging, which goes on by itself, does not reach a batch soon.
    pub(in crate::session) fn is_far(&self, batch: BatchId, spec: &Spec) -> bool {
        let Some(cursor) = self.cursor else { return true };
        batch < cursor || spec.batches_between(cursor, Some(batch)) > self.near()
    }

    /// The distance from the cursor up to which a request is no jump.
    fn near(&self) -> u64 {
        2 * self.staged.len() as u64 + JUMP_BATCHES
    }

    /// Claims a batch for a connection, or notes that it has to be staged.
    pub(in crate::session) fn request(
        &mut self,
        connection: ConnectionId,
        batch: BatchId,
        spec: &Spec,
    ) -> Result<(), Refusal> {
        let was_staged = self.staged.contains_key(&batch);
        self.pass(connection, batch, spec.batches_between(batch, self.cursor));
        let is_gone = |staged: &StagedBatch| staged.is_stale && staged.claim == Claim::Dropped;
        let staged = self.staged.get_mut(&batch).filter(|it| was_staged && !is_gone(it));
        if let Some(staged) = staged {
            if !matches!(staged.claim, Claim::Unclaimed | Claim::Dropped) {
                return Err(Refusal::AlreadyTaken);
            }
            staged.claim = Claim::Requested(connection);
            return Ok(());
        }
        if self.wanted_by(batch).is_some() {
            return Err(Refusal::AlreadyTaken);
        }
        self.wanted.push_back((batch, connection));
        self.is_blocked = false;
        Ok(())
    }

    /// Notes a request of a connection. Batches behind all connections were skipped: they make room.
    /// `ahead` is the number of batches by which the cursor is beyond the request; a jump back moves the
    /// cursor there.
    fn pass(&mut self, connection: ConnectionId, batch: BatchId, ahead: u64) {
        let behind = self.connections.request(connection, batch);
        self.drop_where(|it| it.batch.id < behind && it.claim == Claim::Unclaimed);
        self.sweep();
        if ahead > self.near() {
            self.cursor = Some(batch);
        }
    }

    /// The connection that asked for a batch that has no range yet.
    pub(in crate::session) fn wanted_by(&self, batch: BatchId) -> Option<ConnectionId> {
        self.wanted.iter().find(|(other, _)| *other == batch).map(|(_, connection)| *connection)
    }

    /// As [`Self::wanted_by`], and removes the request: it is answered elsewhere.
    pub(in crate::session) fn take_wanted(&mut self, batch: BatchId) -> Option<ConnectionId> {
        let index = self.wanted.iter().position(|(other, _)| *other == batch)?;
        self.wanted.remove(index).map(|(_, connection)| connection)
    }

    /// The batch to get a range next: requests first, then the cursor.
    pub(super) fn next(&self, staged_max: u32) -> Option<BatchId> {
        if self.arena != Arena::Open || self.is_blocked {
            return None;
        }
        let has_room = |staged_max: u32| self.staged.len() < staged_max as usize;
        match (self.wanted.front(), self.limit) {
            (Some((batch, _)), None) => Some(*batch),
            // A trainer that keeps as many as it may have must not wait for ever.
            (Some((batch, connection)), Some(limit)) => {
                (has_room(limit) || self.is_stuck_for(*connection)).then_some(*batch)
            }
            (None, limit) => {
                self.cursor.filter(|_| has_room(staged_max.min(limit.unwrap_or(u32::MAX))))
            }
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.arena == Arena::Open
    }

    /// `None` at the end of the run.
    pub(super) fn cursor(&self) -> Option<BatchId> {
        self.cursor
    }

    /// Stages nothing more until [`Self::unblock`].
    pub(in crate::session) fn block(&mut self) {
        self.is_blocked = true;
    }

    /// To be called after a change that may give the next batch its room or its order.
    pub(in crate::session) fn unblock(&mut self) {
        self.is_blocked = false;
    }

    /// Goes on behind a batch that has a range already; `None` if it has none. `Some(false)` if the rank
    /// must wait until that range is free.
    pub(in crate::session) fn resume(
        &mut self,
        batch: BatchId,
        after: Option<BatchId>,
    ) -> Option<bool> {
        let staged = self.staged.get_mut(&batch)?;
        if staged.is_stale {
            // Its range is free as soon as nothing is on its way there.
            return Some(false);
        }
        if staged.claim == Claim::Dropped {
            // It was dropped to save room, and there is room again before its bytes arrived.
            staged.claim = Claim::Unclaimed;
        }
        self.advance(batch, after);
        Some(true)
    }

    /// Puts the cursor behind a batch that just got its range, or gets none.
    pub(in crate::session) fn advance(&mut self, batch: BatchId, after: Option<BatchId>) {
        if self.cursor.is_some_and(|cursor| cursor <= batch) {
            self.cursor = after;
        }
    }

    pub(in crate::session) fn move_cursor(&mut self, batch: Option<BatchId>) {
        self.cursor = batch;
    }

    /// Finds room for a batch. If a trainer asked for it, batches that no trainer asked for make way: first
    /// those behind it, then those that are needed last.
    pub(in crate::session) fn make_room(&mut self, batch: BatchId, len: Bytes) -> Option<Piece> {
        self.memory.note_batch(len);
        loop {
            if let Some(piece) = self.space.take_contiguous(len) {
                return Some(piece);
            }
            self.wanted_by(batch)?;
            let idle =
                |staged: &StagedBatch| staged.claim == Claim::Unclaimed && staged.pending == 0;
            let mut idle = self.staged.iter().filter(|(_, staged)| idle(staged)).map(|(id, _)| *id);
            let behind = idle.clone().next().filter(|id| *id < batch);
            let victim = behind.or_else(|| idle.next_back())?;
            self.vacate(victim);
        }
    }

    /// Gives a batch its range. Until all its samples are planned, it counts one more operation: samples
    /// that it reads in place may be there at once.
    pub(in crate::session) fn place(
        &mut self,
        (batch, inputs): (Batch, Vec<Bytes>),
        number: BatchNumber,
        piece: Piece,
        now: Nanoseconds,
    ) {
        let id = batch.id;
        let staged = StagedBatch {
            batch,
            inputs,
            number,
            local: Bytes(0),
            remote: Bytes(0),
            cold: Bytes(0),
            piece,
            pending: 1,
            refusal: None,
            claim: self.take_wanted(id).map_or(Claim::Unclaimed, Claim::Requested),
            is_stale: false,
            timeline: Timeline::new(self.opened_at, now, self.tiers),
        };
        self.staged.insert(id, staged);
    }

    /// Whether `connection` would wait for ever for room: no operation is on its way that could make some,
    /// and no lease waits in its ring that it could take and give back.
    pub(in crate::session) fn is_stuck_for(&self, connection: ConnectionId) -> bool {
        let may_help = |staged: &StagedBatch| {
            staged.pending > 0
                || matches!(staged.claim, Claim::Leased(other, _) if other == connection)
        };
        !self.memory.is_changing() && !self.staged.values().any(may_help)
    }

    /// Keeps the memory of the arena until its last connection is gone.
    pub(in crate::session) fn pin(&mut self) {
        self.memory.pin();
    }

    /// Stages at most this many batches from now on, and drops unclaimed batches beyond, the last needed
    /// first; `None` lifts the limit. Batches that trainers hold stay with them.
    pub(super) fn limit(&mut self, batches: Option<u32>) {
        self.limit = batches;
        self.is_blocked = false;
        self.memory.limit(batches);
        let allowed = batches.map_or(usize::MAX, |batches| batches as usize);
        let surplus = self.staged.len().saturating_sub(allowed);
        let idle = self.staged.iter_mut().rev().filter(|(_, it)| it.claim == Claim::Unclaimed);
        for (id, staged) in idle.take(surplus) {
            staged.claim = Claim::Dropped;
            self.has_dropped = true;
            self.cursor = Some(self.cursor.map_or(*id, |cursor| cursor.min(*id)));
        }
        self.sweep();
    }

    /// Starts anew with an epoch whose order changed. Returns the requests that will get no batch.
    pub(in crate::session) fn restart_epoch(
        &mut self,
        epoch: Epoch,
    ) -> Vec<(BatchId, ConnectionId)> {
        self.cursor = Some(BatchId { epoch, step: Step(0), rank: self.rank });
        let mut refused = Vec::new();
        for (id, staged) in self.staged.iter_mut().filter(|(id, _)| id.epoch == epoch) {
            staged.is_stale = true;
            self.has_dropped = true;
            match staged.claim {
                Claim::Requested(connection) => refused.push((*id, connection)),
                Claim::Unclaimed => {}
                Claim::Leased(..) | Claim::Held(..) | Claim::Dropped => continue,
            }
            staged.claim = Claim::Dropped;
        }
        let (gone, kept) =
            mem::take(&mut self.wanted).into_iter().partition(|it| it.0.epoch == epoch);
        self.wanted = kept;
        refused.extend::<VecDeque<_>>(gone);
        self.sweep();
        refused
    }

    fn drop_where(&mut self, is_dropped: impl Fn(&StagedBatch) -> bool) {
        for staged in self.staged.values_mut().filter(|staged| is_dropped(staged)) {
            staged.claim = Claim::Dropped;
            self.has_dropped = true;
        }
    }

    /// Frees the dropped batches that no operation uses.
    pub(in crate::session) fn sweep(&mut self) {
        let free: Vec<BatchId> =
            self.staged.iter().filter(|(_, staged)| staged.is_free()).map(|(id, _)| *id).collect();
        free.into_iter().for_each(|batch| self.vacate(batch));
    }

    pub(in crate::session) fn vacate(&mut self, batch: BatchId) {
        if let Some(staged) = self.staged.remove(&batch) {
            self.wasted.0 += staged.timeline.wasted().0;
            self.unpinned.extend(staged.batch.entries.iter().filter_map(|entry| entry.in_place));
            self.space.give_back(&[staged.piece]);
            self.is_blocked = false;
        }
    }

    pub(super) fn take_dropped(&mut self) -> bool {
        mem::take(&mut self.has_dropped)
    }

    pub(in crate::session) fn unpin(&mut self, batch: BatchId, index: usize) {
        let staged = self.staged.get_mut(&batch);
        let in_place = staged.and_then(|staged| staged.batch.entries[index].in_place.take());
        self.unpinned.extend(in_place);
    }

    pub(super) fn take_unpinned(&mut self) -> Vec<InPlace> {
        mem::take(&mut self.unpinned)
    }

    pub(super) fn resize_arena(&mut self) -> Vec<Operation> {
        if self.arena != Arena::Open || self.memory.is_whole() {
            return Vec::new();
        }
        self.memory.resize(self.rank, &mut self.space)
    }

    /// Records that the memory of a range was given back, or could not be: no batch lies there from now on.
    pub(in crate::session) fn trimmed(&mut self, offset: Bytes, len: Bytes) {
        self.memory.trimmed(Piece { chunk: ARENA, offset, len });
        self.is_blocked = false;
    }

    pub(in crate::session) fn restored(&mut self, offset: Bytes, len: Bytes, is_there: bool) {
        let piece = Piece { chunk: ARENA, offset, len };
        if self.memory.restored(piece, is_there) {
            self.space.give_back(&[piece]);
        }
        self.is_blocked = false;
    }

    /// Asks for all memory that was given back, because a batch finds no room without it. Returns whether
    /// that may help.
    pub(in crate::session) fn restore(&mut self) -> bool {
        self.memory.restore()
    }
}

#[cfg(test)]
impl RankStaging {
    pub(in crate::session) fn arena(&self) -> Arena {
        self.arena
    }

    pub(in crate::session) fn opened_at(&self) -> Nanoseconds {
        self.opened_at
    }

    pub(in crate::session) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }
}
