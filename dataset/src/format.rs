//! Finds the samples of one object: a parser for each format.
//!
//! A parser is a pure function of an object's bytes. It reads only what it needs (headers, footers,
//! tables of offsets), validates all of it, and never reads the sample data itself; the functions
//! called `check` read that too.
//!
//! 1. Every range that a parser returns lies within its object.
//! 2. For any bytes, a parser terminates, does not panic, and takes memory in proportion to the
//!    bytes that it has read, not to a length that a header claims.
//! 3. A sample has the bytes that the format's own reader returns; each format documents them.
//!
//! A format is one file, with a folder if its parser is long: its keys, the objects that it takes, and where
//! samples lie in them, by the trait [`DatasetFormat`]. A new one is such a file and its lines in this one.

pub mod arrow;
pub mod ffcv;
pub mod fields;
mod files;
pub mod hdf5;
pub(crate) mod image_folder;
pub mod keys;
mod label;
pub mod litdata;
pub mod lmdb;
pub mod mds;
pub mod megatron;
pub mod npy;
pub mod npz;
pub(crate) mod objects;
mod offset_table;
pub mod parquet;
mod piece;
mod raw;
mod read_ahead;
mod shard_index;
mod stated;
pub mod tfrecord;
pub mod webdataset;

use std::{fmt, io};

pub use self::{
    hdf5::Hdf5,
    keys::Files,
    litdata::LitData,
    npz::Npz,
    objects::ObjectsError,
    parquet::{Parquet, Unit},
    raw::{Raw, Rest},
    stated::{Elements, Order, Stated, Table},
    tfrecord::Compression,
};
use self::{
    image_folder::ImageFolder,
    keys::{Given, Key, KeyError},
    objects::{Candidates, Objects},
};
pub use crate::read_at::ReadAt;
use crate::source::Opened;

/// A format with its settings.
///
/// An index keeps its text ([`fmt::Display`]), so two formats are equal if and only if their texts are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// One directory per class, one image file per sample, as torchvision's `ImageFolder`.
    ImageFolder,
    Files(Files),
    Raw(Raw),
    /// `TFRecord` files: one sample per record, or per file if it is compressed.
    TfRecord(Compression),
    /// tar files in which each run of members with one basename is a sample.
    WebDataset,
    /// Shards of MosaicML Streaming with their `index.json`.
    Mds,
    /// Chunks of `LitData` with their `index.json`.
    LitData(LitData),
    /// Token files of Megatron-LM with their `.idx`: a sample is a sequence.
    Megatron,
    /// Arrays of NumPy: a sample is a row.
    Npy,
    /// Archives of NumPy: a sample is an array.
    Npz(Npz),
    /// Parquet files: a sample is a row group, or one column of one.
    Parquet(Parquet),
    /// Arrow IPC files and streams: a sample is a record batch.
    Arrow,
    /// HDF5 files: a sample is a row or a chunk of one dataset in them.
    Hdf5(Hdf5),
    /// LMDB environments, each staged as a whole.
    Lmdb,
    /// FFCV's `.beton` files, each staged as a whole.
    Ffcv,
}

/// All formats, in the order of [`Format`].
pub(crate) const KINDS: [&Kind; 15] = [
    &image_folder::KIND,
    &files::KIND,
    &raw::KIND,
    &tfrecord::KIND,
    &webdataset::KIND,
    &mds::KIND,
    &litdata::KIND,
    &megatron::KIND,
    &npy::KIND,
    &npz::KIND,
    &parquet::KIND,
    &arrow::KIND,
    &hdf5::KIND,
    &lmdb::KIND,
    &ffcv::KIND,
];

/// The names of the formats in job files.
pub const FORMATS: [&str; KINDS.len()] = {
    let mut names = [""; KINDS.len()];
    let mut number = 0;
    while number < names.len() {
        names[number] = KINDS[number].name;
        number += 1;
    }
    names
};

