//! The dataset formats, each with the settings that it needs.
//!
//! An index keeps the text of a format (its [`fmt::Display`]), so two formats are equal if and only
//! if their texts are.

use std::{fmt, num::NonZeroU64, path::PathBuf};

use tierfeed_core::units::Bytes;

use super::parquet::Unit;

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
    LitData {
        /// For chunks of tokens: number of tokens of a sample.
        sequence_length: Option<NonZeroU64>,
    },
    /// Token files of Megatron-LM with their `.idx`: a sample is a sequence.
    Megatron,
    /// Arrays of NumPy: a sample is a row.
    Npy,
    /// Archives of NumPy: a sample is an array.
    Npz {
        /// The arrays that are samples; all of them if empty.
        members: Vec<String>,
    },
    /// Parquet files: a sample is a row group, or one column of one.
    Parquet(Parquet),
    /// Arrow IPC files and streams: a sample is a record batch.
    Arrow,
    /// HDF5 files: a sample is a row or a chunk of one dataset in them.
    Hdf5 {
        dataset: String,
    },
    /// LMDB environments, each staged as a whole.
    Lmdb,
    /// FFCV's `.beton` files, each staged as a whole.
    Ffcv,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// Files whose path below the source matches a pattern such as `**/*.npz`, in the order of
    /// their paths.
    Glob(String),
    /// Files that a text file names, a path below the source per line, in its order.
    Manifest(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw {
    /// The size of a record, at least 1; for tokens the sequence length times the bytes of one.
    pub record_bytes: Bytes,
    /// Bytes before the first record of each file.
    pub header_bytes: Bytes,
    /// What happens to the end of a file that is no whole record.
    pub rest: Rest,
}

/// How the end of a file that is shorter than a record is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// As an error: a file of records has no remainder.
    Refuse,
    /// Ignored, as usual for tokens.
    Drop,
}

/// The compression of a file as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    /// gzip: only the file as a whole can be read.
    Gzip,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parquet {
    pub unit: Unit,
    /// The columns that are read, by their dotted paths; all columns if empty.
    pub columns: Vec<String>,
}

impl Raw {
    /// Whole records from the first byte of each file on.
    #[must_use]
    pub const fn of_records(record_bytes: Bytes) -> Self {
        Self { record_bytes, header_bytes: Bytes(0), rest: Rest::Refuse }
    }
}

impl Format {
    /// The name in job files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ImageFolder => "image-folder",
            Self::Files(_) => "files",
            Self::Raw(_) => "raw",
            Self::TfRecord(_) => "tfrecord",
            Self::WebDataset => "webdataset",
            Self::Mds => "mds",
            Self::LitData { .. } => "litdata",
            Self::Megatron => "megatron",
            Self::Npy => "npy",
            Self::Npz { .. } => "npz",
            Self::Parquet(_) => "parquet",
            Self::Arrow => "arrow",
            Self::Hdf5 { .. } => "hdf5",
            Self::Lmdb => "lmdb",
            Self::Ffcv => "ffcv",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Files(files) => write!(f, ", {files}"),
            Self::Raw(raw) => write!(f, ", {raw}"),
            Self::TfRecord(Compression::Gzip) => f.write_str(", gzip"),
            Self::Npz { members } if !members.is_empty() => {
                write!(f, ", arrays {members:?}")
            }
            Self::Parquet(parquet) => write!(f, ", {parquet}"),
            Self::LitData { sequence_length: Some(length) } => {
                write!(f, ", sequences of {length}")
            }
            Self::Hdf5 { dataset } => write!(f, ", dataset {dataset}"),
            Self::ImageFolder
            | Self::TfRecord(Compression::None)
            | Self::WebDataset
            | Self::Mds
            | Self::LitData { sequence_length: None }
            | Self::Megatron
            | Self::Npy
            | Self::Npz { .. }
            | Self::Arrow
            | Self::Lmdb
            | Self::Ffcv => Ok(()),
        }
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(pattern) => write!(f, "those that match `{pattern}`"),
            Self::Manifest(path) => write!(f, "those in {}", path.display()),
        }
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "records of {} B", self.record_bytes.0)?;
        if self.header_bytes.0 > 0 {
            write!(f, " after {} B", self.header_bytes.0)?;
        }
        match self.rest {
            Rest::Refuse => Ok(()),
            Rest::Drop => f.write_str(", without the rest"),
        }
    }
}

impl fmt::Display for Parquet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.unit {
            Unit::RowGroup => "row groups",
            Unit::ColumnChunk => "column chunks",
        })?;
        if self.columns.is_empty() { Ok(()) } else { write!(f, " of {:?}", self.columns) }
    }
}
