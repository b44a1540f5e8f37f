//! Checks the output of `tierfeed-hdf5-indexer` for a dataset in an HDF5 file.
//!
//! Reading HDF5 needs libhdf5, which runs in a process of its own (`platform/hdf5-indexer/`); its
//! output is validated here, because it comes from a file that may be damaged. A sample is a row of
//! a contiguous dataset, or a chunk of a chunked one, as stored: the trainer reverses filters
//! (compression).
//!
//! A chunk at an edge of the dataset is as large as any other, and its surplus is meaningless; the
//! coordinates tell which rows and columns it holds.

mod bounded;
mod chunks;
mod document;
mod indexer;

#[cfg(test)]
mod tests;

use self::document::{Document, Layout};
use super::{
    DatasetFormat, Elements, Format, FormatError, Found, Kind, Parsed, Range, ReadAt, Records,
    Stated,
    keys::{Given, Key, KeyError, Reason, invalid},
    piece::{end_of, malformed},
};
use crate::source::{Opened, names::ends_in};

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

pub(super) static KIND: Kind = Kind {
    keys: &[&DATASET],
    alike: Some(".h5"),
    ..Kind::by_name(
        "hdf5",
        of_keys,
        |name| ends_in(name, &[".h5", ".hdf5", ".hdf", ".he5", ".nc"]),
        ".h5, .hdf5, .hdf, .he5, .nc",
    )
};

static DATASET: Key = Key::new("dataset", "PATH", "the path of the dataset in each file");

