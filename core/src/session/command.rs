//! What a session is told and what it asks for: the whole interface between brain and body.

use alloc::{sync::Arc, vec::Vec};

use crate::{
    batch::Batch,
    id::{BatchId, ChunkId, ConnectionId, Epoch, LeaseId, OpId, Rank, SampleId, TierId},
    place::Place,
    session::{Tally, Wait},
    units::Bytes,
};

/// A range of the staging arena of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Whose arena.
    pub rank: Rank,
    /// From the start of the arena.
    pub offset: Bytes,
    /// Length.
    pub len: Bytes,
}

/// Where a demotion reads from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A sample that was just staged.
    Staging(Slot),
    /// A faster tier that must give it up.
    Tier(Place),
}

/// Whether a tier takes a copy of a sample while it is staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retention {
    /// It will be copied, and its bytes have to be vouched for.
    Kept,
    /// It is read once, by the trainer.
    Dropped,
}

/// What the data plane shall do. Every command with an `op` is answered by [`Event::Completed`].
///
/// Commands with an `op` may run in any order and at the same time: the session has already waited for
/// whatever a command depends on. Those without one take effect when they are given out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// Map and pre-fault the staging memory of a rank.
    OpenArena {
        /// Answered when the memory is there.
        op: OpId,
        /// Whose arena.
        rank: Rank,
        /// Its length.
        len: Bytes,
    },
    /// Give the staging memory of a rank back. Nothing is in flight there.
    CloseArena {
        /// Whose arena.
        rank: Rank,
    },
    /// Give the memory of a range of an arena back, and leave the range where it is. No batch lies there,
    /// and none gets its place there before the range is restored.
    TrimArena {
        /// Answered when the memory is free.
        op: OpId,
        /// Whose arena.
        rank: Rank,
        /// From the start of the arena, a multiple of [`crate::batch::BATCH_ALIGN`].
        offset: Bytes,
        /// Length, a multiple of [`crate::batch::BATCH_ALIGN`].
        len: Bytes,
    },
    /// Get memory again for a range that was trimmed.
    RestoreArena {
        /// Answered when the memory is there.
        op: OpId,
        /// Whose arena.
        rank: Rank,
        /// As it was trimmed, or a part of that.
        offset: Bytes,
        /// Length.
        len: Bytes,
    },
    /// Get one chunk of memory or of disk for a tier.
    AddChunk {
        /// Answered when the chunk is there.
        op: OpId,
        /// For which tier.
        tier: TierId,
        /// Its name from now on.
        chunk: ChunkId,
    },
    /// Give a chunk back. Nothing is in flight there.
    DropChunk {
        /// From which tier.
        tier: TierId,
        /// Which one.
        chunk: ChunkId,
    },
    /// Read a sample from the cold store into staging.
    Fetch {
        /// Answered when all bytes are there.
        op: OpId,
        /// What to read.
        sample: SampleId,
        /// Where to put it.
        to: Slot,
        /// Whether it stays.
        retention: Retention,
    },
    /// Copy a sample from a tier into staging.
    Promote {
        /// Answered when all bytes are there.
        op: OpId,
        /// What to copy.
        sample: SampleId,
        /// Where it lies.
        from: Place,
        /// Where to put it.
        to: Slot,
    },
    /// Copy a sample down into a tier.
    Demote {
        /// Answered when all bytes are there.
        op: OpId,
        /// What to copy.
        sample: SampleId,
        /// Where it lies.
        from: Origin,
        /// Its length; the pieces of `to` may round it up.
        len: Bytes,
        /// Where to put it.
        to: Place,
    },
    /// Let a connection in: the arena of its rank is there.
    Admit {
        /// The connection.
        connection: ConnectionId,
        /// Its rank.
        rank: Rank,
    },
    /// Turn a connection away: there is no staging memory here for its rank.
    Reject {
        /// The connection.
        connection: ConnectionId,
        /// The rank that it asked for.
        rank: Rank,
    },
    /// Hand a batch over. Its bytes are complete and stay until the lease comes back.
    Lease {
        /// To whom.
        connection: ConnectionId,
        /// Under which name it comes back.
        lease: LeaseId,
        /// Where the batch starts in the arena of its rank.
        offset: Bytes,
        /// Its layout.
        batch: Batch,
    },
    /// Tell a connection that it will not get a batch.
    Refuse {
        /// Who asked.
        connection: ConnectionId,
        /// For what.
        batch: BatchId,
        /// Why not.
        reason: Refusal,
    },
}

