//! The keys of a dataset as a user gives them, in a job file or as options of a command: one check
//! for both.
//!
//! 1. A key that the format or the source does not look at is refused: whoever wrote it believes that
//!    it does something.
//! 2. No credentials pass, and none is repeated in an error.

mod format;
mod path;
mod source;

use serde::Deserialize;
use tierfeed_core::units::Bytes;

use super::{Misfit, Reason};

pub use format::FORMATS;
pub(crate) use path::mistake;

/// What a user says about where a dataset is and how it is stored, unchecked.
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
    /// One of [`FORMATS`].
    pub format: String,
    /// For `files`: a pattern.
    pub glob: Option<String>,
    /// For `files`: a file with a list.
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

/// A key of a dataset that is wrong. Who asked knows how to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// A value that cannot be.
    Invalid {
        /// The key, as in job files.
        key: &'static str,
        /// The value, without credentials.
        value: String,
        /// What would be right.
        reason: Reason,
    },
    /// A key that is too many, or `None` if one is missing.
    Misfit {
        /// The key, as in job files.
        key: Option<&'static str>,
        /// What does not go together.
        misfit: Misfit,
    },
}

/// A size without or with a unit: its key itself says bytes.
pub(super) fn parse_size(typed: &str) -> Option<Bytes> {
    typed.parse::<u64>().ok().map(Bytes).or_else(|| typed.parse().ok())
}

fn invalid(key: &'static str, value: &str, reason: Reason) -> KeyError {
    KeyError::Invalid { key, value: value.to_owned(), reason }
}

fn misfit(key: &'static str, misfit: Misfit) -> KeyError {
    KeyError::Misfit { key: Some(key), misfit }
}

#[cfg(test)]
mod tests;
