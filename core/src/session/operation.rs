//! What the data plane executes: one type for the session that plans it and for the threads that do it.

use alloc::vec::Vec;

use super::Form;
use crate::{
    id::{ChunkId, Epoch, NodeId, Rank, SampleId, TierId},
    place::Place,
    units::Bytes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    pub rank: Rank,
    pub offset: Bytes,
    pub len: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A sample that was just staged.
    Staging(Slot),
    /// A faster tier that has to give up the sample.
    Tier(Place),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retention {
    /// A tier takes a copy, so the bytes need a checksum.
    Kept,
    /// Only the trainer reads the sample, once.
    Dropped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Held {
    /// The policy keeps it after its use.
    Retained,
    /// It was fetched ahead of its use: its bytes count as read from the cold store.
    Ahead,
}

/// A sample that is copied from a tier into staging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promotion {
    pub sample: SampleId,
    pub from: Place,
    pub to: Slot,
    pub held: Held,
}

impl Promotion {
    /// Of all parts of an operation.
    #[must_use]
    pub fn bytes(parts: &[Self]) -> Bytes {
        Bytes(parts.iter().map(|part| part.to.len.0).sum())
    }
}

/// One operation of the data plane, which ends exactly once with [`super::Event::Completed`], with
/// [`super::Event::PartsFailed`] if it is a list of which only some parts are done, or with
/// [`super::Event::Transformed`] if it is a transform.
///
/// Operations that were given out may run in any order and at the same time: the session has already
/// waited for everything that they depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Maps and pre-faults the staging memory of a rank.
    OpenArena { rank: Rank, len: Bytes },
    /// Gives the memory of a range of an arena back, and leaves the range mapped. No batch lies there,
    /// and none is placed there before the range is restored.
    TrimArena {
        rank: Rank,
        /// A multiple of [`crate::batch::BATCH_ALIGN`].
        offset: Bytes,
        /// A multiple of [`crate::batch::BATCH_ALIGN`].
        len: Bytes,
    },
    /// Gets memory again for a range that was trimmed.
    RestoreArena {
        rank: Rank,
        /// The trimmed range, or a part of it.
        offset: Bytes,
        len: Bytes,
    },
    /// Gets one chunk of memory or of disk for a tier.
    AddChunk { tier: TierId, chunk: ChunkId },
    /// Reads a sample from the cold store into staging.
    Fetch { sample: SampleId, to: Slot, retention: Retention },
    /// Reads a sample from another node that holds it into staging.
    Receive { sample: SampleId, from: NodeId, to: Slot },
    /// Copies samples of one batch from one tier into staging.
    Promote { parts: Vec<Promotion> },
    /// Turns a staged sample into a row of its batch. It has the name of the operation that brought the
    /// sample.
    Transform {
        sample: SampleId,
        /// The epoch that reads the sample, on which random steps depend.
        epoch: Epoch,
        from: Slot,
        form: Form,
        /// The place of the prepared form, if a tier takes it: it starts where the input bytes lie. Its
        /// copy needs a checksum.
        prepared: Option<Slot>,
        to: Slot,
    },
    /// Reads a sample from the cold store into a tier, ahead of its use.
    Prefetch {
        sample: SampleId,
        /// Its length; the pieces of `to` may round it up.
        len: Bytes,
        to: Place,
    },
    /// Copies a sample up into a faster tier, ahead of its use.
    Advance { sample: SampleId, from: Place, len: Bytes, to: Place },
    /// Copies a sample down into a tier.
    Demote { sample: SampleId, from: Origin, len: Bytes, to: Place },
}

/// Memory that the session gives back. No operation in flight uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Arena(Rank),
    Chunk(TierId, ChunkId),
}
