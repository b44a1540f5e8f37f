//! What can be wrong with a dataset or with the index of one.

use std::{io, path::PathBuf};

use tierfeed_core::units::Bytes;

use super::Format;

/// Why there is no index, or none that may be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A format that no index can be built of.
    #[error("format {format} cannot be indexed")]
    UnsupportedFormat {
        /// The format.
        format: String,
    },
    /// A source that no index can be built of.
    #[error("{source_url}: sources of this kind cannot be indexed; use a path or `file:///…`")]
    UnsupportedSource {
        /// The source.
        source_url: String,
    },
    /// A file or directory of the dataset cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A name that ought to be a file and is a pipe, a socket or a device.
    #[error("{}: not a regular file; a sample must be one", .path.display())]
    NotAFile {
        /// What it is called.
        path: PathBuf,
    },
    /// An image folder that is no directory.
    #[error("{}: not a directory; an image folder has one directory per class", .path.display())]
    NotADirectory {
        /// The source.
        path: PathBuf,
    },
    /// An image folder without directories in it.
    #[error("{}: no class directory; an image folder has one directory per class", .root.display())]
    NoClasses {
        /// The source.
        root: PathBuf,
    },
    /// A class without images: torchvision refuses it too.
    #[error(
        "{}: no image for the class `{class}`{}; remove the directory or put a file there that ends in \
         .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp",
        .root.display(), and_others(*.others)
    )]
    EmptyClass {
        /// The source.
        root: PathBuf,
        /// The first such class.
        class: String,
        /// How many more there are.
        others: usize,
    },
    /// A symbolic link that leads to a directory above it.
    #[error("{}: a symbolic link that leads back to {}; remove it", .path.display(), .ancestor.display())]
    LinkLoop {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        ancestor: PathBuf,
    },
    /// A directory among files of records.
    #[error("{}: a directory; a raw dataset is one file or one directory of files", .path.display())]
    NestedDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A file that does not consist of whole records.
    #[error(
        "{}: {size} B long, which is {} records of {record_bytes} B and {} B more; \
         correct record_bytes or remove the file",
        .path.display(), .size / .record_bytes, .size % .record_bytes
    )]
    PartialRecord {
        /// The file.
        path: PathBuf,
        /// Its length.
        size: u64,
        /// The record size of the job.
        record_bytes: u64,
    },
    /// A dataset without a sample.
    #[error("{}: no samples", .root.display())]
    NoSamples {
        /// The source.
        root: PathBuf,
    },
    /// A dataset whose samples 32 bits cannot number.
    #[error("{}: {samples} samples; at most {} can be numbered", .root.display(), u32::MAX)]
    TooManySamples {
        /// The source.
        root: PathBuf,
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
    #[error("the index is that of {} ({indexed_format}), not of {} ({format}); build it again",
        .indexed.display(), .root.display())]
    OtherDataset {
        /// The source of the index.
        indexed: PathBuf,
        /// The format of the index.
        indexed_format: Format,
        /// The source of the job.
        root: PathBuf,
        /// The format of the job.
        format: Format,
    },
    /// The dataset has changed since it was indexed.
    #[error("{}: changed since it was indexed; build the index again", .path.display())]
    Stale {
        /// The file or directory that changed.
        path: PathBuf,
    },
}

/// What does not hold in an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// Some bit is not as written.
    #[error("the checksum does not match")]
    Checksum,
    /// A format that does not exist, or a record size of zero.
    #[error("no such format")]
    Format,
    /// A position outside the names, or before the one in front of it.
    #[error("a name lies outside its place")]
    Names,
    /// A name that leads out of the dataset.
    #[error("a name leads out of the dataset")]
    Escape,
    /// A class that starts outside the objects, or is empty.
    #[error("a class has no samples")]
    Classes,
    /// A raw file that does not consist of whole records.
    #[error("a file does not consist of whole records")]
    Records,
    /// Files that together are longer than 64 bits can count.
    #[error("the sizes of the files are impossible")]
    Sizes,
}

fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        _ => format!(" and {others} others"),
    }
}
