//! The staging memory of one rank: which batches are being assembled there, ready, or with a trainer.
//!
//! Batches lie in one piece, so the arena is handed out by the same [`Space`] as the tiers, but only
//! contiguously. A batch that nobody asked for yields to one that somebody did, and is dropped once
//! every trainer of the rank has asked for a later one.
//!
//! Where memory is short ([`arena`]) fewer batches are staged and the end of the arena is given back.

mod arena;

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::mem;

pub(super) use arena::Passage;

use super::{pace::Need, stall::Marks};
use crate::{
    batch::{Batch, Entry, Shown},
    id::{BatchId, ChunkId, ConnectionId, Epoch, LeaseId, SampleId},
    order::Spec,
    session::{Fault, Slot},
    space::{Piece, Space},
    units::{Bytes, Nanoseconds},
};

/// The arena is one chunk.
const ARENA: ChunkId = ChunkId(0);

/// How far behind the cursor a request may lie, beyond what is staged, before it counts as a jump back:
/// workers of a loader ask a little out of turn.
const JUMP_BATCHES: u64 = 16;

/// Who a staged batch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taker {
    /// Staged ahead; no one has asked.
    Nobody,
    /// Asked for, not complete yet.
    Requested(ConnectionId),
    /// Handed over, waiting in the ring.
    Leased(ConnectionId, LeaseId),
    /// The trainer works with it.
    Held(ConnectionId, LeaseId),
    /// Not wanted any more; freed once nothing is on its way into it.
    Dropped,
}

impl Taker {
    fn connection(self) -> Option<ConnectionId> {
        match self {
            Self::Requested(connection)
            | Self::Leased(connection, _)
            | Self::Held(connection, _) => Some(connection),
            Self::Nobody | Self::Dropped => None,
        }
    }
}

/// A batch with a place in the arena.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) batch: Batch,
    pub(super) need: Need,
    /// What of it comes from tiers.
    pub(super) local: Bytes,
    /// What of it comes from the cold store.
    pub(super) cold: Bytes,
    pub(super) piece: Piece,
    /// Operations that still read or write its bytes.
    pub(super) pending: u32,
    /// The first sample that could not be read, if the job does not skip such.
    pub(super) unreadable: Option<(SampleId, Fault)>,
    pub(super) taker: Taker,
    /// Its order changed since it was staged, or not all of it is on its way any more: nobody gets it.
    pub(super) is_stale: bool,
    pub(super) marks: Marks,
}

impl Staged {
    /// The place of a sample in the arena.
    pub(super) fn slot_of(&self, entry: &Entry) -> Slot {
        let offset = Bytes(self.piece.offset.0 + entry.offset.0);
        Slot { rank: self.batch.id.rank, offset, len: entry.len.unwrap_or_default() }
    }

    /// Whether the rank has not got it yet, and will.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.taker, Taker::Nobody | Taker::Requested(_))
    }
}

/// Whether the arena is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arena {
    Closed,
    Opening,
    Open,
    /// To be closed once nothing is in flight.
    Closing,
    /// The node has no memory for it.
    Refused,
}

/// The staging memory of one rank.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) arena: Arena,
    pub(super) staged: BTreeMap<BatchId, Staged>,
    /// Requests for batches that have no place yet, in the order in which they came: what a connection
    /// asked for first is staged first, so that no answer waits for one behind it.
    pub(super) wanted: VecDeque<(BatchId, ConnectionId)>,
    pub(super) connections: BTreeSet<ConnectionId>,
    /// Whether a trainer has come in yet. Before the first one, batches are staged for whoever will come.
    was_entered: bool,
    /// What each connection asked for last.
    reached: BTreeMap<ConnectionId, BatchId>,
    /// Connections that wait for the arena to open.
    pub(super) knocking: Vec<ConnectionId>,
    /// The batch to stage next when nobody asks for another.
    pub(super) cursor: Option<BatchId>,
    /// The next batch was tried in vain, and nothing has changed since.
    pub(super) is_blocked: bool,
    /// A batch was dropped of which operations may be called off.
    pub(super) has_leftovers: bool,
    /// When the arena was last opened.
    pub(super) opened_at: Nanoseconds,
    /// Bytes read for batches that nobody took.
    pub(super) wasted: Bytes,
    /// Positions that are named no more, by batches that are gone.
    pub(super) unnamed: Vec<Shown>,
    /// Batches that may be staged, while memory is short.
    limit: Option<u32>,
    space: Space,
    memory: arena::Memory,
}

impl Staging {
    /// An arena of `len` bytes that is to hold `batches`.
    pub(super) fn new(len: Bytes, batches: u32, first: BatchId) -> Self {
        Self {
            arena: Arena::Closed,
            staged: BTreeMap::new(),
            wanted: VecDeque::new(),
            connections: BTreeSet::new(),
            was_entered: false,
            reached: BTreeMap::new(),
            knocking: Vec::new(),
            cursor: Some(first),
            is_blocked: false,
            has_leftovers: false,
            opened_at: Nanoseconds(0),
            wasted: Bytes(0),
            unnamed: Vec::new(),
            limit: None,
            space: Space::new(),
            memory: arena::Memory::new(len, batches),
        }
    }

