//! Where the samples of one object lie: a parser for each format, and nothing else.
//!
//! A parser is a pure function of an object's bytes. It reads the little that it needs (headers,
//! footers, tables of offsets), trusts nothing of it, and never the sample data itself; the functions
//! called `check` read that too.
//!
//! 1. Every range that a parser returns lies within its object.
//! 2. Whatever the bytes are, a parser ends, does not panic, and takes memory in proportion to what
//!    it has read, not to what a header claims.
//! 3. A sample is what the format's own reader hands over, as bytes; each format says which.

pub mod arrow;
pub mod ffcv;
pub mod hdf5;
mod kind;
pub mod litdata;
pub mod lmdb;
pub mod mds;
pub mod megatron;
pub mod npy;
pub mod npz;
mod offset_table;
pub mod parquet;
mod piece;
mod read_ahead;
mod shard_index;
pub mod tfrecord;
pub mod webdataset;

use std::io;

pub use kind::{Compression, Files, Format, Parquet, Raw, Rest};
pub use parquet::Unit;

/// Bytes that can be read at any place: a file, an object of a bucket, or memory.
pub trait ReadAt: Sync {
    /// How many there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    ///
    /// If that cannot be read; [`io::ErrorKind::UnexpectedEof`] if there are fewer bytes.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// How many bytes could be read in the time that it takes to begin one more read.
    ///
    /// Where two pieces that a parser wants are nearer than this, it reads what lies between them.
    /// The default suits a local disk; what lies behind a network costs more.
    fn read_cost_bytes(&self) -> u64 {
        64 * 1024
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let found = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(into.len())?;
            self.get(start..end)
        });
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(into, offset)
    }

    fn read_cost_bytes(&self) -> u64 {
        (**self).read_cost_bytes()
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(into, offset)
    }
}

/// The bytes of an object that are one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Where they start in the object.
    pub offset: u64,
    /// How many they are, as stored.
    pub len: u64,
    /// What has to be done to them.
    pub encoding: Encoding,
    /// The class of the sample, where the format says it; below `u32::MAX`.
    pub label: Option<u32>,
}

impl Range {
    /// Bytes that are the sample as they stand.
    #[must_use]
    pub const fn plain(offset: u64, len: u64) -> Self {
        Self { offset, len, encoding: Encoding::Plain, label: None }
    }
}

/// How the bytes of a sample are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    Plain,
    /// As a raw deflate stream (RFC 1951), as in zip files.
    Deflate {
        /// How many bytes come out.
        len: u64,
        /// The CRC-32 (ISO-HDLC, as in zip files) of what comes out.
        crc32: u32,
    },
}

/// Records of one size, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records {
    /// Where the first starts in the object.
    pub offset: u64,
    /// Bytes of each, at least 1.
    pub record_bytes: u64,
    /// How many there are.
    pub count: u64,
}

/// Why an object is not what its format says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The object cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The object ends too soon.
    #[error("truncated: {what} at byte {at} ends at byte {needed}, the object at byte {found}")]
    Truncated {
        /// What is cut off.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// Where it ends, by its own word.
        needed: u64,
        /// Where the object ends.
        found: u64,
    },
    /// A checksum in the object does not hold.
    #[error(
        "{what} at byte {at} is damaged: its checksum is {found:#010x}, its bytes give {computed:#010x}"
    )]
    Checksum {
        /// What is damaged.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// As stored.
        found: u32,
        /// As computed.
        computed: u32,
    },
    /// Bytes that have no meaning in this format.
    #[error("{what} at byte {at} is {found}; {right}")]
    Malformed {
        /// What it ought to be.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// What stands there.
        found: String,
        /// What would be right.
        right: &'static str,
    },
    /// The object is no whole number of records long.
    #[error(
        "{size} B of records, which are {} of {record_bytes} B and {} B more; correct the size of a \
         record or remove the file", .size / .record_bytes, .size % .record_bytes
    )]
    PartialRecord {
        /// The bytes of all records.
        size: u64,
        /// The bytes of one.
        record_bytes: u64,
    },
    /// Its records are of another size than those of the objects before.
    #[error("records of {found} B, and those of the first file have {first} B; they must be equal")]
    OtherRecords {
        /// As found.
        found: u64,
        /// Those of the first object.
        first: u64,
    },
    /// More samples than can be numbered.
    #[error("{samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples {
        /// As counted.
        samples: u64,
    },
    /// An index beside the objects that says what cannot be.
    #[error("{place} is {found}; {right}")]
    Index {
        /// Where in the index: a line, or a key.
        place: String,
        /// What stands there.
        found: String,
        /// What would be right.
        right: &'static str,
    },
    /// Correct, but not to be read by ranges.
    #[error("{what}; {instead}")]
    Unsupported {
        /// What the object has.
        what: String,
        /// What the user can do.
        instead: &'static str,
    },
}
