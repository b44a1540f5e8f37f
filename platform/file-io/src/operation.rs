//! The operations that enter a queue and leave it.

use std::{fs::File, sync::Arc};

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
    /// The file, which stays open until the operation has ended. A regular file or a block device: an
    /// operation that waits for a peer, as on a pipe, may block the end of the queue forever.
    pub file: Arc<File>,
    /// Whether it is a read or a write.
    pub kind: Kind,
    /// Start of the operation in the file, in bytes; at most [`i64::MAX`].
    pub offset: u64,
    /// The memory, as long as the operation.
    pub buffer: AlignedBuffer,
    /// The caller's identification of the operation.
    pub token: u64,
}
