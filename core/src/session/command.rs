//! What a session is told and what it asks for: its whole interface to the data plane and the hand-off.

use alloc::{sync::Arc, vec::Vec};

use super::{Memory, Operation, SetPoints, Tally, Wait};
use crate::{
    batch::Batch,
    id::{BatchId, ChunkId, ConnectionId, Epoch, LeaseId, NodeId, OpId, Rank, SampleId, TierId},
    retention::partition::Membership,
    units::{Bytes, Nanoseconds},
};

/// What the session asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The data plane starts an operation, and answers it with [`Event::Completed`].
    Start {
        /// Names the operation in the answer.
        op: OpId,
        /// What the data plane executes.
        operation: Operation,
    },
    /// The data plane gives memory back. This takes effect at once and is not answered.
    Free(Memory),
    /// The hand-off answers a trainer.
    Answer(Answer),
}

/// What a trainer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The connection is accepted: the arena of its rank is open.
    Admit {
        /// The accepted connection.
        connection: ConnectionId,
        /// The rank that it reads for.
        rank: Rank,
    },
    /// The connection is closed: there is no staging memory on this node for its rank.
    Reject {
        /// The connection to close.
        connection: ConnectionId,
        /// The rank that it asked for.
        rank: Rank,
    },
    /// A batch is handed over. Its bytes are complete and stay until the lease comes back.
    Lease {
        /// The connection that asked for the batch.
        connection: ConnectionId,
        /// Names the lease when it comes back.
        lease: LeaseId,
        /// Where the batch starts in the arena of its rank.
        offset: Bytes,
        /// The layout of the batch.
        batch: Batch,
    },
    /// A request will get no batch.
    Refuse {
        /// The connection that asked.
        connection: ConnectionId,
        /// The batch that it asked for.
        batch: BatchId,
        /// Why it gets none.
        reason: Refusal,
    },
}

/// Why a batch is not handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The order has no such batch, or not for the rank that asked.
    NotInOrder,
    /// Only the trainer knows this epoch's order, and it has not published it.
    NotPublished,
    /// A sample could not be read, and the job does not skip such samples, or the fault says nothing about the
    /// sample.
    Unreadable(SampleId, Fault),
    /// The rank would go without more samples in this epoch than the job allows.
    TooManySkipped {
        /// The sample that is too many.
        sample: SampleId,
        /// Why it is left out.
        fault: Fault,
        /// Samples that the rank went without, with this one.
        skipped: u32,
        /// Samples that it may go without.
        most: u32,
    },
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
    /// No worker makes rows of its samples, which are readable.
    NoWorker,
}

/// What went wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The object is not there any more, though the directory or bucket that had it is.
    Vanished,
    /// The object has another size or time than when it was indexed.
    Changed,
    /// The object ended before the sample did.
    Truncated,
    /// The user may not read the object.
    Denied,
    /// Reading or writing failed otherwise.
    Io,
    /// The bytes are not those that were written: they do not match their checksum, or cannot be decompressed.
    Corrupt,
    /// There is no memory or disk left for a chunk or an arena.
    NoSpace,
    /// Memory of a chunk broke: nothing in it can be relied on.
    Poisoned(TierId, ChunkId),
    /// The bytes are there, but no row could be made of them.
    Untransformable,
    /// No worker made a row of the bytes, for no fault of theirs.
    NoWorker,
}

/// What a fault says something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Concern {
    /// The sample, which is missing or damaged where it lies. Another attempt finds the same, so that a job may go
    /// on without it.
    Sample,
    /// The index, which knows another object than there is. No sample of it is what the job was told.
    Index,
    /// The store, the way to it, or the rights to read it. The sample is as good as before: a read is worth
    /// another attempt ([`crate::outage`]), and no sample is left out for it.
    Store,
    /// This node, which lacks memory or a worker. Another process can read the sample.
    Node,
}

impl Fault {
    /// What it says something about: the one place that tells a bad sample from a bad store.
    #[must_use]
    pub const fn concern(self) -> Concern {
        match self {
            Self::Vanished | Self::Truncated | Self::Corrupt | Self::Untransformable => {
                Concern::Sample
            }
            Self::Changed => Concern::Index,
            Self::Denied | Self::Io => Concern::Store,
            Self::NoSpace | Self::Poisoned(..) | Self::NoWorker => Concern::Node,
        }
    }