    pub(super) fn len(&self) -> Bytes {
        self.memory.len()
    }

    /// The arena is there. Returns who waited for it; if all of them are gone again, it is to be closed.
    pub(super) fn opened(&mut self, now: Nanoseconds) -> Vec<ConnectionId> {
        self.arena = Arena::Open;
        self.is_blocked = false;
        self.opened_at = now;
        self.space.add_chunk(ARENA, self.len());
        let knocking = mem::take(&mut self.knocking);
        knocking.iter().for_each(|connection| self.enter(*connection));
        if self.was_entered && self.connections.is_empty() {
            self.arena = Arena::Closing;
        }
        knocking
    }

    pub(super) fn enter(&mut self, connection: ConnectionId) {
        self.connections.insert(connection);
        self.was_entered = true;
    }

    pub(super) fn closed(&mut self) {
        self.arena = Arena::Closed;
        self.space = Space::new();
        self.memory.closed();
    }

    /// The batch that should get a place next: what is asked for first, then what comes next.
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

    /// Stages at most so many batches from now on, and drops what nobody asked for beyond, what is
    /// needed last first; `None` lifts the limit. What trainers hold stays with them.
    pub(super) fn limit(&mut self, batches: Option<u32>) {
        self.limit = batches;
        self.is_blocked = false;
        self.memory.limit(batches);
        let allowed = batches.map_or(usize::MAX, |batches| batches as usize);
        let surplus = self.staged.len().saturating_sub(allowed);
        let idle = self.staged.iter_mut().rev().filter(|(_, it)| it.taker == Taker::Nobody);
        for (id, staged) in idle.take(surplus) {
            staged.taker = Taker::Dropped;
            self.has_leftovers = true;
            self.cursor = Some(self.cursor.map_or(*id, |cursor| cursor.min(*id)));
        }
        self.sweep();
    }

    /// Notes how far a connection has come, which makes room: what lies behind all connections was skipped.
    /// `ahead` is how many batches the cursor is beyond the request; a jump back takes it along.
    pub(super) fn reach(&mut self, connection: ConnectionId, batch: BatchId, ahead: u64) {
        self.reached.insert(connection, batch);
        let behind = self.reached.values().min().copied().unwrap_or(batch);
        for (id, staged) in &mut self.staged {
            if *id < behind && staged.taker == Taker::Nobody {
                staged.taker = Taker::Dropped;
                self.has_leftovers = true;
            }
        }
        self.sweep();
        if ahead > 2 * self.staged.len() as u64 + JUMP_BATCHES {
            self.cursor = Some(batch);
        }
    }

    /// What the trainer that is farthest behind asked for last, if any has asked.
    pub(super) fn reached(&self) -> Option<BatchId> {
        self.reached.values().min().copied()
    }

    /// Whether staging, which goes on by itself, would not come to a batch soon.
    pub(super) fn is_far(&self, batch: BatchId, spec: &Spec) -> bool {
        let Some(cursor) = self.cursor else { return true };
        let near = 2 * self.staged.len() as u64 + JUMP_BATCHES;
        batch < cursor || spec.batches_between(cursor, Some(batch)) > near
    }

    pub(super) fn want(&mut self, batch: BatchId, connection: ConnectionId) {
        self.wanted.push_back((batch, connection));
        self.is_blocked = false;
    }

    /// Who asked for a batch that has no place yet.
    pub(super) fn wanted_by(&self, batch: BatchId) -> Option<ConnectionId> {
        self.wanted.iter().find(|(other, _)| *other == batch).map(|(_, connection)| *connection)
    }

    /// As [`Self::wanted_by`]; the request is answered elsewhere from now on.
    pub(super) fn take_wanted(&mut self, batch: BatchId) -> Option<ConnectionId> {
        let index = self.wanted.iter().position(|(other, _)| *other == batch)?;
        self.wanted.remove(index).map(|(_, connection)| connection)
    }

    /// Finds room for a batch; what nobody asked for makes way if `batch` was asked for: first what
    /// lies behind it, then what is needed last.
    pub(super) fn make_room(&mut self, batch: BatchId, len: Bytes) -> Option<Piece> {
        self.memory.saw(len);
        loop {
            if let Some(piece) = self.space.take_contiguous(len) {
                return Some(piece);
            }
            self.wanted_by(batch)?;
            let idle = |staged: &Staged| staged.taker == Taker::Nobody && staged.pending == 0;
            let mut idle = self.staged.iter().filter(|(_, staged)| idle(staged)).map(|(id, _)| *id);
            let behind = idle.clone().next().filter(|id| *id < batch);
            let victim = behind.or_else(|| idle.next_back())?;
            self.vacate(victim);
        }
    }

