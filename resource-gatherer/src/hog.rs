//! Holds memory on purpose, as background jobs of a shared node would.
//!
//! It takes memory in chunks and touches all of it. It never takes more than what may be taken without
//! harm, so it makes a node tight, not dead.

use std::{io, path::Path};

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{AllocateError, Anonymous, Pages, capacity};

/// Memory that is held until it is given back or the hog is dropped.
#[derive(Debug)]
pub struct Hog {
    locality: Locality,
    held: Vec<Anonymous>,
}

/// Why a hog could not do what it was told. What it got before it keeps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HogError {
    /// There is less memory than it shall take.
    #[error("cannot take the next {wanted} of memory, {held} are held: {source}")]
    Allocate {
        /// What it tried to take.
        wanted: Bytes,
        /// What it holds.
        held: Bytes,
        /// Why it got none.
        #[source]
        source: AllocateError,
    },
    /// How much is free cannot be read.
    #[error("cannot read how much memory is free: {0}")]
    FreeMemory(#[source] io::Error),
}

/// What is taken and given back at once.
const CHUNK: Bytes = Bytes::mib(512);

impl Hog {
    /// A hog that holds nothing yet.
    #[must_use]
    pub fn new(locality: Locality) -> Self {
        Self { locality, held: Vec::new() }
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Bytes {
        Bytes(self.held.iter().map(|chunk| chunk.len().0).sum())
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    ///
    /// There is not so much to take; what was taken until then stays held.
    pub fn take(&mut self, bytes: Bytes) -> Result<(), HogError> {
        let mut left = bytes.0;
        while left > 0 {
            let wanted = Bytes(left.min(CHUNK.0));
            let chunk = Anonymous::allocate(wanted, self.locality, Pages::Huge)
                .map_err(|source| HogError::Allocate { wanted, held: self.held(), source })?;
            self.held.push(chunk);
            left -= wanted.0;
        }
        Ok(())
    }

    /// Takes or gives back until about `bytes` may be taken by others: less than a chunk too much, or
    /// what the node lacks.
    ///
    /// # Errors
    ///
    /// How much is free cannot be read, or there was less than the kernel said.
    pub fn leave(&mut self, bytes: Bytes) -> Result<(), HogError> {
        while !self.held.is_empty() && self.allocatable()? < bytes {
            self.held.pop();
        }
        let allocatable = self.allocatable()?;
        match allocatable.0.checked_sub(bytes.0.saturating_add(SLACK.0)) {
            Some(surplus) => self.take(Bytes(surplus)),
            None => Ok(()),
        }
    }

    /// Gives everything back.
    pub fn release(&mut self) {
        self.held.clear();
    }

    fn allocatable(&self) -> Result<Bytes, HogError> {
        capacity::allocatable_bytes(Path::new("/"), self.locality).map_err(HogError::FreeMemory)
    }
}

/// Less than this is not worth taking: page tables and the alignment of the chunks take as much.
const SLACK: Bytes = Bytes::mib(8);

#[cfg(test)]
mod tests {
    use tierfeed_core::id::NumaNode;

    use super::*;

    #[test]
    fn a_hog_holds_what_it_took_until_it_releases_it() {
        let mut hog = Hog::new(Locality::Anywhere);
        hog.take(Bytes::mib(3)).unwrap();
        hog.take(Bytes::mib(2)).unwrap();
        assert_eq!(hog.held(), Bytes::mib(5));
        hog.release();
        assert_eq!(hog.held(), Bytes(0));
    }

    #[test]
    fn what_the_node_lacks_is_refused() {
        let mut hog = Hog::new(Locality::Numa(NumaNode(1023)));
        let refused = hog.take(Bytes::mib(1));
        assert!(matches!(refused, Err(HogError::Allocate { wanted, held: Bytes(0), .. })
            if wanted == Bytes::mib(1)));
    }

    #[test]
    fn leaving_takes_the_surplus() {
        let mut hog = Hog::new(Locality::Anywhere);
        let allocatable = hog.allocatable().unwrap();
        hog.leave(Bytes(allocatable.0 - Bytes::mib(24).0)).unwrap();
        let taken_most = Bytes::mib(1024);
        assert!(hog.held() > Bytes(0) && hog.held() < taken_most, "{}", hog.held());
    }

    #[test]
    fn leaving_more_than_is_free_gives_back() {
        let mut hog = Hog::new(Locality::Anywhere);
        hog.take(Bytes::mib(4)).unwrap();
        hog.leave(Bytes(u64::MAX)).unwrap();
        assert_eq!(hog.held(), Bytes(0));
    }
}
