//! What the data plane executes: one type for the session that plans it and for the threads that do it.

use super::Form;
use crate::{
    id::{ChunkId, Epoch, NodeId, Rank, SampleId, TierId},
    place::Place,
    units::Bytes,
};

/// A range of the staging arena of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The rank that owns the arena.
    pub rank: Rank,
    /// Bytes from the start of the arena.
    pub offset: Bytes,
    /// Length of the range.
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
    /// A tier takes a copy, so the bytes need a checksum.
    Kept,
    /// Only the trainer reads the sample, once.
    Dropped,
}

/// Why a tier holds a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Held {
    /// The policy keeps it after its use.
    Retained,
    /// It was fetched ahead of its use: its bytes count as read from the cold store.
    Ahead,
}

/// One operation of the data plane, which ends exactly once with [`super::Event::Completed`], or with
/// [`super::Event::Transformed`] if it is a transform.
///
/// Operations that were given out may run in any order and at the same time: the session has already
/// waited for everything that they depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Maps and pre-faults the staging memory of a rank.
    OpenArena {
        /// The rank that owns the arena.
        rank: Rank,
        /// Length of the arena.
        len: Bytes,
    },
    /// Gives the memory of a range of an arena back, and leaves the range mapped. No batch lies there,
    /// and none is placed there before the range is restored.
    TrimArena {
        /// The rank that owns the arena.
        rank: Rank,
        /// From the start of the arena, a multiple of [`crate::batch::BATCH_ALIGN`].
        offset: Bytes,
        /// Length, a multiple of [`crate::batch::BATCH_ALIGN`].
        len: Bytes,
    },
    /// Gets memory again for a range that was trimmed.
    RestoreArena {
        /// The rank that owns the arena.
        rank: Rank,
        /// As it was trimmed, or a part of that.
        offset: Bytes,
        /// Length of the range.
        len: Bytes,
    },
    /// Gets one chunk of memory or of disk for a tier.
    AddChunk {
        /// The tier that grows.
        tier: TierId,
        /// Its name from now on.
        chunk: ChunkId,
    },
    /// Reads a sample from the cold store into staging.
    Fetch {
        /// The sample to read.
        sample: SampleId,
        /// Where to put it.
        to: Slot,
        /// Whether a tier takes a copy.
        retention: Retention,
    },
    /// Reads a sample from another node that holds it into staging.
    Receive {
        /// The sample to read.
        sample: SampleId,
        /// The node that holds it.
        from: NodeId,
        /// Where to put it.
        to: Slot,
    },
    /// Copies a sample from a tier into staging.
    Promote {
        /// The sample to copy.
        sample: SampleId,
        /// Where it lies in its tier.
        from: Place,
        /// Where to put it.
        to: Slot,
        /// Why the tier holds it.
        held: Held,
    },
    /// Turns a staged sample into a row of its batch. It has the name of the operation that brought the sample.
    Transform {
        /// The sample to transform.
        sample: SampleId,
        /// The epoch that reads it, on which random steps depend.
        epoch: Epoch,
        /// Where its bytes lie.
        from: Slot,
        /// What form they have.
        form: Form,
        /// Where the prepared form goes if a tier takes it: it starts where the bytes lie. A copy of it needs
        /// a checksum.
        prepared: Option<Slot>,
        /// Where the row goes.
        to: Slot,
    },
    /// Reads a sample from the cold store into a tier, ahead of its use.
    Prefetch {
        /// The sample to read.
        sample: SampleId,
        /// Its length; the pieces of `to` may round it up.
        len: Bytes,
        /// Where to put it.
        to: Place,
    },
    /// Copies a sample up into a faster tier, ahead of its use.
    Advance {
        /// The sample to copy.
        sample: SampleId,
        /// Where it lies.
        from: Place,
        /// Its length; the pieces of `to` may round it up.
        len: Bytes,
        /// Where to put it.
        to: Place,
    },
    /// Copies a sample down into a tier.
    Demote {
        /// The sample to copy.
        sample: SampleId,
        /// Where its bytes are read.
        from: Origin,
        /// Its length; the pieces of `to` may round it up.
        len: Bytes,
        /// Where to put it.
        to: Place,
    },
}

/// Memory that the session gives back. No operation is in flight there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The staging memory of a rank.
    Arena(Rank),
    /// One chunk of a tier.
    Chunk(TierId, ChunkId),
}