fn of_keys(given: &Given<'_>) -> Result<Format, KeyError> {
    const EXAMPLE: &str = "/train/images";
    match given.text(&DATASET) {
        None => Err(given.needs(&DATASET, "its path in each file, for example `/train/images`")),
        Some("") => Err(invalid(DATASET.name, "", Reason::EmptyName { example: EXAMPLE })),
        Some(path) => Ok(Format::Hdf5(Hdf5 { dataset: path.to_owned() })),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hdf5 {
    /// The path of a dataset in each file.
    pub dataset: String,
}

impl DatasetFormat for Hdf5 {
    fn settings(&self) -> String {
        format!("dataset {}", self.dataset)
    }

    fn parse(&self, object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        let dataset = indexer::read(object, &self.dataset)?;
        let (stated, note) = (Some(dataset.stated()), dataset.note());
        let samples = match dataset.samples {
            Samples::Rows(records) => Found::Records(records),
            Samples::Chunks(chunks) => {
                Found::Ranges(chunks.chunks.iter().map(|chunk| chunk.range).collect())
            }
        };
        Ok(Parsed { samples, stated, note })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    pub path: String,
    /// The type of the elements, in NumPy's notation; structures as `{x: <f4, y: <i2}`.
    pub dtype: String,
    /// Number of elements of each axis; never empty.
    pub shape: Vec<u64>,
    pub samples: Samples,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Samples {
    Rows(Records),
    /// The chunks, in row-major order of their coordinates.
    Chunks(Chunks),
}

/// Chunks of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// Number of elements of each axis of a chunk.
    pub shape: Vec<u64>,
    /// The filters, in the order in which they were applied.
    pub filters: Vec<String>,
    /// Number of chunks with an applied filter, whose bytes are not their elements.
    pub filtered: u64,
    /// The chunks, in row-major order of their coordinates.
    pub chunks: Vec<Chunk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub range: Range,
    /// Coordinates of its first element in the dataset.
    pub coordinates: Vec<u64>,
    /// The filters that were not applied to it: bit `i` is filter `i`.
    pub filter_mask: u32,
}

impl Dataset {
    #[must_use]
    pub fn stated(&self) -> Stated {
        let (shape, filters) = match &self.samples {
            Samples::Rows(_) => (self.shape[1..].to_vec(), Vec::new()),
            Samples::Chunks(chunks) => {
                let filters = if chunks.filtered > 0 { chunks.filters.clone() } else { Vec::new() };
                (chunks.shape.clone(), filters)
            }
        };
        Stated::Elements(Elements { dtype: self.dtype.clone(), shape: Some(shape), filters })
    }

    /// A note on chunks that were stored without some of the filters; the bytes do not tell that.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let Samples::Chunks(Chunks { filters, chunks, .. }) = &self.samples else { return None };
        let is_odd =
            |chunk: &&Chunk| (0..filters.len()).any(|filter| chunk.filter_mask >> filter & 1 == 1);
        let first = chunks.iter().find(is_odd)?;
        let (odd, all) = (chunks.iter().filter(is_odd).count(), chunks.len());
        Some(format!(
            "{odd} of {all} chunks of {} were stored without some of the filters {}, the first at {:?}: \
             their bytes do not tell, so a trainer that undoes the filters of all reads them wrongly; \
             write the file again with h5repack and another filter",
            self.path,
            filters.join(", "),
            first.coordinates
        ))
    }
}

/// Finds the signature of HDF5, and returns the length of the user block before it.
///
/// # Errors
///
/// [`FormatError::Malformed`] if there is none where the format allows one: at byte 0, 512, 1024 and
/// so on, doubling.
pub fn check_signature(object: &dyn ReadAt) -> Result<u64, FormatError> {
    let places = (0..).map(|power: u32| match power {
        0 => Some(0),
        _ => 512_u64.checked_shl(power - 1).filter(|place| place.is_power_of_two()),
    });
    for place in places.map_while(|place| place) {
        let mut bytes = [0; SIGNATURE.len()];
        if place.saturating_add(bytes.len() as u64) > object.len() {
            break;
        }
        object.read_exact_at(&mut bytes, place)?;
        if &bytes == SIGNATURE {
            return Ok(place);
        }
    }
    let right = "a file of HDF5 has its signature at byte 0, 512, 1024, 2048, …";
    Err(malformed("the signature of HDF5", 0, "nowhere", right))
}

/// Parses the indexer's output for a dataset of `object`, and checks it against `object`.
///
/// # Errors
///
/// [`FormatError::Malformed`] and [`FormatError::Truncated`] if it is inconsistent;
/// [`FormatError::Unsupported`] if chunks are missing, or the rows have no bytes.
pub fn parse(output: &[u8], object: &dyn ReadAt) -> Result<Dataset, FormatError> {
    check_signature(object)?;
    let broken = |found: String| {
        malformed("the indexer's answer", 0, found, "use the indexer of the same version")
    };
    let document: Document = serde_json::from_slice(output)
        .map_err(|error| broken(format!("no such document: {error}")))?;
    let missing = || broken("without a field".to_owned());
    let Document { dataset: path, dtype, shape, item_bytes, .. } = document;
    if shape.is_empty() || item_bytes == 0 {
        let found = format!("of shape {shape:?} and elements of {item_bytes} bytes");
        return Err(malformed("the dataset", 0, found, "there are axes, and elements have bytes"));
    }
    let samples = match document.layout {
        Layout::Contiguous => {
            let offset = document.offset_bytes.ok_or_else(missing)?;
            Samples::Rows(rows(object, offset, item_bytes, &shape)?)
        }
        Layout::Chunked => {
            let chunk = document.chunk.ok_or_else(missing)?;
            let filters = document.filters.ok_or_else(missing)?;
            let chunks = document.chunks.ok_or_else(missing)?;
            Samples::Chunks(chunks::checked(object, &shape, item_bytes, chunk, filters, chunks)?)
        }
    };
    Ok(Dataset { path, dtype, shape, samples })
}

fn bytes_of(item_bytes: u64, axes: &[u64]) -> Result<u64, FormatError> {
    let bytes = axes.iter().try_fold(item_bytes, |bytes, &axis| bytes.checked_mul(axis));
    bytes.ok_or_else(|| {
        let found = format!("{axes:?} of {item_bytes} bytes each");
        malformed("the shape", 0, found, "a dataset has fewer than 2^64 bytes")
    })
}

fn rows(
    object: &dyn ReadAt,
    offset: u64,
    item_bytes: u64,
    shape: &[u64],
) -> Result<Records, FormatError> {
    let record_bytes = bytes_of(item_bytes, &shape[1..])?;
    if record_bytes == 0 {
        return Err(FormatError::Unsupported {
            what: format!("a dataset of shape {shape:?}, whose rows have no bytes"),
            instead: "leave it out, there is nothing to read",
        });
    }
    end_of(object, "the dataset", offset, bytes_of(item_bytes, shape)?)?;
    Ok(Records { offset, record_bytes, count: shape[0] })
}
