//! Reads samples: the trait of a source, and the sources that implement it.
//!
//! A source reads one sample directly to its destination. It keeps no buffer, decides nothing about
//! order or retention, and reports a failure with the object, the expected and the found state.

mod arrival;
pub mod file;
pub mod open_files;
pub mod page_cache;
pub mod sample_sum;
mod throttled;

use std::{fmt, io, ops::Range, path::PathBuf, sync::Arc};

use crate::{
    Extent, Index,
    format::{Encoding, FormatError},
};
use tierfeed_core::{id::SampleId, session::Fault, units::Bytes};

pub use arrival::{Sink, Target};
pub use file::FileSource;
pub use throttled::ThrottledSource;

/// A cold store, or a substitute for one.
///
/// Reads come from many threads at once and block.
pub trait Source: Send + Sync + fmt::Debug {
    /// Reads all bytes of `sample` to `to`, through its methods.
    ///
    /// # Errors
    ///
    /// A [`ReadError`]; the bytes written until then are invalid.
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError>;

    /// As [`Self::read`], if that needs no wait. Returns `false` if it would wait, or after any
    /// error, which [`Self::read`] then reports; the bytes written until then are invalid.
    fn read_ready(&self, _sample: SampleId, _to: &Target) -> bool {
        false
    }

    /// Called when a tier keeps a copy of `sample`: data that reads of it left elsewhere, such as in the page
    /// cache, is no longer needed.
    fn drop_pages(&self, _sample: SampleId) {}

    /// Called when the data plane stops: blocked reads should end soon.
    fn stop(&self) {}
}

/// A cold store that reads parts of samples, such as the head of an image.
///
/// Reads come from many threads at once and block.
pub trait PartSource: Send + Sync + fmt::Debug {
    /// Reads bytes of `sample` from its byte `from` on into `buffer`, up to the end of the sample. Returns
    /// their number. A compressed sample has no parts: none of its bytes is read.
    ///
    /// # Errors
    ///
    /// A [`ReadError`]; the content of `buffer` is invalid then.
    fn read_part(
        &self,
        sample: SampleId,
        from: Bytes,
        buffer: &mut [u8],
    ) -> Result<usize, ReadError>;
}

impl<S: PartSource + ?Sized> PartSource for Box<S> {
    fn read_part(
        &self,
        sample: SampleId,
        from: Bytes,
        buffer: &mut [u8],
    ) -> Result<usize, ReadError> {
        (**self).read_part(sample, from, buffer)
    }
}

/// The range of a part of a sample in its object, at most `len` bytes; empty for a compressed sample.
#[must_use]
pub fn part_of(extent: &Extent, from: Bytes, len: usize) -> Range<u64> {
    let left = match extent.encoding {
        Encoding::Plain => extent.len.saturating_sub(from.0),
        Encoding::Deflate { .. } => 0,
    };
    let begin = extent.offset + from.0.min(extent.len);
    begin..begin + left.min(len as u64)
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        (**self).read(sample, to)
    }

    fn read_ready(&self, sample: SampleId, to: &Target) -> bool {
        (**self).read_ready(sample, to)
    }

    fn drop_pages(&self, sample: SampleId) {
        (**self).drop_pages(sample);
    }

    fn stop(&self) {
        (**self).stop();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub size: Bytes,
    /// Time of its last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, mtime_ns } = self;
        write!(f, "{} bytes, modified at {mtime_ns} ns since 1970", size.0)
    }
}

/// The position of `sample`, which is to be read to a destination of `place` bytes.
///
/// # Errors
///
/// [`ReadError::Unknown`] or [`ReadError::WrongLength`]: the caller uses another index.
pub fn extent_of(index: &Index, sample: SampleId, place: Bytes) -> Result<Extent, ReadError> {
    let samples = index.len();
    if sample.0 >= samples {
        return Err(ReadError::Unknown { sample, samples });
    }
    let extent = index.extent(sample);
    let indexed = Bytes(extent.len);
    if indexed == place {
        Ok(extent)
    } else {
        Err(ReadError::WrongLength { sample, indexed, place })
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The object no longer exists; the directory or bucket that held it does.
    #[error("{} is gone; it was there when the dataset was indexed", .path.display())]
    Vanished { path: PathBuf },
    #[error(
        "cannot read {}: {} is not there, or is empty; see whether its file system is mounted",
        .path.display(), .directory.display()
    )]
    Away { path: PathBuf, directory: PathBuf },
    #[error("{} changed: indexed with {indexed}, found with {found}; index it again", .path.display())]
    Changed { path: PathBuf, indexed: Version, found: Version },
    #[error(
        "{} is truncated: the sample ends at byte {}, the object at byte {}",
        .path.display(), .needed.0, .found.0
    )]
    Truncated { path: PathBuf, needed: Bytes, found: Bytes },
    #[error("cannot read {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", .path.display())]
    Damaged { path: PathBuf, source: FormatError },
    #[error("the index has no sample {}; it has {samples} samples", .sample.0)]
    Unknown { sample: SampleId, samples: u32 },
    #[error("sample {} has {} bytes, its place {}", .sample.0, .indexed.0, .place.0)]
    WrongLength { sample: SampleId, indexed: Bytes, place: Bytes },
}

impl ReadError {
    /// The error number, if the operating system reported the error.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Vanished { .. } => Fault::Vanished,
            // The caller has another index than the dataset.
            Self::Changed { .. } | Self::Unknown { .. } | Self::WrongLength { .. } => {
                Fault::Changed
            }
            Self::Truncated { .. } => Fault::Truncated,
            Self::Damaged { .. } => Fault::Corrupt,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Fault::Denied,
                // What a store is read into is in this node: no store answers a read with these.
                io::ErrorKind::OutOfMemory
                | io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded => Fault::NoSpace,
                _ if source.raw_os_error() == Some(libc::EFAULT) => Fault::NoSpace,
                _ => Fault::Io,
            },
            Self::Away { .. } => Fault::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_must_not_be_read_is_told_from_one_that_cannot() {
        let fault = |kind: io::ErrorKind| {
            ReadError::Io { path: "/data/a".into(), source: kind.into() }.fault()
        };
        assert_eq!(fault(io::ErrorKind::PermissionDenied), Fault::Denied);
        assert_eq!(fault(io::ErrorKind::ResourceBusy), Fault::Io);
        assert_eq!(fault(io::ErrorKind::StaleNetworkFileHandle), Fault::Io);
    }
}
