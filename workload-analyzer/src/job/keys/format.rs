//! Checks the format of a dataset: each format has its own keys and refuses those of others.

use std::{num::NonZeroU64, path::Path};

use tierfeed_core::units::Bytes;

use super::{DatasetKeys, KeyError, conflict, invalid, mistake, parse_size};
use crate::job::{KeyConflict, Reason};
pub use tierfeed_dataset::format::FORMATS;
use tierfeed_dataset::format::{
    Compression, Files, Format, Hdf5, LitData, Npz, Parquet, Raw, Rest, Unit,
};

pub(super) const FORMATS_IN_WORDS: &str = "image-folder, files, raw, tfrecord, webdataset, mds, litdata, megatron, npy, npz, \
                                parquet, arrow, hdf5, lmdb, ffcv";

/// The types of tokens, with the size of one in bytes.
const DTYPES: [(&str, u64); 12] = [
    ("uint8", 1),
    ("int8", 1),
    ("uint16", 2),
    ("int16", 2),
    ("float16", 2),
    ("bfloat16", 2),
    ("uint32", 4),
    ("int32", 4),
    ("float32", 4),
    ("uint64", 8),
    ("int64", 8),
    ("float64", 8),
];
const DTYPES_IN_WORDS: &str = "uint8, int8, uint16, int16, float16, bfloat16, uint32, int32, float32, \
                               uint64, int64, float64";

const SEQUENCE_LENGTH_MAX: u64 = u32::MAX as u64;

impl DatasetKeys {
    /// The format with its keys. Relative paths start at `directory`.
    ///
    /// # Errors
    ///
    /// If the format is unknown, if a key that it needs is missing, or if a key of another format is given.
    pub fn format(&self, directory: &Path) -> Result<Format, KeyError> {
        if !FORMATS.contains(&self.format.as_str()) {
            let reason = Reason::NotOneOf { allowed: FORMATS_IN_WORDS };
            return Err(invalid("format", &self.format, reason));
        }
        self.refuse_foreign_keys()?;
        Ok(match self.format.as_str() {
            "image-folder" => Format::ImageFolder,
            "files" => Format::Files(self.files(directory)?),
            "raw" => Format::Raw(self.raw()?),
            "tfrecord" => Format::TfRecord(self.compression()?),
            "webdataset" => Format::WebDataset,
            "mds" => Format::Mds,
            "litdata" => Format::LitData(LitData { sequence_length: self.sequence_length()? }),
            "megatron" => Format::Megatron,
            "npy" => Format::Npy,
            "npz" => {
                Format::Npz(Npz { members: names("members", self.members.as_ref(), "x.npy")? })
            }
            "parquet" => Format::Parquet(self.parquet()?),
            "arrow" => Format::Arrow,
            "hdf5" => Format::Hdf5(Hdf5 { dataset: self.hdf5_dataset()? }),
            "lmdb" => Format::Lmdb,
            "ffcv" => Format::Ffcv,
            other => unreachable!("{other} is no format"),
        })
    }

    fn files(&self, directory: &Path) -> Result<Files, KeyError> {
        let what = "which files are samples, for example `**/*.npz`; or `manifest`, a file that lists them";
        self.said_files(directory)?.ok_or_else(|| self.needs("glob", what))
    }

    /// The selection of files of the source, for other formats than `files`. Relative paths start at
    /// `directory`.
    ///
    /// # Errors
    ///
    /// If a key is wrong, or the format takes what its own index lists.
    pub fn picked(&self, directory: &Path) -> Result<Option<Files>, KeyError> {
        let (glob, manifest) = (self.glob.is_some(), self.manifest.is_some());
        let key = if glob { "glob" } else { "manifest" };
        match self.format.as_str() {
            "files" => Ok(None),
            "mds" | "litdata" if glob || manifest => Err(conflict(key, KeyConflict::ListedByIndex)),
            "image-folder" if manifest => Err(conflict("manifest", KeyConflict::OrderedByClass)),
            _ => self.said_files(directory),
        }
    }

    fn said_files(&self, directory: &Path) -> Result<Option<Files>, KeyError> {
        match (&self.glob, &self.manifest) {
            (Some(_), Some(_)) => Err(conflict("manifest", KeyConflict::Beside { other: "glob" })),
            (None, None) => Ok(None),
            (Some(pattern), None) if pattern.is_empty() || pattern.starts_with('/') => {
                Err(invalid("glob", pattern, Reason::NotAPattern))
            }
            (Some(pattern), None) => Ok(Some(Files::Glob(pattern.clone()))),
            (None, Some(path)) => match mistake(path) {
                Some(reason) => Err(invalid("manifest", path, reason)),
                None => Ok(Some(Files::Manifest(directory.join(path)))),
            },
        }
    }

    fn raw(&self) -> Result<Raw, KeyError> {
        let header_bytes = match &self.header_bytes {
            None => Bytes(0),
            Some(typed) => size("header_bytes", typed)?,
        };
        let (record_bytes, rest) = match (&self.record_bytes, &self.dtype, self.sequence_length) {
            (Some(typed), None, None) => (record_bytes(typed)?, Rest::Refuse),
            (Some(_), Some(_), _) => {
                return Err(conflict("dtype", KeyConflict::Beside { other: "record_bytes" }));
            }
            (Some(_), None, Some(_)) => {
                return Err(conflict(
                    "sequence_length",
                    KeyConflict::Beside { other: "record_bytes" },
                ));
            }
            (None, Some(dtype), Some(length)) => (tokens(dtype, length)?, Rest::Drop),
            (None, Some(_), None) => {
                return Err(self.needs("sequence_length", "how many tokens a sample has"));
            }
            (None, None, Some(_)) => {
                return Err(self.needs("dtype", "what a token is, for example `uint16`"));
            }
            (None, None, None) => {
                let what = "the size of a record; for tokens, `dtype` and `sequence_length`";
                return Err(self.needs("record_bytes", what));
            }
        };
        Ok(Raw { record_bytes, header_bytes, rest })
    }