impl Command {
    /// The operation that the command starts, if it starts one.
    #[must_use]
    pub fn op(&self) -> Option<OpId> {
        match self {
            Self::OpenArena { op, .. }
            | Self::TrimArena { op, .. }
            | Self::RestoreArena { op, .. }
            | Self::AddChunk { op, .. }
            | Self::Fetch { op, .. }
            | Self::Promote { op, .. }
            | Self::Demote { op, .. } => Some(*op),
            Self::CloseArena { .. }
            | Self::DropChunk { .. }
            | Self::Admit { .. }
            | Self::Reject { .. }
            | Self::Lease { .. }
            | Self::Refuse { .. } => None,
        }
    }
}

/// Why a batch is not handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The order has no such batch, or not for the rank that asked.
    NotInOrder,
    /// Only the trainer knows this epoch's order, and it has not published it.
    NotPublished,
    /// A sample could not be read and the job does not skip such samples.
    Unreadable(SampleId, Fault),
    /// The batch does not fit in the staging memory of the rank.
    TooLarge {
        /// Bytes of the batch.
        needed: Bytes,
        /// Bytes of the arena.
        arena: Bytes,
    },
    /// It was asked for before and not given back yet, by this or another connection of the rank.
    AlreadyTaken,
    /// What the trainers of the rank hold or were handed leaves no room for it.
    NoRoom,
    /// Its epoch is far from those that the node works on, and the rank asked for such too often.
    TooManyJumps,
}

/// What went wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The object is not there any more.
    Vanished,
    /// The object has another size or time than when it was indexed.
    Changed,
    /// The object ended before the sample did.
    Truncated,
    /// The user may not read the object.
    Denied,
    /// Reading or writing failed otherwise.
    Io,
    /// The bytes that came back are not the bytes that were put there.
    Corrupt,
    /// There is no memory or disk left for a chunk or an arena.
    NoSpace,
    /// Memory of a chunk broke: nothing in it can be relied on.
    Poisoned(TierId, ChunkId),
}

impl Fault {
    /// The name in reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vanished => "vanished",
            Self::Changed => "changed",
            Self::Truncated => "truncated",
            Self::Denied => "permission-denied",
            Self::Io => "io",
            Self::Corrupt => "corrupt",
            Self::NoSpace => "no-space",
            Self::Poisoned(..) => "poisoned",
        }
    }
}

/// What a session is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An operation ended.
    Completed {
        /// Which one.
        op: OpId,
        /// How.
        outcome: Result<(), Fault>,
    },
    /// A trainer, or one of its worker processes, connected.
    Attached {
        /// The connection.
        connection: ConnectionId,
        /// The rank that it reads for.
        rank: Rank,
    },
    /// A connection asks for a batch; it may ask for several ahead.
    Requested {
        /// Who asks.
        connection: ConnectionId,
        /// For what.
        batch: BatchId,
    },
    /// A trainer took a batch out of the hand-off and starts to use it.
    Delivered {
        /// Who took it.
        connection: ConnectionId,
        /// Under which lease.
        lease: LeaseId,
        /// From the moment when the trainer wanted it until it had it, as the trainer measured.
        wait: Wait,
    },
    /// A trainer tells what it did itself, without the agent.
    Tallied {
        /// Who did it.
        connection: ConnectionId,
        /// For which rank.
        rank: Rank,
        /// What.
        tally: Tally,
    },
    /// A connection is done with a batch.
    Released {
        /// Who had it.
        connection: ConnectionId,
        /// The lease that comes back.
        lease: LeaseId,
    },
    /// A connection is gone, with everything it held.
    Gone {
        /// Which connection.
        connection: ConnectionId,
    },
    /// A trainer handed over what its rank reads in an epoch.
    Published {
        /// Whose order.
        rank: Rank,
        /// Of which epoch.
        epoch: Epoch,
        /// The samples in reading order.
        samples: Arc<Vec<SampleId>>,
    },
    /// A tier may hold more or fewer chunks from now on.
    Resized {
        /// Which tier.
        tier: TierId,
        /// The new limit.
        chunks_max: u32,
    },
    /// Batches may be staged less far ahead from now on, or farther again.
    StagingLimited {
        /// For each rank, what trainers work with included; at least [`crate::session::STAGED_MIN`]
        /// are always allowed.
        batches: u32,
    },
}
