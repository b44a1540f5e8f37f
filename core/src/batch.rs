//! How a batch lies in staging memory: samples on 64-byte boundaries, then a table that names them.
//!
//! The agent writes this layout and the trainer's client reads it; both take it from here. A sample that
//! is read where it is cached has its place in the layout all the same: should it have to be fetched
//! after all, it goes there.

use alloc::vec::Vec;

use crate::{
    id::{BatchId, ChunkId, SampleId, TierId},
    units::Bytes,
};

/// Every tensor starts on a multiple of this: TensorFlow aborts on less.
pub const SAMPLE_ALIGN: u64 = 64;

/// Every batch starts on a multiple of this.
pub const BATCH_ALIGN: u64 = 4096;

/// One row of the table: sample, label, offset and length, eight bytes each, little-endian.
pub const TABLE_ROW_BYTES: u64 = 32;

/// The length in the table of a sample that could not be read and that the job skips.
pub const SKIPPED: u64 = u64::MAX;

/// One sample of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Which sample it is.
    pub sample: SampleId,
    /// Where it starts, from the start of the batch.
    pub offset: Bytes,
    /// How long it is, or `None` if it could not be read and the job skips such samples.
    pub len: Option<Bytes>,
    /// Where the trainer reads it instead, if it was not copied into the batch.
    pub shown: Option<Shown>,
}

/// A cached sample that a batch names where it lies: in one piece of a tier that trainers map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shown {
    /// Which tier.
    pub tier: TierId,
    /// Which chunk of it.
    pub chunk: ChunkId,
    /// From the start of the chunk, a multiple of [`SAMPLE_ALIGN`].
    pub offset: Bytes,
}

/// The layout of one batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Which batch it is.
    pub id: BatchId,
    /// Its samples in reading order.
    pub entries: Vec<Entry>,
    /// Where the table starts, from the start of the batch.
    pub table_offset: Bytes,
    /// Samples, padding and table together; a multiple of [`BATCH_ALIGN`].
    pub len: Bytes,
}

impl Batch {
    /// Lays out `samples` with their sizes.
    #[must_use]
    pub fn lay_out(id: BatchId, samples: impl Iterator<Item = (SampleId, Bytes)>) -> Self {
        let mut end = 0;
        let mut entries = Vec::new();
        for (sample, len) in samples {
            entries.push(Entry { sample, offset: Bytes(end), len: Some(len), shown: None });
            end = (end + len.0).next_multiple_of(SAMPLE_ALIGN);
        }
        let table_bytes = entries.len() as u64 * TABLE_ROW_BYTES;
        let len = (end + table_bytes).max(1).next_multiple_of(BATCH_ALIGN);
        Self { id, entries, table_offset: Bytes(end), len: Bytes(len) }
    }

    /// The bytes of the samples alone.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        Bytes(self.entries.iter().filter_map(|entry| entry.len).map(|len| len.0).sum())
    }
}
