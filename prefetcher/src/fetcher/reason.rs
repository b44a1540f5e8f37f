//! The reasons to read files by threads, and the result of a trial of both engines.

use std::{fmt, io};

use tierfeed_core::units::BytesPerSecond;
use tierfeed_file_io::Unavailable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The rates of rings and of threads; `None` if the dataset is too small, or in the page cache.
    pub rates: Option<(BytesPerSecond, BytesPerSecond)>,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rates {
            Some((rings, threads)) => write!(f, " (tried: io_uring {rings}, threads {threads})"),
            None => f.write_str(" (not tried: too little that is not in the page cache)"),
        }
    }
}

#[derive(Debug)]
pub enum Reason {
    NoRings(Unavailable),
    /// A ring could not be set up although the kernel has `io_uring`.
    Failed(io::Error),
    /// Each sample is a file of its own, or samples are compressed.
    WholeFiles,
    NoDirect(io::Error),
    /// The kernel does not report what its page cache holds, so cached bytes would be read from the disk.
    NoView(io::Error),
    Faster(Trial),
}
