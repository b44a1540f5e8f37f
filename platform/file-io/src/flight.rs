//! Reads that the kernel knows of, with the memory and the file that each keeps.

use std::{fs::File, os::fd::RawFd, sync::Arc};

use tierfeed_numa_memory::Region;
use tierfeed_units::Bytes;

use crate::buffer::AlignedBuffer;

/// A range of a region that a read fills.
#[derive(Debug, Clone)]
pub struct Place {
    /// The memory, which stays mapped until the read ended.
    pub region: Arc<Region>,
    /// From its start.
    pub offset: Bytes,
    /// How much.
    pub len: Bytes,
}

/// Aligned memory of a ring, to read what does not lie in a file as it shall lie in memory.
#[derive(Debug)]
pub struct Bounce {
    pub(crate) buffer: AlignedBuffer,
    /// In the ring that made it.
    pub(crate) number: Option<u16>,
    pub(crate) ring: Arc<()>,
}

impl Bounce {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

/// How the kernel is told which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    Number(i32),
    Descriptor(RawFd),
}

/// A read that the kernel knows of, with all that it may touch.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) file: FileName,
    pub(crate) offset: u64,
    pub(crate) target: Target,
    /// The caller's name for it.
    pub(crate) token: u64,
    /// Keeps the file open.
    pub(crate) _held: Arc<File>,
}

/// Where the bytes of a flight go.
#[derive(Debug)]
pub(crate) enum Target {
    Places { spots: Vec<libc::iovec>, number: Option<u16>, _held: Vec<Place> },
    Bounce { bounce: Bounce, len: usize },
    Bell(AlignedBuffer),
}
