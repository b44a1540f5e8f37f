//! Where samples come from: one trait, and the sources that implement it.
//!
//! A source reads one sample straight to its place. It keeps no buffer, decides nothing about order
//! or retention, and reports a failure with the object, what was expected and what was found.

mod arrival;
pub mod file;
pub mod open_files;
pub mod sample_sum;
mod throttled;

use std::{fmt, io, path::PathBuf, sync::Arc};

use crate::{Extent, Index, format::FormatError};
use tierfeed_core::{id::SampleId, session::Fault, units::Bytes};

pub use arrival::Target;
pub use file::FileSource;
pub use throttled::ThrottledSource;

/// A cold store, or something that stands for one.
///
/// Reads come from many threads at once and block.
pub trait Source: Send + Sync + fmt::Debug {
    /// Reads all bytes of `sample` to `to`, through its methods.
    ///
    /// # Errors
    ///
    /// A [`ReadError`]; what was written to the place until then is garbage.
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError>;

    /// As [`Self::read`], if that takes no wait. `false` if it would, or if anything is wrong, which
    /// [`Self::read`] then says; what was written to the place until then is garbage.
    fn read_ready(&self, _sample: SampleId, _to: &Target) -> bool {
        false
    }

    /// Called when the data plane stops: reads that wait for something shall end soon.
    fn stop(&self) {}
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        (**self).read(sample, to)
    }

    fn read_ready(&self, sample: SampleId, to: &Target) -> bool {
        (**self).read_ready(sample, to)
    }

    fn stop(&self) {
        (**self).stop();
    }
}

/// What tells one state of an object from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its size.
    pub size: Bytes,
    /// Its time of modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, mtime_ns } = self;
        write!(f, "{} bytes, modified at {mtime_ns} ns since 1970", size.0)
    }
}

/// Where `sample` lies, which shall fill a place of `place` bytes.
///
/// # Errors
///
/// [`ReadError::Unknown`] or [`ReadError::WrongLength`]: whoever asked works by another index.
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

/// Why a sample could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The object is not there any more.
    #[error("{} is gone; it was there when the dataset was indexed", .path.display())]
    Vanished {
        /// The object.
        path: PathBuf,
    },
    /// The object is another than the one that was indexed.
    #[error("{} changed: indexed with {indexed}, found with {found}; index it again", .path.display())]
    Changed {
        /// The object.
        path: PathBuf,
        /// What the index says.
        indexed: Version,
        /// What is there.
        found: Version,
    },
    /// The object ends before the sample does.
    #[error(
        "{} is truncated: the sample ends at byte {}, the object at byte {}",
        .path.display(), .needed.0, .found.0
    )]
    Truncated {
        /// The object.
        path: PathBuf,
        /// Where the sample ends.
        needed: Bytes,
        /// Where the object ends.
        found: Bytes,
    },
    /// The object cannot be opened or read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The object.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The sample cannot be decoded, or is not what its checksum says.
    #[error("{}: {source}", .path.display())]
    Damaged {
        /// The object.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The index has no such sample.
    #[error("the index has no sample {}; it has {samples} samples", .sample.0)]
    Unknown {
        /// What was asked for.
        sample: SampleId,
        /// How many there are.
        samples: u32,
    },
    /// The place is not as long as the sample.
    #[error("sample {} has {} bytes, its place {}", .sample.0, .indexed.0, .place.0)]
    WrongLength {
        /// What was asked for.
        sample: SampleId,
        /// What the index says.
        indexed: Bytes,
        /// Where it was to go.
        place: Bytes,
    },
}

impl ReadError {
    /// The number of the error, if it came from the operating system.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// What the session is told.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Vanished { .. } => Fault::Vanished,
            Self::Changed { .. } => Fault::Changed,
            Self::Truncated { .. } => Fault::Truncated,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Fault::Denied
            }
            Self::Io { .. }
            | Self::Damaged { .. }
            | Self::Unknown { .. }
            | Self::WrongLength { .. } => Fault::Io,
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
    }
}
