//! Errors in a file of prices, with messages that say what would be right.

use std::{io, path::PathBuf};

use tierfeed_core::units::{self, Bytes};

use super::{FILE_BYTES_MAX, PriceError};
use crate::job::error::phrase;

/// Why a file of prices cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// The file cannot be opened or is not UTF-8.
    #[error("{}: cannot be read: {source}", .file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is far too large for prices.
    #[error("{}: longer than {}; no file of prices is", .file.display(), Bytes(FILE_BYTES_MAX))]
    TooLarge {
        /// The path of the file.
        file: PathBuf,
    },
    /// Not YAML, an unknown, missing or repeated key, or a value of the wrong type.
    #[error("{}:{line}: {}", .file.display(), phrase(.key, .said))]
    Malformed {
        /// The path of the file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key, or `.` for the whole file.
        key: String,
        /// The error of the parser. Not a source of this error: the message contains it.
        said: serde_yaml::Error,
    },
    /// A value that is not allowed.
    #[error("{}:{line}: {key} is `{value}`; {reason}", .file.display())]
    Invalid {
        /// The path of the file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key of the value.
        key: &'static str,
        /// The value as typed.
        value: String,
        /// What would be right.
        reason: Reason,
    },
}

/// Why a value is not allowed, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The text is not a price of this kind.
    #[error("{problem}, for example `{example}`")]
    NotAPrice {
        /// The error of the parser.
        problem: PriceError,
        /// A value that would be right.
        example: &'static str,
    },
    /// The text is not a size.
    #[error("{problem}, for example `{example}`")]
    NotASize {
        /// The error of the parser.
        problem: units::ParseError,
        /// A value that would be right.
        example: &'static str,
    },
    /// The number is outside of its range.
    #[error("it must be between {min} and {max}")]
    OutOfRange {
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
    },
    /// The text is not one of the allowed words.
    #[error("expected one of {allowed}")]
    NotOneOf {
        /// The words that may stand here.
        allowed: &'static str,
    },
}
