//! Reads that are in flight, with the memory and the file that each keeps alive.

use std::{fs::File, os::fd::RawFd, sync::Arc};

use tierfeed_numa_memory::Region;
use tierfeed_units::Bytes;

use crate::buffer::AlignedBuffer;

/// A range of a region that a read fills.
#[derive(Debug, Clone)]
pub struct RegionRange {
    /// The memory; it stays mapped until the read has ended.
    pub region: Arc<Region>,
    /// Start of the range in the region, in bytes.
    pub offset: Bytes,
    /// Length of the range, in bytes.
    pub len: Bytes,
}

/// Aligned memory of a ring, for reads whose destination is not aligned for direct I/O.
#[derive(Debug)]
pub struct Bounce {
    pub(crate) buffer: AlignedBuffer,
    /// Index of the registered buffer in the ring that made it.
    pub(crate) number: Option<u16>,
    pub(crate) ring: Arc<()>,
}

impl Bounce {
    /// The bytes of the buffer.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

/// How the file is named in a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileReference {
    Number(i32),
    Descriptor(RawFd),
}

/// A read that is in flight, with everything that the kernel may access.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) file: FileReference,
    pub(crate) offset: u64,
    pub(crate) target: Target,
    /// The caller's identification of the read.
    pub(crate) token: u64,
    /// Keeps the file open.
    pub(crate) _held: Arc<File>,
}

/// The destination of a read in flight.
#[derive(Debug)]
pub(crate) enum Target {
    Ranges { spots: Vec<libc::iovec>, number: Option<u16>, _held: Vec<RegionRange> },
    Bounce { bounce: Bounce, len: usize },
    Waker(AlignedBuffer),
}
