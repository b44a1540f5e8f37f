//! What can be wrong with a file of prices, told so that the user can correct it without a manual.

use std::{io, path::PathBuf};

use tierfeed_core::units::{self, Bytes};

use super::{FILE_BYTES_MAX, PriceError};
use crate::job::error::phrase;

/// Why a file holds no prices.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// The file cannot be opened or is not UTF-8.
    #[error("{}: cannot be read: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is far too large for prices.
    #[error("{}: longer than {}; no file of prices is", .file.display(), Bytes(FILE_BYTES_MAX))]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// No YAML, an unknown, missing or repeated key, or a value of another type.
    #[error("{}:{line}: {}", .file.display(), phrase(.key, .said))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The key, or `.` for the whole file.
        key: String,
        /// What the parser said. Not a source of this error: the message holds all of it.
        said: serde_yaml::Error,
    },
    /// A value that cannot be.
    #[error("{}:{line}: {key} is `{value}`; {reason}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// The value as typed.
        value: String,
        /// What would be right.
        reason: Reason,
    },
}

/// Why a value cannot be, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A text that reads as no price of this kind.
    #[error("{problem}, for example `{example}`")]
    NotAPrice {
        /// What the parser said.
        problem: PriceError,
        /// One that would be right.
        example: &'static str,
    },
    /// A text that reads as no size.
    #[error("{problem}, for example `{example}`")]
    NotASize {
        /// What the parser said.
        problem: units::ParseError,
        /// One that would be right.
        example: &'static str,
    },
    /// A number outside its range.
    #[error("it must be between {min} and {max}")]
    OutOfRange {
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
    },
    /// Not one of a fixed set of words.
    #[error("expected one of {allowed}")]
    NotOneOf {
        /// The words that may stand here.
        allowed: &'static str,
    },
}