    fn sequence_length(&self) -> Result<Option<NonZeroU64>, KeyError> {
        self.sequence_length.map(length_of_sequence).transpose()
    }

    fn compression(&self) -> Result<Compression, KeyError> {
        match self.compression.as_deref() {
            None | Some("none") => Ok(Compression::None),
            Some("gzip") => Ok(Compression::Gzip),
            Some(other) => {
                Err(invalid("compression", other, Reason::NotOneOf { allowed: "none, gzip" }))
            }
        }
    }

    fn parquet(&self) -> Result<Parquet, KeyError> {
        let unit = match self.unit.as_deref() {
            None | Some("row-group") => Unit::RowGroup,
            Some("column-chunk") => Unit::ColumnChunk,
            Some(other) => {
                let reason = Reason::NotOneOf { allowed: "row-group, column-chunk" };
                return Err(invalid("unit", other, reason));
            }
        };
        Ok(Parquet { unit, columns: names("columns", self.columns.as_ref(), "image.bytes")? })
    }

    fn hdf5_dataset(&self) -> Result<String, KeyError> {
        match &self.dataset {
            None => {
                Err(self.needs("dataset", "its path in each file, for example `/train/images`"))
            }
            Some(path) if path.is_empty() => {
                Err(invalid("dataset", path, Reason::EmptyName { example: "/train/images" }))
            }
            Some(path) => Ok(path.clone()),
        }
    }

    fn needs(&self, key: &'static str, what: &'static str) -> KeyError {
        let format = FORMATS.into_iter().find(|known| *known == self.format);
        let format = format.expect("only a known format needs a key");
        KeyError::Conflict {
            key: None,
            conflict: KeyConflict::NeededByFormat { format, key, what },
        }
    }

    fn refuse_foreign_keys(&self) -> Result<(), KeyError> {
        let keys = [
            ("record_bytes", self.record_bytes.is_some(), "raw"),
            ("dtype", self.dtype.is_some(), "raw"),
            ("header_bytes", self.header_bytes.is_some(), "raw"),
            ("compression", self.compression.is_some(), "tfrecord"),
            ("members", self.members.is_some(), "npz"),
            ("unit", self.unit.is_some(), "parquet"),
            ("columns", self.columns.is_some(), "parquet"),
            ("dataset", self.dataset.is_some(), "hdf5"),
        ];
        let foreign = keys.into_iter().find(|(_, is_there, of)| *is_there && *of != self.format);
        match foreign {
            Some((key, _, formats)) => Err(conflict(key, KeyConflict::OfOtherFormat { formats })),
            None if self.sequence_length.is_some()
                && !["raw", "litdata"].contains(&self.format.as_str()) =>
            {
                let formats = "raw or litdata";
                Err(conflict("sequence_length", KeyConflict::OfOtherFormat { formats }))
            }
            None => Ok(()),
        }
    }
}

fn size(key: &'static str, typed: &str) -> Result<Bytes, KeyError> {
    parse_size(typed).ok_or_else(|| invalid(key, typed, Reason::NotASize))
}

fn record_bytes(typed: &str) -> Result<Bytes, KeyError> {
    let wrong = || invalid("record_bytes", typed, Reason::NotARecordSize);
    parse_size(typed).filter(|bytes| bytes.0 > 0).ok_or_else(wrong)
}

fn tokens(dtype: &str, length: u64) -> Result<Bytes, KeyError> {
    let known = DTYPES.into_iter().find(|(name, _)| *name == dtype);
    let reason = Reason::NotOneOf { allowed: DTYPES_IN_WORDS };
    let (_, bytes) = known.ok_or_else(|| invalid("dtype", dtype, reason))?;
    Ok(Bytes(bytes * length_of_sequence(length)?.get()))
}

fn length_of_sequence(length: u64) -> Result<NonZeroU64, KeyError> {
    let reason = Reason::OutOfRange { min: 1, max: SEQUENCE_LENGTH_MAX };
    let wrong = || invalid("sequence_length", &length.to_string(), reason);
    NonZeroU64::new(length).filter(|length| length.get() <= SEQUENCE_LENGTH_MAX).ok_or_else(wrong)
}

/// A list of names. A missing list means all; an empty one is an error.
fn names(
    key: &'static str,
    typed: Option<&Vec<String>>,
    example: &'static str,
) -> Result<Vec<String>, KeyError> {
    let Some(typed) = typed else { return Ok(Vec::new()) };
    if typed.is_empty() {
        return Err(conflict(key, KeyConflict::EmptyList));
    }
    for (index, name) in typed.iter().enumerate() {
        if name.is_empty() {
            return Err(invalid(key, name, Reason::EmptyName { example }));
        }
        if typed[..index].contains(name) {
            return Err(invalid(key, name, Reason::NamedTwice));
        }
    }
    Ok(typed.clone())
}
