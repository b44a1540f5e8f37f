//! The keys of a dataset, from a job file or from options of a command, checked in the same way.
//!
//! 1. A key that the format or the source does not use is refused, because its author expects an effect.
//! 2. Credentials are refused, and never repeated in an error.

mod format;
mod path;
mod source;

use serde::Deserialize;
use tierfeed_core::units::Bytes;

use super::{KeyConflict, Reason};

pub use format::FORMATS;
pub(crate) use path::{NodePath, mistake};

/// The location and the format of a dataset as given by the user, unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatasetKeys {
    /// A path or a URL.
    pub source: String,
    /// For buckets: the server.
    pub endpoint: Option<String>,
    /// For `s3://`: the region.
    pub region: Option<String>,
    /// For buckets: whether requests are left unsigned.
    pub anonymous: Option<bool>,
    /// The name of the format, one of [`FORMATS`].
    pub format: String,
    /// Which files are taken: a pattern.
    pub glob: Option<String>,
    /// Which files are taken: a file with a list.
    pub manifest: Option<String>,
    /// For `raw`: a number of bytes or a size.
    pub record_bytes: Option<String>,
    /// For `raw`: what a token is, as NumPy calls it.
    pub dtype: Option<String>,
    /// For `raw`: tokens in a record.
    pub sequence_length: Option<u64>,
    /// For `raw`: a number of bytes or a size.
    pub header_bytes: Option<String>,
    /// For `tfrecord`: `none` or `gzip`.
    pub compression: Option<String>,
    /// For `npz`: names of arrays.
    pub members: Option<Vec<String>>,
    /// For `parquet`: `row-group` or `column-chunk`.
    pub unit: Option<String>,
    /// For `parquet`: dotted paths of columns.
    pub columns: Option<Vec<String>>,
    /// For `hdf5`: a path in each file.
    pub dataset: Option<String>,
}

/// An invalid key of a dataset. The caller adds the name of the key for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    Invalid {
        /// The key, as in job files.
        key: &'static str,
        /// The value, without credentials.
        value: String,
        reason: Reason,
    },
    Conflict {
        /// The key, as in job files; `None` if a key is missing.
        key: Option<&'static str>,
        conflict: KeyConflict,
    },
}

/// A size with or without a unit: the name of its key says bytes.
pub(super) fn parse_size(typed: &str) -> Option<Bytes> {
    typed.parse::<u64>().ok().map(Bytes).or_else(|| typed.parse().ok())
}

fn invalid(key: &'static str, value: &str, reason: Reason) -> KeyError {
    KeyError::Invalid { key, value: value.to_owned(), reason }
}

fn conflict(key: &'static str, conflict: KeyConflict) -> KeyError {
    KeyError::Conflict { key: Some(key), conflict }
}

#[cfg(test)]
mod tests;
