//! What goes into a queue and what comes out.

use std::{fmt, fs::File, io, sync::Arc};

use crate::buffer::AlignedBuffer;

/// Whether bytes come from the file or go into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From the file into the buffer.
    Read,
    /// From the buffer into the file.
    Write,
}

/// One read or write of a whole buffer.
#[derive(Debug)]
pub struct Operation {
    /// The file, which stays open until the completion. A regular file or a block device: an operation
    /// that waits for a peer, as on a pipe, may hold up the end of the queue for ever.
    pub file: Arc<File>,
    /// The direction.
    pub kind: Kind,
    /// Where in the file it starts, in bytes.
    pub offset: u64,
    /// As long as the operation shall be; what exceeds [`Operation::LEN_MAX`] is left over.
    pub buffer: AlignedBuffer,
    /// The caller's name for the operation; given back with the completion.
    pub token: u64,
}

impl Operation {
    /// The most bytes that the kernel moves in one operation (`MAX_RW_COUNT` of `linux/fs.h`).
    pub const LEN_MAX: usize = 0x7fff_f000;

    /// The greatest offset that the kernel takes.
    pub const OFFSET_MAX: u64 = i64::MAX as u64;
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The operation's.
    pub token: u64,
    /// The operation's.
    pub buffer: AlignedBuffer,
    /// How many bytes were moved: fewer than asked at the end of a file or of the space on it, and
    /// whenever the kernel likes.
    pub outcome: io::Result<usize>,
}

/// An operation that did not enter the queue; it holds its buffer still.
#[derive(Debug)]
pub struct Refused {
    /// As given.
    pub operation: Operation,
    /// Why.
    pub reason: Refusal,
}

/// Why an operation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many operations are in flight as the queue is deep.
    #[error("{depth} operations are in flight, as many as the queue is deep; wait for one first")]
    Full {
        /// The depth.
        depth: u32,
    },
    /// The kernel has no such offset.
    #[error("offset {offset} is above {}", Operation::OFFSET_MAX)]
    Offset {
        /// As given.
        offset: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Refused {}
