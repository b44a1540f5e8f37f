//! Bounce buffers: for copies between two files, and for the alignment of direct I/O.

use std::io;

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Pages, Region, Request};

/// The bounce buffers of one copying thread.
#[derive(Debug, Default)]
pub(crate) struct Bounces {
    /// Holds the bytes of a copy from one file to another.
    pub(crate) through: Bounce,
    /// Holds the aligned blocks around the range that is read.
    pub(crate) aligned: Bounce,
}

/// A buffer that is allocated on first use, and kept.
#[derive(Debug, Default)]
pub(crate) struct Bounce(Option<Region>);

impl Bounce {
    /// Memory of at least `len` bytes, which starts on a page.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::OutOfMemory`] if the system refuses the memory.
    pub(crate) fn region(&mut self, len: Bytes) -> io::Result<&Region> {
        if self.0.as_ref().is_none_or(|region| region.len() < len) {
            self.0 = Some(buffer("tierfeed-bounce", len, Pages::Small)?);
        }
        Ok(self.0.as_ref().expect("it was just put there"))
    }
}

/// Memory of `len` bytes on any node, which starts on a page.
///
/// # Errors
///
/// [`io::ErrorKind::OutOfMemory`] if the system refuses the memory.
pub(super) fn buffer(name: &str, len: Bytes, pages: Pages) -> io::Result<Region> {
    let request = Request { len, locality: Locality::Anywhere, name, pages };
    Region::allocate(&request).map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))
}
