//! The operations that enter a queue and the completions that leave it.

use std::{fmt, fs::File, io, sync::Arc};

use crate::buffer::AlignedBuffer;

/// Whether bytes come from the file or go into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads from the file into the buffer.
    Read,
    /// Writes from the buffer into the file.
    Write,
}

/// One read or write of a whole buffer.
#[derive(Debug)]
pub struct Operation {
    /// The file, which stays open until the completion. A regular file or a block device: an
    /// operation that waits for a peer, as on a pipe, may block the end of the queue forever.
    pub file: Arc<File>,
    /// Whether it is a read or a write.
    pub kind: Kind,
    /// Start of the operation in the file, in bytes.
    pub offset: u64,
    /// The memory, as long as the operation; bytes beyond [`Operation::LEN_MAX`] are not
    /// transferred.
    pub buffer: AlignedBuffer,
    /// The caller's identification of the operation; returned with the completion.
    pub token: u64,
}

impl Operation {
    /// The most bytes that the kernel moves in one operation (`MAX_RW_COUNT` of `linux/fs.h`).
    pub const LEN_MAX: usize = 0x7fff_f000;

    /// The greatest offset that the kernel accepts.
    pub const OFFSET_MAX: u64 = i64::MAX as u64;
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The token of the operation.
    pub token: u64,
    /// The buffer of the operation.
    pub buffer: AlignedBuffer,
    /// Number of transferred bytes: fewer than requested at the end of a file or of the space on
    /// it, and whenever the kernel transfers only a part.
    pub outcome: io::Result<usize>,
}

/// An operation that did not enter the queue, with its buffer.
#[derive(Debug)]
pub struct Refused {
    /// The operation as it was given.
    pub operation: Operation,
    /// Why it was refused.
    pub reason: Refusal,
}

/// Why an operation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The number of operations in flight equals the depth of the queue.
    #[error("{depth} operations are in flight, as many as the queue is deep; wait for one first")]
    Full {
        /// The depth of the queue.
        depth: u32,
    },
    /// The kernel does not accept the offset.
    #[error("offset {offset} is above {}", Operation::OFFSET_MAX)]
    Offset {
        /// The offset of the operation, in bytes.
        offset: u64,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Refused {}
