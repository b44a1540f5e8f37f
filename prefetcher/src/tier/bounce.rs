//! The memory through which bytes go from file to file, and whose alignment suits a disk.

use std::io;

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Pages, Region, Request};

/// The memory of one copying thread.
#[derive(Debug, Default)]
pub(crate) struct Bounces {
    /// Between two files.
    pub(crate) through: Bounce,
    /// For what a disk delivers beside what was asked for.
    pub(crate) aligned: Bounce,
}

/// Memory that is taken when it is first needed, and kept.
#[derive(Debug, Default)]
pub(crate) struct Bounce(Option<Region>);

impl Bounce {
    /// Memory of at least `len` bytes, which starts on a page.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::OutOfMemory`].
    pub(crate) fn region(&mut self, len: Bytes) -> io::Result<&Region> {
        if self.0.as_ref().is_none_or(|region| region.len() < len) {
            let request = Request {
                len,
                locality: Locality::Anywhere,
                name: "tierfeed-bounce",
                pages: Pages::Small,
            };
            let region = Region::allocate(&request);
            self.0 =
                Some(region.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?);
        }
        Ok(self.0.as_ref().expect("it was just put there"))
    }
}
