//! What a session is told and what it asks for: its whole interface to the data plane and the hand-off.

use alloc::{sync::Arc, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{Memory, Operation, SetPoints, Tally, Wait};
use crate::{
    batch::Batch,
    id::{BatchId, ChunkId, ConnectionId, Epoch, LeaseId, NodeId, OpId, Rank, SampleId, TierId},
    retention::partition::Membership,
    units::{Bytes, Nanoseconds},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The data plane starts an operation, and answers it with [`Event::Completed`].
    Start {
        op: OpId,
        operation: Operation,
    },
    /// The data plane gives memory back. This takes effect at once and is not answered.
    Free(Memory),
    Answer(Answer),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The arena of the rank is open.
    Admit {
        connection: ConnectionId,
        rank: Rank,
    },
    /// The node has no staging memory for the rank.
    Reject {
        connection: ConnectionId,
        rank: Rank,
    },
    /// The bytes of the batch are complete and stay until the lease comes back.
    Lease {
        connection: ConnectionId,
        lease: LeaseId,
        /// The start of the batch in the arena of its rank.
        offset: Bytes,
        batch: Batch,
    },
    Refuse {
        connection: ConnectionId,
        batch: BatchId,
        reason: Refusal,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The order has no such batch, or not for the rank that asked.
    NotInOrder,
    /// Only the trainer knows the order of this epoch, and it has not published it.
    NotPublished,
    /// A sample could not be read, and the job does not skip such samples, or the fault says nothing about
    /// the sample.
    Unreadable(SampleId, Fault),
    /// The rank would go without more samples in this epoch than the job allows.
    TooManySkipped {
        sample: SampleId,
        fault: Fault,
        /// With this sample.
        skipped: u32,
        most: u32,
    },
    TooLarge {
        needed: Bytes,
        arena: Bytes,
    },
    /// The batch was asked for before and not given back yet, by this or another connection of the rank.
    AlreadyTaken,
    /// The batches that trainers of the rank hold or were handed leave no room for it.
    NoRoom,
    /// The epoch is far from those that the node works on, and the rank made such requests too often.
    TooManyJumps,
    /// No worker makes rows of its samples, which are readable.
    NoWorker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// The object is not there any more, though the directory or bucket that had it is.
    Vanished,
    /// The object has another size or time than when it was indexed.
    Changed,
    /// The object ended before the sample did.
    Truncated,
    /// The user may not read the object.
    Denied,
    /// Reading or writing failed for another reason.
    Io,
    /// The bytes are not those that were written: they do not match their checksum, or cannot be
    /// decompressed.
    Corrupt,
    NoSpace,
    /// Memory of a chunk broke: none of its bytes can be relied on.
    Poisoned(TierId, ChunkId),
    /// The bytes are there, but no row could be made of them.
    Untransformable,
    /// No worker made a row of the bytes, for no fault of theirs.
    NoWorker,
}

/// The cause to which a fault points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Concern {
    /// The sample, which is missing or damaged where it lies. Another attempt finds the same, so that a job
    /// may go on without it.
    Sample,
    /// The index, which knows another object than there is. No sample of it is what the job was told.
    Index,
    /// The store, the way to it, or the rights to read it. The sample may be as good as before: a read is
    /// worth another attempt ([`crate::outage`]), and no sample is left out for it.
    Store,
    /// This node, which lacks memory or a worker. Another process can read the sample.
    Node,
}

impl Fault {
    /// The only place that tells a bad sample from a bad store.
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

    /// The refusal of a batch that has this fault at a sample.
    pub(super) const fn refusal(self, sample: SampleId) -> Refusal {
        match self {
            // The trainer can read it: what is missing is memory or a worker here.
            Self::NoSpace => Refusal::NoRoom,
            Self::NoWorker => Refusal::NoWorker,
            fault => Refusal::Unreadable(sample, fault),
        }
    }

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Completed {
        op: OpId,
        outcome: Result<(), Fault>,
    },
    /// An operation ended of which these parts failed, by their index; the others are done.
    PartsFailed {
        op: OpId,
        parts: Vec<(usize, Fault)>,
    },
    Transformed {
        op: OpId,
        outcome: Result<(), Fault>,
        /// The time that a thread worked.
        took: Nanoseconds,
    },
    Attached {
        connection: ConnectionId,
        rank: Rank,
    },
    /// A device holds the pages of the rank's arena, until the last connection of the rank is gone.
    ArenaPinned {
        rank: Rank,
    },
    /// A connection asks for a batch; it may ask for several ahead.
    Requested {
        connection: ConnectionId,
        batch: BatchId,
    },
    /// A trainer took a batch out of the hand-off and starts to use it.
    Delivered {
        connection: ConnectionId,
        lease: LeaseId,
        /// From the time when the trainer wanted the batch until it had it, as the trainer measured.
        wait: Wait,
    },
    /// A trainer reports batches that it read itself, and the time that it waited without the agent.
    Tallied {
        connection: ConnectionId,
        rank: Rank,
        /// Since its last report.
        tally: Tally,
    },
    Released {
        connection: ConnectionId,
        lease: LeaseId,
    },
    /// A connection is gone, with everything it held.
    Gone {
        connection: ConnectionId,
    },
    /// A trainer publishes the samples that its rank reads in an epoch.
    Published {
        rank: Rank,
        epoch: Epoch,
        /// In reading order.
        samples: Arc<Vec<SampleId>>,
    },
    Resized {
        tier: TierId,
        chunks_max: u32,
    },
    /// The manager made a schedule.
    Scheduled {
        generation: u32,
        from: Epoch,
        /// From `from` on.
        points: SetPoints,
    },
    Membership(Membership),
    /// A node answers requests for the samples that it holds, and faster than the cold store.
    PeerFound {
        node: NodeId,
    },
    /// A node does not answer any more, or is slower than the cold store: the samples that it holds are
    /// read cold.
    PeerLost {
        node: NodeId,
    },
    /// The limit of batches staged ahead changed.
    StagingLimited {
        /// For each rank, including the batches that trainers work with. At least
        /// [`crate::session::STAGED_MIN`] are always allowed.
        batches: u32,
    },
}