    /// Whether a job with `on_error: skip` goes on without the sample.
    #[must_use]
    pub const fn is_of_sample(self) -> bool {
        matches!(self.concern(), Concern::Sample)
    }

    /// Why a batch is refused that has this fault at a sample.
    pub(super) const fn refusal(self, sample: SampleId) -> Refusal {
        match self {
            // The trainer can read it: what is missing is memory or a worker here.
            Self::NoSpace => Refusal::NoRoom,
            Self::NoWorker => Refusal::NoWorker,
            fault => Refusal::Unreadable(sample, fault),
        }
    }

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
            Self::Untransformable => "untransformable",
            Self::NoWorker => "no-worker",
        }
    }
}

/// What a session is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An operation of the data plane ended.
    Completed {
        /// The name that [`Command::Start`] gave it.
        op: OpId,
        /// The fault, if it failed.
        outcome: Result<(), Fault>,
    },
    /// A transform ended.
    Transformed {
        /// The name that [`Command::Start`] gave it.
        op: OpId,
        /// The fault, if it failed.
        outcome: Result<(), Fault>,
        /// For how long a thread worked at it.
        took: Nanoseconds,
    },
    /// A trainer, or one of its worker processes, connected.
    Attached {
        /// The new connection.
        connection: ConnectionId,
        /// The rank that it reads for.
        rank: Rank,
    },
    /// A device holds the pages of a rank's arena, until the last connection of the rank is gone.
    ArenaPinned {
        /// The rank whose arena it is.
        rank: Rank,
    },
    /// A connection asks for a batch; it may ask for several ahead.
    Requested {
        /// The connection that asks.
        connection: ConnectionId,
        /// The batch that it asks for.
        batch: BatchId,
    },
    /// A trainer took a batch out of the hand-off and starts to use it.
    Delivered {
        /// The connection that took it.
        connection: ConnectionId,
        /// The lease of the batch.
        lease: LeaseId,
        /// From the moment when the trainer wanted it until it had it, as the trainer measured.
        wait: Wait,
    },
    /// A trainer tells which batches it read itself, and how long it waited without the agent.
    Tallied {
        /// The connection of the trainer.
        connection: ConnectionId,
        /// The rank that it reads for.
        rank: Rank,
        /// What it did since it told last.
        tally: Tally,
    },
    /// A connection is done with a batch.
    Released {
        /// The connection that had it.
        connection: ConnectionId,
        /// The lease that comes back.
        lease: LeaseId,
    },
    /// A connection is gone, with everything it held.
    Gone {
        /// The connection that ended.
        connection: ConnectionId,
    },
    /// A trainer handed over what its rank reads in an epoch.
    Published {
        /// The rank that reads in this order.
        rank: Rank,
        /// The epoch of the order.
        epoch: Epoch,
        /// The samples in reading order.
        samples: Arc<Vec<SampleId>>,
    },
    /// A tier may hold more or fewer chunks from now on.
    Resized {
        /// The tier that was resized.
        tier: TierId,
        /// Its new limit, in chunks.
        chunks_max: u32,
    },
    /// The manager made a schedule, which holds from an epoch on.
    Scheduled {
        /// The generation of the schedule.
        generation: u32,
        /// The first epoch that it holds for.
        from: Epoch,
        /// The room for look-ahead and the depth of staging from then on.
        points: SetPoints,
    },
    /// The manager says which nodes there are from an epoch on.
    Membership(Membership),
    /// A node answers requests for what it holds, and faster than the cold store.
    PeerFound {
        /// The node that may be asked.
        node: NodeId,
    },
    /// A node does not answer any more, or is slower than the cold store: what it holds is read cold.
    PeerLost {
        /// The node that is not asked.
        node: NodeId,
    },
    /// Batches may be staged less far ahead from now on, or farther again.
    StagingLimited {
        /// For each rank, what trainers work with included; at least [`crate::session::STAGED_MIN`]
        /// are always allowed.
        batches: u32,
    },
}