impl Format {
    fn parts(&self) -> (&'static Kind, &dyn DatasetFormat) {
        match self {
            Self::ImageFolder => (&image_folder::KIND, &ImageFolder),
            Self::Files(files) => (&files::KIND, files),
            Self::Raw(raw) => (&raw::KIND, raw),
            Self::TfRecord(compression) => (&tfrecord::KIND, compression),
            Self::WebDataset => (&webdataset::KIND, &webdataset::WebDataset),
            Self::Mds => (&mds::KIND, &mds::Mds),
            Self::LitData(litdata) => (&litdata::KIND, litdata),
            Self::Megatron => (&megatron::KIND, &megatron::Megatron),
            Self::Npy => (&npy::KIND, &npy::Npy),
            Self::Npz(npz) => (&npz::KIND, npz),
            Self::Parquet(parquet) => (&parquet::KIND, parquet),
            Self::Arrow => (&arrow::KIND, &arrow::Arrow),
            Self::Hdf5(hdf5) => (&hdf5::KIND, hdf5),
            Self::Lmdb => (&lmdb::KIND, &lmdb::Lmdb),
            Self::Ffcv => (&ffcv::KIND, &ffcv::Ffcv),
        }
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.parts().0
    }

    pub(crate) fn rules(&self) -> &dyn DatasetFormat {
        self.parts().1
    }

    pub(crate) fn looked_for(&self) -> &'static str {
        self.rules().looked_for().unwrap_or(self.kind().looked_for)
    }

    /// The name in job files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().name
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.rules().settings() {
            settings if settings.is_empty() => Ok(()),
            settings => write!(f, ", {settings}"),
        }
    }
}

/// What is known of a format without its settings.
pub(crate) struct Kind {
    /// The name in job files.
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static Key],
    /// The format with its keys as they are given.
    pub(crate) of_keys: fn(&Given<'_>) -> Result<Format, KeyError>,
    /// Whether a name is one of files with samples.
    pub(crate) is_sample: fn(&[u8]) -> bool,
    /// Whether a name is one of files that are read beside those.
    pub(crate) is_beside: fn(&[u8]) -> bool,
    pub(crate) taken: Taken,
    /// A part of such names: a file that is passed over and has it may be meant as a sample.
    pub(crate) alike: Option<&'static str>,
    /// For the message that there are no samples.
    pub(crate) looked_for: &'static str,
    pub(crate) told: Told,
}

/// Which files are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Those of such names, or those of a pattern that names files, and none that is hidden.
    Visible,
    /// Those of such names in directories of classes.
    InDirectories,
    /// Those that the user picks.
    Picked,
    /// Those that an index of the dataset lists.
    Listed,
}

/// How the names of the files in one directory tell a format.
pub(crate) enum Told {
    /// By files that belong together: the number of those with samples.
    Together(fn(&[Vec<u8>]) -> usize),
    /// By each name.
    Alone(fn(&[u8]) -> bool),
    /// By directories, or not at all.
    Otherwise,
}

impl Kind {
    pub(crate) const fn new(
        name: &'static str,
        of_keys: fn(&Given<'_>) -> Result<Format, KeyError>,
        is_sample: fn(&[u8]) -> bool,
        looked_for: &'static str,
    ) -> Self {
        Self {
            name,
            keys: &[],
            of_keys,
            is_sample,
            is_beside: |_| false,
            taken: Taken::Visible,
            alike: None,
            looked_for,
            told: Told::Otherwise,
        }
    }

    /// A format that the end of a name tells.
    pub(crate) const fn by_name(
        name: &'static str,
        of_keys: fn(&Given<'_>) -> Result<Format, KeyError>,
        is_sample: fn(&[u8]) -> bool,
        looked_for: &'static str,
    ) -> Self {
        Self { told: Told::Alone(is_sample), ..Self::new(name, of_keys, is_sample, looked_for) }
    }

    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|it| it.name == key)
    }
}

/// The rules of a format with its settings.
pub(crate) trait DatasetFormat: Sync {
    /// The settings in words, as an index keeps them; empty if there are none.
    fn settings(&self) -> String {
        String::new()
    }

