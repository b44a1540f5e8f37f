//! Finds the samples of one object: a parser for each format.
//!
//! A parser is a pure function of an object's bytes. It reads only what it needs (headers, footers,
//! tables of offsets), validates all of it, and never reads the sample data itself; the functions
//! called `check` read that too.
//!
//! 1. Every range that a parser returns lies within its object.
//! 2. For any bytes, a parser terminates, does not panic, and takes memory in proportion to the
//!    bytes that it has read, not to a length that a header claims.
//! 3. A sample has the bytes that the format's own reader returns; each format documents them.

pub mod arrow;
pub mod ffcv;
pub mod fields;
pub mod hdf5;
mod kind;
mod label;
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
mod stated;
pub mod tfrecord;
pub mod webdataset;

use std::io;

pub use kind::{Compression, Files, Format, Parquet, Raw, Rest};
pub use parquet::Unit;
pub use stated::{Elements, Order, Stated, Table};

/// Bytes that can be read at any offset: a file, an object of a bucket, or memory.
pub trait ReadAt: Sync {
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be read; [`io::ErrorKind::UnexpectedEof`] if there are fewer.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// Number of bytes that can be read in the time that one more read takes to start.
    ///
    /// If the gap between two pieces that a parser needs is smaller, it reads the gap as well. The
    /// default suits a local disk; a read over a network costs more.
    fn read_cost_bytes(&self) -> u64 {
        64 * 1024
    }
}

/// Whether a read of `object` costs little: no round trip to a store.
fn is_near(object: &dyn ReadAt) -> bool {
    object.read_cost_bytes() <= 64 * 1024
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
    pub offset: u64,
    /// Number of stored bytes.
    pub len: u64,
    pub encoding: Encoding,
    /// The class of the sample, if it has one; never `i64::MIN`.
    pub label: Option<i64>,
}

impl Range {
    /// A range whose bytes are the sample, unchanged.
    #[must_use]
    pub const fn plain(offset: u64, len: u64) -> Self {
        Self { offset, len, encoding: Encoding::Plain, label: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Plain,
    /// A raw deflate stream (RFC 1951), as in zip files.
    Deflate {
        /// Number of inflated bytes.
        len: u64,
        /// The CRC-32 (ISO-HDLC, as in zip files) of the inflated bytes.
        crc32: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records {
    pub offset: u64,
    /// Bytes of each record, at least 1.
    pub record_bytes: u64,
    pub count: u64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("truncated: {what} at byte {at} ends at byte {needed}, the object at byte {found}")]
    Truncated { what: &'static str, at: u64, needed: u64, found: u64 },
    #[error(
        "{what} at byte {at} is damaged: its checksum is {found:#010x}, its bytes give {computed:#010x}"
    )]
    Checksum { what: &'static str, at: u64, found: u32, computed: u32 },
    #[error("{what} at byte {at} is {found}; {right}")]
    Malformed {
        what: &'static str,
        at: u64,
        found: String,
        /// A valid value, or the fix.
        right: &'static str,
    },
    #[error(
        "{size} B of records, which are {} of {record_bytes} B and {} B more; correct the size of a \
         record, or leave the file out by a `glob` for the others", .size / .record_bytes, .size % .record_bytes
    )]
    PartialRecord { size: u64, record_bytes: u64 },
    #[error("records of {found} B, and those of the first file have {first} B; they must be equal")]
    OtherRecords { found: u64, first: u64 },
    #[error(
        "its samples are {found}, and those of the first file {first}; a dataset has samples of one kind: \
         pick its files with `glob` or `manifest`, or write them alike"
    )]
    OtherContent { found: String, first: String },
    #[error("{samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples { samples: u64 },
    #[error("{place} is {found}; {right}")]
    Index {
        /// A line number or a key.
        place: String,
        found: String,
        right: &'static str,
    },
    /// The object is valid, but cannot be read by ranges.
    #[error("{what}; {instead}")]
    Unsupported { what: String, instead: &'static str },
}
