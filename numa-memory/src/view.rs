//! Maps memory that another process owns, after checking that it cannot vanish under the reader.

use std::{io, ops::Deref, os::fd::OwnedFd};

use memmap2::MmapOptions;
use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::stat::fstat,
};
use tierfeed_core::units::Bytes;

use crate::mapping::Mapping;

/// This process's mapping of a memfd that came from another one.
#[derive(Debug)]
pub struct View {
    mapping: Mapping,
}

/// Why a descriptor was not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A mapping of no bytes was asked for.
    #[error("asked to map 0 B; map at least one byte")]
    Empty,
    /// The file is shorter than its sender said.
    #[error("the file has {actual}, too short for a mapping of {wanted}")]
    TooShort {
        /// What was asked for.
        wanted: Bytes,
        /// The length of the file.
        actual: Bytes,
    },
    /// The file could be cut off while it is mapped, and a read behind its end kills the process.
    #[error("the file is not sealed against shrinking (F_SEAL_SHRINK)")]
    NotSealed,
    /// A system call failed.
    #[error("cannot map {len} of shared memory")]
    System {
        /// What was asked for.
        len: Bytes,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl View {
    /// Maps the first `len` bytes of `fd` for reading and writing. The descriptor is closed; the
    /// mapping keeps the file.
    ///
    /// # Errors
    ///
    /// If the file is no memfd of at least this length that is sealed against shrinking.
    pub fn map(fd: OwnedFd, len: Bytes) -> Result<Self, MapError> {
        if len.0 == 0 {
            return Err(MapError::Empty);
        }
        // Seals before length: a sealed file cannot get shorter after it was measured.
        let seals = fcntl(&fd, FcntlArg::F_GET_SEALS).map_err(|_| MapError::NotSealed)?;
        if !SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK) {
            return Err(MapError::NotSealed);
        }
        let failed = |source: io::Error| MapError::System { len, source };
        let size = fstat(&fd).map_err(|errno| failed(errno.into()))?.st_size;
        let actual = Bytes(u64::try_from(size).unwrap_or(0));
        if actual < len {
            return Err(MapError::TooShort { wanted: len, actual });
        }
        let count =
            usize::try_from(len.0).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let raw = MmapOptions::new().len(count).map_raw(&fd).map_err(failed)?;
        drop(fd);
        Ok(Self { mapping: Mapping::new(raw) })
    }
}

impl Deref for View {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}