    /// As [`Kind::looked_for`], if the settings matter.
    fn looked_for(&self) -> Option<&'static str> {
        None
    }

    /// The objects of a dataset in the order of its samples.
    ///
    /// # Errors
    ///
    /// If the files are no dataset of this format.
    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        Ok(found.listing.into())
    }

    /// The samples of an object of `size` bytes, if its size alone tells them; then it is not opened.
    fn of_size(&self, _size: u64) -> Result<Option<Found>, FormatError> {
        Ok(None)
    }

    /// The samples of an object; `index` is that of another tool beside it.
    fn parse(&self, _object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        Ok(Found::Whole.into())
    }

    /// Whether [`Self::check`] may find checksums; else objects are not opened for it.
    fn has_checksums(&self) -> bool {
        false
    }

    /// Reads an object, and compares it with its checksums.
    fn check(&self, _object: &dyn ReadAt, _ranges: &[Range]) -> Result<Checksums, FormatError> {
        Ok(Checksums::None)
    }
}

/// The samples of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) samples: Found,
    pub(crate) stated: Option<Stated>,
    /// For the user.
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The whole object is one sample.
    Whole,
    Records(Records),
    Ranges(Vec<Range>),
}

impl Parsed {
    pub(crate) fn new(samples: Found, stated: Option<Stated>) -> Self {
        Self { samples, stated, note: None }
    }
}

impl From<Found> for Parsed {
    fn from(samples: Found) -> Self {
        Self::new(samples, None)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    Hold,
    /// The dataset has none: only sizes, times and the structure were compared.
    None,
}

/// The bytes of an object that are one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    /// Number of stored bytes.
    pub len: u64,
    pub encoding: Encoding,
    /// The class of the sample, if it has one; never `i64::MIN`.
    pub label: Option<i64>,
}

impl Range {
    /// A range whose bytes are the sample, unchanged.
    #[must_use]
    pub const fn plain(offset: u64, len: u64) -> Self {
        Self { offset, len, encoding: Encoding::Plain, label: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Plain,
    /// A raw deflate stream (RFC 1951), as in zip files.
    Deflate {
        /// Number of inflated bytes.
        len: u64,
        /// The CRC-32 (ISO-HDLC, as in zip files) of the inflated bytes.
        crc32: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records {
    pub offset: u64,
    /// Bytes of each record, at least 1.
    pub record_bytes: u64,
    pub count: u64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("truncated: {what} at byte {at} ends at byte {needed}, the object at byte {found}")]
    Truncated { what: &'static str, at: u64, needed: u64, found: u64 },
    #[error(
        "{what} at byte {at} is damaged: its checksum is {found:#010x}, its bytes give {computed:#010x}"
    )]
    Checksum { what: &'static str, at: u64, found: u32, computed: u32 },
    #[error("{what} at byte {at} is {found}; {right}")]
    Malformed {
        what: &'static str,
        at: u64,
        found: String,
        /// A valid value, or the fix.
        right: &'static str,
    },
    #[error(
        "{size} B of records, which are {} of {record_bytes} B and {} B more; correct the size of a \
         record, or leave the file out by a `glob` for the others", .size / .record_bytes, .size % .record_bytes
    )]
    PartialRecord { size: u64, record_bytes: u64 },
    #[error("records of {found} B, and those of the first file have {first} B; they must be equal")]
    OtherRecords { found: u64, first: u64 },
    #[error(
        "its samples are {found}, and those of the first file {first}; a dataset has samples of one kind: \
         pick its files with `glob` or `manifest`, or write them alike"
    )]
    OtherContent { found: String, first: String },
    #[error("{samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples { samples: u64 },
    #[error("{place} is {found}; {right}")]
    Index {
        /// A line number or a key.
        place: String,
        found: String,
        right: &'static str,
    },
    /// The object is valid, but cannot be read by ranges.
    #[error("{what}; {instead}")]
    Unsupported { what: String, instead: &'static str },
    #[error(
        "format hdf5 needs the program {name}, which is neither beside tierfeed nor in the PATH; \
         build it with `cargo build --release -p {name}` (it needs libhdf5-dev) and put it there"
    )]
    NoHdf5Indexer { name: &'static str },
}
