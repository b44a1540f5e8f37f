//! Why files are read by threads, and what a trial of both ways showed.

use std::{fmt, io};

use tierfeed_core::units::BytesPerSecond;
use tierfeed_file_io::Unavailable;

/// What a trial on the dataset showed, if there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// Of rings and of threads; `None` if the dataset is too small, or in the page cache.
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

/// Why threads read.
#[derive(Debug)]
pub enum Reason {
    /// There are no rings.
    NoRings(Unavailable),
    /// A ring could not be set up all the same.
    Failed(io::Error),
    /// All samples are files of their own, or compressed.
    WholeFiles,
    /// The file system cannot bypass the page cache.
    NoDirect(io::Error),
    /// The kernel does not tell what its page cache holds, which would be read from the disk again.
    NoView(io::Error),
    /// They are faster.
    Faster(Trial),
}
