//! Errors of a dataset or of its index.

use std::{io, path::PathBuf};

use tierfeed_core::units::Bytes;

use crate::{
    format::{FormatError, ObjectsError},
    source::SourceError,
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    #[error("{object}: {source}")]
    Format { object: String, source: FormatError },
    #[error(transparent)]
    NoIndexer(FormatError),
    /// A file that is no part of the dataset cannot be read, such as a manifest.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{pattern}` is no pattern for paths: {source}; write for example `**/*.npz`")]
    Glob { pattern: String, source: globset::Error },
    #[error("{}:{line}: `{name}` is not in the source; a line is a path below it", .manifest.display())]
    NotInSource {
        manifest: PathBuf,
        /// Line number, counted from 1.
        line: u64,
        name: String,
    },
    #[error("{root}: no samples; format {format} looks for {looked_for}{others}")]
    NoSamples {
        root: String,
        format: &'static str,
        looked_for: &'static str,
        /// The files that are there, as the end of a sentence.
        others: String,
    },
    #[error(
        "{root}: `{held_out}` is of a test or validation split by its name, and `{other}` beside it is not: a training \
         would read both; pick its files with {pick}, or all with `glob: \"**\"`"
    )]
    SplitsTogether {
        root: String,
        held_out: String,
        other: String,
        /// The key of the job file that picks the files to train on, with a pattern if one is found.
        pick: String,
    },
    #[error("{root}: {samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples { root: String, samples: u64 },
    #[error("{}: cannot be written: {source}", .path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("{}: is there and no index; name another place for the index", .path.display())]
    Occupied { path: PathBuf },
    #[error(
        "{}: lies in the dataset itself, which it would change; name a place outside for the index",
        .path.display()
    )]
    Inside { path: PathBuf },
    /// The samples of the objects are together longer than 64 bits can count.
    #[error("{root}: {damage}")]
    Impossible { root: String, damage: Damage },
    #[error("{}: {fault}", .path.display())]
    File { path: PathBuf, fault: FileFault },
    #[error(
        "the index is that of {indexed} ({indexed_format}), not of {root} ({format}); build it again"
    )]
    OtherDataset { indexed: String, indexed_format: String, root: String, format: String },
    #[error("{place}: changed since it was indexed; build the index again")]
    Stale { place: String },
}

impl IndexError {
    /// Whether other input would help, rather than another attempt.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Unwritable { .. } => false,
            Self::Source(error) | Self::Objects(ObjectsError::Source(error)) => error.is_input(),
            _ => true,
        }
    }
}

/// Why a file is no index that can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("not a tierfeed index; `tierfeed index` writes one")]
    Foreign,
    #[error(
        "an index of version {found}, and this tierfeed reads version {expected}; build it again"
    )]
    Version { found: u32, expected: u32 },
    #[error("{found} long instead of {expected}; build the index again")]
    Length {
        found: Bytes,
        /// The length according to the header; the largest number if the header is invalid.
        expected: Bytes,
    },
    #[error("damaged: {0}; build the index again")]
    Damaged(Damage),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    #[error("the checksum does not match")]
    Checksum,
    /// The kind does not exist, or the sections are inconsistent.
    #[error("no such kind of index")]
    Format,
    /// A position is outside of the names, or before its predecessor.
    #[error("a name lies outside its place")]
    Names,
    #[error("a name leads out of the dataset")]
    Escape,
    /// Directories are not in order, or leave objects out.
    #[error("an object lies in no directory")]
    Directories,
    /// Classes are directories, and an object lies outside of them.
    #[error("an object lies in no class")]
    Classes,
    /// Counts of samples are inconsistent, or samples lie outside of their object.
    #[error("a sample lies outside its object, or is longer than 1 TiB")]
    Records,
    #[error("a sample is longer than 1 TiB, or all together are longer than 64 bits can count")]
    Sizes,
}
