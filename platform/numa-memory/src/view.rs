//! Maps memory that another process owns, after checking that it cannot shrink under the reader.

use std::{io, ops::Deref, os::fd::OwnedFd};

use memmap2::MmapOptions;
use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::stat::fstat,
};
use tierfeed_units::Bytes;

use crate::{
    checksum::Checksum,
    mapping::{Mapping, RangeError},
};

/// This process's mapping of a memfd that came from another one.
#[derive(Debug)]
pub struct View {
    mapping: Mapping,
}

/// This process's mapping of a memfd that came from another one, for reading only.
#[derive(Debug)]
pub struct ReadView {
    mapping: Mapping,
}

/// Why a descriptor was not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The requested mapping has no bytes.
    #[error("asked to map 0 B; map at least one byte")]
    Empty,
    /// The file is shorter than its sender stated.
    #[error("the file has {actual}, too short for a mapping of {wanted}")]
    TooShort {
        /// Length that the caller requested.
        wanted: Bytes,
        /// The length of the file.
        actual: Bytes,
    },
    /// The file could be truncated while it is mapped, and a read behind its end kills the process.
    #[error("the file is not sealed against shrinking (F_SEAL_SHRINK)")]
    NotSealed,
    /// A system call failed.
    #[error("cannot map {len} of shared memory")]
    System {
        /// Length that the caller requested.
        len: Bytes,
        /// The error of the system call.
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
        let count = check(&fd, len)?;
        let raw = MmapOptions::new().len(count).map_raw(&fd).map_err(failed(len))?;
        drop(fd);
        Ok(Self { mapping: Mapping::new(raw) })
    }
}

impl ReadView {
    /// Maps the first `len` bytes of `fd` for reading. The descriptor is closed; the mapping keeps the
    /// file.
    ///
    /// # Errors
    ///
    /// As [`View::map`].
    pub fn map(fd: OwnedFd, len: Bytes) -> Result<Self, MapError> {
        let count = check(&fd, len)?;
        let raw = MmapOptions::new().len(count).map_raw_read_only(&fd).map_err(failed(len))?;
        drop(fd);
        Ok(Self { mapping: Mapping::new(raw) })
    }

    /// Length of the memory, in bytes.
    #[must_use]
    pub fn len(&self) -> Bytes {
        self.mapping.len()
    }

    /// Always false: a mapping has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// As [`Mapping::read`].
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping; nothing is copied then.
    pub fn read(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), RangeError> {
        self.mapping.read(offset, buffer)
    }

    /// As [`Mapping::sum_into`].
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping; nothing is summed then.
    pub fn sum_into(
        &self,
        offset: Bytes,
        len: Bytes,
        sum: &mut Checksum,
    ) -> Result<(), RangeError> {
        self.mapping.sum_into(offset, len, sum)
    }

    /// As [`Mapping::as_ptr_range`], of memory to which a write would end the process.
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping.
    pub fn as_ptr_range(&self, offset: Bytes, len: Bytes) -> Result<*const u8, RangeError> {
        self.mapping.as_ptr_range(offset, len).map(<*mut u8>::cast_const)
    }
}

/// Checks whether `len` bytes of a file can be mapped and will stay.
fn check(fd: &OwnedFd, len: Bytes) -> Result<usize, MapError> {
    if len.0 == 0 {
        return Err(MapError::Empty);
    }
    // Seals before length: a sealed file cannot get shorter after its length was read.
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map_err(|_| MapError::NotSealed)?;
    if !SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK) {
        return Err(MapError::NotSealed);
    }
    let size = fstat(fd).map_err(|errno| failed(len)(errno.into()))?.st_size;
    let actual = Bytes(u64::try_from(size).unwrap_or(0));
    if actual < len {
        return Err(MapError::TooShort { wanted: len, actual });
    }
    usize::try_from(len.0).map_err(|_| failed(len)(io::ErrorKind::OutOfMemory.into()))
}

fn failed(len: Bytes) -> impl Fn(io::Error) -> MapError {
    move |source| MapError::System { len, source }
}

impl Deref for View {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}
