//! A batch that has its range in the arena: for whom it is, what is still on its way, and when what came.

use alloc::vec::Vec;

use crate::{
    batch::{Batch, Entry},
    id::{ConnectionId, LeaseId},
    session::{Refusal, Slot, deadlines::BatchNumber, stall::Timeline},
    space::Piece,
    units::Bytes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Claim {
    /// Staged ahead: no trainer has asked for it.
    Unclaimed,
    /// Asked for, not complete yet.
    Requested(ConnectionId),
    /// Handed over, waiting in the ring.
    Leased(ConnectionId, LeaseId),
    /// The trainer works with it.
    Held(ConnectionId, LeaseId),
    /// Not wanted any more; freed once no operation uses its bytes.
    Dropped,
}

impl Claim {
    pub(super) fn connection(self) -> Option<ConnectionId> {
        match self {
            Self::Requested(connection)
            | Self::Leased(connection, _)
            | Self::Held(connection, _) => Some(connection),
            Self::Unclaimed | Self::Dropped => None,
        }
    }
}

#[derive(Debug)]
pub(in crate::session) struct StagedBatch {
    pub(in crate::session) batch: Batch,
    /// The offset in the batch where the bytes of each sample arrive; empty if they arrive where they are
    /// read.
    pub(in crate::session) inputs: Vec<Bytes>,
    pub(in crate::session) number: BatchNumber,
    /// From tiers.
    pub(in crate::session) local: Bytes,
    /// From other nodes.
    pub(in crate::session) remote: Bytes,
    /// From the cold store.
    pub(in crate::session) cold: Bytes,
    pub(in crate::session) piece: Piece,
    /// Operations that still read or write its bytes, and one while its samples are planned.
    pub(in crate::session) pending: u32,
    /// Set by the first sample that could not be read and is not skipped: the batch is not handed over.
    pub(in crate::session) refusal: Option<Refusal>,
    pub(in crate::session) claim: Claim,
    /// Whether its order changed since it was staged, or an arrival was cancelled: it is not handed over.
    pub(in crate::session) is_stale: bool,
    pub(in crate::session) timeline: Timeline,
}

impl StagedBatch {
    pub(in crate::session) fn slot_of(&self, entry: &Entry) -> Slot {
        let offset = Bytes(self.piece.offset.0 + entry.offset.0);
        Slot { rank: self.batch.id.rank, offset, len: entry.len.unwrap_or_default() }
    }

    /// The range of an input slot that `len` bytes of a sample take.
    pub(in crate::session) fn input_of(&self, index: usize, len: Bytes) -> Option<Slot> {
        let offset = Bytes(self.piece.offset.0 + self.inputs.get(index)?.0);
        Some(Slot { rank: self.batch.id.rank, offset, len })
    }

    /// The entry whose bytes arrive in a slot.
    pub(in crate::session) fn index_at(&self, slot: Slot) -> Option<usize> {
        let entries = &self.batch.entries;
        entries.iter().position(|entry| self.slot_of(entry) == slot)
    }

    /// Whether it is to be handed over and was not yet.
    pub(in crate::session) fn is_awaited(&self) -> bool {
        matches!(self.claim, Claim::Unclaimed | Claim::Requested(_))
    }

    /// Whether a trainer has it, or was handed it.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.claim, Claim::Leased(..) | Claim::Held(..))
    }

    /// Whether it is complete and no trainer has taken it.
    pub(super) fn is_ready(&self) -> bool {
        let is_here = self.pending == 0 && self.refusal.is_none() && !self.is_stale;
        matches!(self.claim, Claim::Leased(..)) || (is_here && self.is_awaited())
    }

    /// Whether nothing keeps its range: it was dropped, and no operation uses it.
    pub(super) fn is_free(&self) -> bool {
        self.claim == Claim::Dropped && self.pending == 0
    }
}
