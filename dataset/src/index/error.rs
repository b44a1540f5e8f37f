//! Errors of a dataset or of its index.

use std::{io, path::PathBuf};

use tierfeed_core::units::Bytes;

use crate::{format::FormatError, source::SourceError};

/// Why an index cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The source cannot be listed or read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An object does not conform to its format.
    #[error("{object}: {source}")]
    Format {
        /// Path of the object below the source.
        object: String,
        /// The error of the parser.
        source: FormatError,
    },
    /// A file that is no part of the dataset cannot be read: a manifest, or an index.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The source of an image folder is no directory.
    #[error("{root}: not a directory; an image folder has one directory per class")]
    NotADirectory {
        /// Path of the source.
        root: String,
    },
    /// An image folder has no directories.
    #[error("{root}: no class directory; an image folder has one directory per class")]
    NoClasses {
        /// Path of the source.
        root: String,
    },
    /// A class has no images: torchvision refuses it too.
    #[error(
        "{root}: no image for the class `{class}`{}; remove the directory or put a file there that ends \
         in .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp",
        and_others(*.others)
    )]
    EmptyClass {
        /// Path of the source.
        root: String,
        /// The first such class.
        class: String,
        /// Number of further ones.
        others: usize,
    },
    /// The pattern is invalid.
    #[error("`{pattern}` is no pattern for paths: {source}; write for example `**/*.npz`")]
    Glob {
        /// The pattern in the configuration.
        pattern: String,
        /// The error in the pattern.
        source: globset::Error,
    },
    /// A manifest names an object that is not in the source.
    #[error("{}:{line}: `{name}` is not in the source; a line is a path below it", .manifest.display())]
    NotInSource {
        /// Path of the manifest.
        manifest: PathBuf,
        /// Line number, counted from 1.
        line: u64,
        /// The name in that line.
        name: String,
    },
    /// An `index.json` names a shard that does not exist.
    #[error("{index}: names `{name}`, which is not there; bring the whole dataset")]
    ShardMissing {
        /// Path of the `index.json`.
        index: String,
        /// Name of the shard.
        name: String,
    },
    /// Shards have no `index.json`.
    #[error("{root}: no index.json{}; the source is the directory that has one", elsewhere(.found.as_ref()))]
    NoShardIndex {
        /// Path of the source.
        root: String,
        /// A directory below it that has one.
        found: Option<String>,
    },
    /// The program that reads HDF5 files was not found.
    #[error(
        "format hdf5 needs the program {name}, which is neither beside tierfeed nor in the PATH; \
         build it with `cargo build --release -p {name}` (it needs libhdf5-dev) and put it there"
    )]
    NoHdf5Indexer {
        /// Name of the program.
        name: &'static str,
    },
    /// The dataset has no samples.
    #[error("{root}: no samples; format {format} looks for {looked_for}{others}")]
    NoSamples {
        /// Path of the source.
        root: String,
        /// Name of the format.
        format: &'static str,
        /// The objects that the format uses.
        looked_for: &'static str,
        /// The files that are there, as the end of a sentence.
        others: String,
    },
    /// Files of a test or validation split lie beside others.
    #[error(
        "{root}: `{held_out}` is of a test or validation split by its name, and `{other}` beside it is not: a training \
         would read both; pick its files with {pick}, or all with `glob: \"**\"`"
    )]
    SplitsTogether {
        /// Path of the source.
        root: String,
        /// The first file that is held out by its name.
        held_out: String,
        /// The first one that is not.
        other: String,
        /// The key of the job file that picks the files to train on, with a pattern if one is found.
        pick: String,
    },
    /// The source holds the splits of a dataset of Hugging Face.
    #[error(
        "{root}: a DatasetDict with the splits {splits}, and a training would read all of them; the source is one of \
         these directories, or pick files with `glob`, for example `{pattern}`"
    )]
    DatasetDict {
        /// Path of the directory.
        root: String,
        /// The names of the splits.
        splits: String,
        /// A pattern for the files of one.
        pattern: String,
    },
    /// The dataset has more samples than 32 bits can number.
    #[error("{root}: {samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples {
        /// Path of the source.
        root: String,
        /// The counted number of samples.
        samples: u64,
    },
    /// The index file cannot be written.
    #[error("{}: cannot be written: {source}", .path.display())]
    Unwritable {
        /// Path of the index file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The path for the index has a file that is no index.
    #[error("{}: is there and no index; name another place for the index", .path.display())]
    Occupied {
        /// Path of the file.
        path: PathBuf,
    },
    /// The index would be part of its own dataset, and make it look changed.
    #[error(
        "{}: lies in the dataset itself, which it would change; name a place outside for the index",
        .path.display()
    )]
    Inside {
        /// The path for the index.
        path: PathBuf,
    },
    /// The samples of the objects are together longer than 64 bits can count.
    #[error("{root}: {damage}")]
    Impossible {
        /// Path of the source.
        root: String,
        /// Invariant that the file violates.
        damage: Damage,
    },
    /// The file is no index.
    #[error("{}: not a tierfeed index; `tierfeed index` writes one", .path.display())]
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// The index was written by another version of tierfeed.
    #[error("{}: an index of version {found}, and this tierfeed reads version {expected}; build it again", .path.display())]
    Version {
        /// Path of the index file.
        path: PathBuf,
        /// The version of the file.
        found: u32,
        /// The version that can be read.
        expected: u32,
    },
    /// The length of the index file differs from that in its header.
    #[error("{}: {found} long instead of {expected}; build the index again", .path.display())]
    Length {
        /// Path of the index file.
        path: PathBuf,
        /// The length of the file.
        found: Bytes,
        /// The length according to the header; the largest number if the header is invalid.
        expected: Bytes,
    },
    /// The index file is damaged.
    #[error("{}: damaged: {damage}; build the index again", .path.display())]
    Damaged {
        /// Path of the index file.
        path: PathBuf,
        /// Invariant that the file violates.
        damage: Damage,
    },
    /// The index belongs to another dataset.
    #[error(
        "the index is that of {indexed} ({indexed_format}), not of {root} ({format}); build it again"
    )]
    OtherDataset {
        /// The source of the index.
        indexed: String,
        /// The format of the index.
        indexed_format: String,
        /// The source of the job.
        root: String,
        /// The format of the job.
        format: String,
    },
    /// The dataset has changed since it was indexed.
    #[error("{place}: changed since it was indexed; build the index again")]
    Stale {
        /// The file, directory or object that changed.
        place: String,
    },
}

impl IndexError {
    /// Whether other input would help, rather than another attempt.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Unwritable { .. } => false,
            Self::Source(error) => error.is_input(),
            _ => true,
        }
    }
}

/// The violated invariant of an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A bit has changed since the file was written.
    #[error("the checksum does not match")]
    Checksum,
    /// The kind does not exist, or the sections are inconsistent.
    #[error("no such kind of index")]
    Format,
    /// A position is outside of the names, or before its predecessor.
    #[error("a name lies outside its place")]
    Names,
    /// A name leads out of the dataset.
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
    /// A sample is longer than [`SAMPLE_BYTES_MAX`](tierfeed_core::batch::SAMPLE_BYTES_MAX), or the
    /// files together are longer than 64 bits can count.
    #[error("a sample is longer than 1 TiB, or all together are longer than 64 bits can count")]
    Sizes,
}

fn elsewhere(found: Option<&String>) -> String {
    found.map_or_else(String::new, |place| format!(" there, but in {place}"))
}

fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        _ => format!(" and {others} others"),
    }
}