    /// Whether `connection` would wait for ever for room: nothing is on its way that could make some, and
    /// no lease waits in its ring that it could take and give back.
    pub(super) fn is_stuck_for(&self, connection: ConnectionId) -> bool {
        let may_help = |staged: &Staged| {
            staged.pending > 0
                || matches!(staged.taker, Taker::Leased(other, _) if other == connection)
        };
        !self.memory.is_moving() && !self.staged.values().any(may_help)
    }

    /// Batches that trainers have or were handed.
    pub(super) fn leases(&self) -> usize {
        let is_out = |staged: &&Staged| matches!(staged.taker, Taker::Leased(..) | Taker::Held(..));
        self.staged.values().filter(is_out).count()
    }

    /// Batches that are complete and that no trainer has taken.
    pub(super) fn ready(&self) -> usize {
        let is_ready = |staged: &&Staged| {
            let is_here = staged.pending == 0 && staged.unreadable.is_none() && !staged.is_stale;
            matches!(staged.taker, Taker::Leased(..)) || (is_here && staged.is_awaited())
        };
        self.staged.values().filter(is_ready).count()
    }

    /// The lease of a batch, if `connection` has it.
    pub(super) fn leased(
        &mut self,
        connection: ConnectionId,
        lease: LeaseId,
    ) -> Option<&mut Staged> {
        self.staged.values_mut().find(|staged| {
            [Taker::Leased(connection, lease), Taker::Held(connection, lease)]
                .contains(&staged.taker)
        })
    }

    /// Takes back everything that `connection` asked for or has.
    pub(super) fn leave(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        self.reached.remove(&connection);
        self.knocking.retain(|other| *other != connection);
        self.wanted.retain(|(_, other)| *other != connection);
        let of_holder = |staged: &&mut Staged| staged.taker.connection() == Some(connection);
        for staged in self.staged.values_mut().filter(of_holder) {
            staged.taker = Taker::Dropped;
            self.has_leftovers = true;
        }
        self.sweep();
    }

    /// Drops whatever is staged.
    pub(super) fn abandon(&mut self) {
        self.wanted.clear();
        self.has_leftovers = true;
        self.staged.values_mut().for_each(|staged| staged.taker = Taker::Dropped);
        self.sweep();
    }

    /// Drops an epoch whose order changed. Returns the requests that will get no batch.
    pub(super) fn drop_epoch(&mut self, epoch: Epoch) -> Vec<(BatchId, ConnectionId)> {
        let mut refused = Vec::new();
        for (id, staged) in self.staged.iter_mut().filter(|(id, _)| id.epoch == epoch) {
            staged.is_stale = true;
            self.has_leftovers = true;
            match staged.taker {
                Taker::Requested(connection) => refused.push((*id, connection)),
                Taker::Nobody => {}
                Taker::Leased(..) | Taker::Held(..) | Taker::Dropped => continue,
            }
            staged.taker = Taker::Dropped;
        }
        self.wanted.retain(|(id, connection)| {
            let stays = id.epoch != epoch;
            if !stays {
                refused.push((*id, *connection));
            }
            stays
        });
        self.sweep();
        refused
    }

    /// What of the arena is to be given back now, and what is to be taken again.
    pub(super) fn passages(&mut self) -> Vec<Passage> {
        if self.arena != Arena::Open {
            return Vec::new();
        }
        self.memory.passages(&mut self.space)
    }

    /// A range was given back, or is there again.
    pub(super) fn passed(&mut self, passage: Passage, has_failed: bool) {
        if let Some(piece) = self.memory.passed(passage, has_failed) {
            self.space.give_back(&[piece]);
        }
        self.is_blocked = false;
    }

    /// Asks for all that was given back, because a batch finds no room without it. Returns whether that
    /// may help.
    pub(super) fn restore(&mut self) -> bool {
        self.memory.restore()
    }

    /// Whether the arena may be closed.
    pub(super) fn is_empty(&self) -> bool {
        self.staged.is_empty() && !self.memory.is_moving()
    }

    /// Frees the dropped batches into which nothing is on its way.
    pub(super) fn sweep(&mut self) {
        let done = |staged: &Staged| staged.taker == Taker::Dropped && staged.pending == 0;
        let dropped: Vec<BatchId> =
            self.staged.iter().filter(|(_, staged)| done(staged)).map(|(id, _)| *id).collect();
        dropped.into_iter().for_each(|batch| self.vacate(batch));
    }

    pub(super) fn vacate(&mut self, batch: BatchId) {
        if let Some(staged) = self.staged.remove(&batch) {
            self.wasted.0 += staged.marks.wasted().0;
            self.unnamed.extend(staged.batch.entries.iter().filter_map(|entry| entry.shown));
            self.space.give_back(&[staged.piece]);
            self.is_blocked = false;
        }
    }

    /// Puts the cursor behind a batch that just got its place.
    pub(super) fn advance(&mut self, batch: BatchId, after: Option<BatchId>) {
        if self.cursor.is_some_and(|cursor| cursor <= batch) {
            self.cursor = after;
        }
    }
}
