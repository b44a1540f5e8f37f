//! What can be wrong with a dataset or with the index of one.

use std::{io, path::PathBuf};

use tierfeed_core::units::Bytes;

use crate::{format::FormatError, source::SourceError};

/// Why there is no index, or none that may be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The source cannot be listed or read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An object is not what its format says.
    #[error("{object}: {source}")]
    Format {
        /// Its path below the source.
        object: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A file that is no part of the dataset cannot be read: a manifest, or an index.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An image folder that is no directory.
    #[error("{root}: not a directory; an image folder has one directory per class")]
    NotADirectory {
        /// The source.
        root: String,
    },
    /// An image folder without directories in it.
    #[error("{root}: no class directory; an image folder has one directory per class")]
    NoClasses {
        /// The source.
        root: String,
    },
    /// A class without images: torchvision refuses it too.
    #[error(
        "{root}: no image for the class `{class}`{}; remove the directory or put a file there that ends \
         in .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp",
        and_others(*.others)
    )]
    EmptyClass {
        /// The source.
        root: String,
        /// The first such class.
        class: String,
        /// How many more there are.
        others: usize,
    },
    /// A pattern that is none.
    #[error("`{pattern}` is no pattern for paths: {source}; write for example `**/*.npz`")]
    Glob {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        source: globset::Error,
    },
    /// A manifest that names what is not there.
    #[error("{}:{line}: `{name}` is not in the source; a line is a path below it", .manifest.display())]
    NotInSource {
        /// The manifest.
        manifest: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What it names.
        name: String,
    },
    /// An `index.json` that names a shard which is not there.
    #[error("{index}: names `{name}`, which is not there; bring the whole dataset")]
    ShardMissing {
        /// The index.
        index: String,
        /// The shard.
        name: String,
    },
    /// Shards without their `index.json`.
    #[error("{root}: no index.json{}; the source is the directory that has one", elsewhere(.found.as_ref()))]
    NoShardIndex {
        /// The source.
        root: String,
        /// A directory below it that has one.
        found: Option<String>,
    },
    /// What reads HDF5 files is not here.
    #[error(
        "format hdf5 needs the program {name}, which is neither beside tierfeed nor in the PATH; \
         build it with `cargo build --release -p {name}` (it needs libhdf5-dev) and put it there"
    )]
    NoHdf5Indexer {
        /// The program.
        name: &'static str,
    },
    /// A dataset without a sample.
    #[error("{root}: no samples; format {format} looks for {looked_for}")]
    NoSamples {
        /// The source.
        root: String,
        /// The name of the format.
        format: &'static str,
        /// Which objects it looks at.
        looked_for: &'static str,
    },
    /// A dataset whose samples 32 bits cannot number.
    #[error("{root}: {samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples {
        /// The source.
        root: String,
        /// As counted.
        samples: u64,
    },
    /// The index file cannot be written.
    #[error("{}: cannot be written: {source}", .path.display())]
    Unwritable {
        /// The index file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else stands where the index shall go.
    #[error("{}: is there and no index; name another place for the index", .path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
    },
    /// The index would be a part of what it is the index of, and make it look changed.
    #[error(
        "{}: lies in the dataset itself, which it would change; name a place outside for the index",
        .path.display()
    )]
    Inside {
        /// Where the index shall go.
        path: PathBuf,
    },
    /// Objects whose samples are together longer than 64 bits can count.
    #[error("{root}: {damage}")]
    Impossible {
        /// The source.
        root: String,
        /// What does not hold.
        damage: Damage,
    },
    /// The file is something else.
    #[error("{}: not a tierfeed index; `tierfeed index` writes one", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The index was written by another tierfeed.
    #[error("{}: an index of version {found}, and this tierfeed reads version {expected}; build it again", .path.display())]
    Version {
        /// The index file.
        path: PathBuf,
        /// As written.
        found: u32,
        /// What can be read.
        expected: u32,
    },
    /// The index file is not as long as its header says.
    #[error("{}: {found} long instead of {expected}; build the index again", .path.display())]
    Length {
        /// The index file.
        path: PathBuf,
        /// As found.
        found: Bytes,
        /// As the header says; the largest number if it says nonsense.
        expected: Bytes,
    },
    /// The index file is not what was written.
    #[error("{}: damaged: {damage}; build the index again", .path.display())]
    Damaged {
        /// The index file.
        path: PathBuf,
        /// What does not hold.
        damage: Damage,
    },
    /// The index is that of another dataset.
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

/// What does not hold in an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Some bit is not as written.
    #[error("the checksum does not match")]
    Checksum,
    /// A kind that does not exist, or sections that do not go together.
    #[error("no such kind of index")]
    Format,
    /// A position outside the names, or before the one in front of it.
    #[error("a name lies outside its place")]
    Names,
    /// A name that leads out of the dataset.
    #[error("a name leads out of the dataset")]
    Escape,
    /// Directories that do not follow each other, or leave objects out.
    #[error("an object lies in no directory")]
    Directories,
    /// Classes by directories, and an object outside of them.
    #[error("an object lies in no class")]
    Classes,
    /// Samples that do not add up, or lie outside their object.
    #[error("a sample lies outside its object, or is longer than 1 TiB")]
    Records,
    /// A sample of more than [`SAMPLE_BYTES_MAX`](tierfeed_core::batch::SAMPLE_BYTES_MAX), or files that
    /// together are longer than 64 bits can count.
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
