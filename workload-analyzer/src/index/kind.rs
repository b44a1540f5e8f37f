//! The formats that an index can be built of.

use std::{fmt, path::Path};

use tierfeed_core::units::Bytes;

use super::IndexError;
use crate::{
    job::{self, Dataset},
    source::Location,
};

/// How samples lie in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One directory per class, one image file per sample, as torchvision's `ImageFolder`.
    ImageFolder,
    /// Files of records that all have the same size.
    Raw {
        /// The size of a record, at least 1.
        record_bytes: Bytes,
    },
}

impl Format {
    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ImageFolder => "image-folder",
            Self::Raw { .. } => "raw",
        }
    }

    pub(super) fn of(dataset: &Dataset) -> Result<Self, IndexError> {
        match &dataset.format {
            job::Format::ImageFolder => Ok(Self::ImageFolder),
            job::Format::Raw(job::format::Raw {
                record_bytes,
                header_bytes: Bytes(0),
                rest: job::format::Rest::Refuse,
            }) => Ok(Self::Raw { record_bytes: *record_bytes }),
            other => Err(IndexError::UnsupportedFormat { format: other.to_string() }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ImageFolder => f.write_str(self.name()),
            Self::Raw { record_bytes } => write!(f, "raw, records of {} B", record_bytes.0),
        }
    }
}

pub(super) fn path_of(dataset: &Dataset) -> Result<&Path, IndexError> {
    match &dataset.source {
        Location::Path(path) => Ok(path),
        Location::Bucket(bucket) => {
            Err(IndexError::UnsupportedSource { source_url: bucket.url.clone() })
        }
    }
}
