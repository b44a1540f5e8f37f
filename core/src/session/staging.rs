//! The staging memory of one rank: which batches are being assembled there, ready, or with a trainer.
//!
//! Batches lie in one piece, so the arena is handed out by the same [`Space`] as the tiers, but only
//! contiguously. A batch that nobody asked for yields to one that somebody did.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

use crate::{
    batch::Batch,
    id::{BatchId, ChunkId, HolderId, LeaseId, SampleId},
    session::Fault,
    space::{Piece, Space},
    units::Bytes,
};

/// The arena is one chunk.
const ARENA: ChunkId = ChunkId(0);

/// Who a staged batch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taker {
    /// Staged ahead; no one has asked.
    Nobody,
    /// Asked for, not complete yet.
    Requested(HolderId),
    /// Handed over, waiting in the ring.
    Leased(HolderId, LeaseId),
    /// The trainer works with it.
    Held(HolderId, LeaseId),
    /// Not wanted any more; freed once nothing is on its way into it.
    Dropped,
}

impl Taker {
    fn holder(self) -> Option<HolderId> {
        match self {
            Self::Requested(holder) | Self::Leased(holder, _) | Self::Held(holder, _) => {
                Some(holder)
            }
            Self::Nobody | Self::Dropped => None,
        }
    }
}

/// A batch with a place in the arena.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) batch: Batch,
    pub(super) piece: Piece,
    /// Operations that still read or write its bytes.
    pub(super) pending: u32,
    /// The first sample that could not be read, if the job does not skip such.
    pub(super) unreadable: Option<(SampleId, Fault)>,
    pub(super) taker: Taker,
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
    /// Requests for batches that have no place yet, in the order in which they came: what a holder
    /// asked for first is staged first, so that no answer waits for one behind it.
    pub(super) wanted: VecDeque<(BatchId, HolderId)>,
    pub(super) holders: BTreeSet<HolderId>,
    /// Connections that wait for the arena to open.
    pub(super) knocking: Vec<HolderId>,
    /// The batch to stage next when nobody asks for another.
    pub(super) cursor: Option<BatchId>,
    space: Space,
    len: Bytes,
}

impl Staging {
    pub(super) fn new(len: Bytes, first: BatchId) -> Self {
        Self {
            arena: Arena::Closed,
            staged: BTreeMap::new(),
            wanted: VecDeque::new(),
            holders: BTreeSet::new(),
            knocking: Vec::new(),
            cursor: Some(first),
            space: Space::new(),
            len,
        }
    }

    pub(super) fn len(&self) -> Bytes {
        self.len
    }

    pub(super) fn opened(&mut self) {
        self.arena = Arena::Open;
        self.space.add_chunk(ARENA, self.len);
    }

    pub(super) fn closed(&mut self) {
        self.arena = Arena::Closed;
        self.space = Space::new();
    }

    /// The batch that should get a place next: what is asked for first, then what comes next.
    pub(super) fn next(&self, staged_max: u32) -> Option<BatchId> {
        if self.arena != Arena::Open {
            return None;
        }
        let wanted = self.wanted.front().map(|(batch, _)| *batch);
        wanted.or_else(|| self.cursor.filter(|_| self.staged.len() < staged_max as usize))
    }

    pub(super) fn is_wanted(&self, batch: BatchId) -> bool {
        self.wanted.iter().any(|(other, _)| *other == batch)
    }

    /// Who asked for a batch that has no place yet; the request is answered elsewhere from now on.
    pub(super) fn take_wanted(&mut self, batch: BatchId) -> Option<HolderId> {
        let index = self.wanted.iter().position(|(other, _)| *other == batch)?;
        self.wanted.remove(index).map(|(_, holder)| holder)
    }

    /// Finds room for a batch; what nobody asked for makes way if `batch` was asked for.
    pub(super) fn make_room(&mut self, batch: BatchId, len: Bytes) -> Option<Piece> {
        loop {
            if let Some(piece) = self.space.take_contiguous(len) {
                return Some(piece);
            }
            if !self.is_wanted(batch) {
                return None;
            }
            let idle = |staged: &Staged| staged.taker == Taker::Nobody && staged.pending == 0;
            let stale = self.staged.iter().find(|(_, staged)| idle(staged));
            let stale = stale.map(|(id, _)| *id)?;
            self.free(stale);
        }
    }

    /// Whether every staged batch is in a trainer's hands, so that waiting for room may never end.
    pub(super) fn is_held_entirely(&self) -> bool {
        self.staged.values().all(|staged| matches!(staged.taker, Taker::Held(..)))
    }

    /// The lease of a batch, if `holder` has it.
    pub(super) fn leased(&mut self, holder: HolderId, lease: LeaseId) -> Option<&mut Staged> {
        self.staged.values_mut().find(|staged| {
            [Taker::Leased(holder, lease), Taker::Held(holder, lease)].contains(&staged.taker)
        })
    }

    /// Takes back everything that `holder` asked for or has.
    pub(super) fn leave(&mut self, holder: HolderId) {
        self.holders.remove(&holder);
        self.knocking.retain(|other| *other != holder);
        self.wanted.retain(|(_, other)| *other != holder);
        let of_holder = |staged: &&mut Staged| staged.taker.holder() == Some(holder);
        for staged in self.staged.values_mut().filter(of_holder) {
            staged.taker = Taker::Dropped;
        }
        self.sweep();
    }

    /// Drops whatever is staged.
    pub(super) fn abandon(&mut self) {
        self.wanted.clear();
        self.staged.values_mut().for_each(|staged| staged.taker = Taker::Dropped);
        self.sweep();
    }

    /// Frees the dropped batches into which nothing is on its way.
    pub(super) fn sweep(&mut self) {
        let done = |staged: &Staged| staged.taker == Taker::Dropped && staged.pending == 0;
        let dropped: Vec<BatchId> =
            self.staged.iter().filter(|(_, staged)| done(staged)).map(|(id, _)| *id).collect();
        dropped.into_iter().for_each(|batch| self.free(batch));
    }

    pub(super) fn free(&mut self, batch: BatchId) {
        if let Some(staged) = self.staged.remove(&batch) {
            self.space.give_back(&[staged.piece]);
        }
    }

    /// Puts the cursor behind a batch that just got its place.
    pub(super) fn advance(&mut self, batch: BatchId, after: Option<BatchId>) {
        if self.cursor.is_some_and(|cursor| cursor <= batch) {
            self.cursor = after;
        }
    }
}
