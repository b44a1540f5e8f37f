//! Errors in a file of prices, with messages that say what would be right.

use std::{io, path::PathBuf};

use tierfeed_core::units::{self, Bytes};

use super::{FILE_BYTES_MAX, PriceError};
use crate::job::error::phrase;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// The file cannot be opened or is not UTF-8.
    #[error("{}: cannot be read: {source}", .file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("{}: longer than {}; no file of prices is", .file.display(), Bytes(FILE_BYTES_MAX))]
    TooLarge { file: PathBuf },
    /// Not YAML, an unknown, missing or repeated key, or a value of the wrong type.
    #[error("{}:{line}: {}", .file.display(), phrase(.key, .said))]
    Malformed {
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key, or `.` for the whole file.
        key: String,
        /// Not a source of this error: the message contains it.
        said: serde_yaml::Error,
    },
    #[error("{}:{line}: {key} is `{value}`; {reason}", .file.display())]
    Invalid { file: PathBuf, line: usize, key: &'static str, value: String, reason: Reason },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    #[error("{problem}, for example `{example}`")]
    NotAPrice { problem: PriceError, example: &'static str },
    #[error("{problem}, for example `{example}`")]
    NotASize { problem: units::ParseError, example: &'static str },
    #[error("it must be between {min} and {max}")]
    OutOfRange { min: u64, max: u64 },
    #[error("expected one of {allowed}")]
    NotOneOf { allowed: &'static str },
}
