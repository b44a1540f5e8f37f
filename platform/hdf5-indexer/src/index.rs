//! Reads the layout of one dataset: rows of a contiguous one, chunks of a chunked one.

use std::path::Path;

use hdf5_metno::{
    Dataset, File, Group,
    plist::{DatasetCreate, dataset_create},
};
use serde::Serialize;

use crate::{dtype, error::IndexError};

/// Number of names that a message lists.
const NAMES_SHOWN: usize = 8;

/// The first release in which libhdf5 adds the user block to the offsets of chunks.
///
/// # Source
///
/// HDFGroup/hdf5 pull request 4236: before, the offsets count from the end of the user block.
const COUNTS_FROM_FILE_START: (u8, u8, u8) = (1, 14, 4);

/// The position of the samples of a dataset.
#[derive(Debug, Serialize)]
pub(crate) struct Index {
    dataset: String,
    dtype: String,
    shape: Vec<u64>,
    item_bytes: u64,
    #[serde(flatten)]
    layout: Layout,
}

#[derive(Debug, Serialize)]
#[serde(tag = "layout", rename_all = "lowercase")]
enum Layout {
    /// All elements together, from `offset_bytes` on.
    Contiguous { offset_bytes: u64 },
    /// Tiles of the shape `chunk`, each at an offset of its own.
    Chunked { chunk: Vec<u64>, filters: Vec<String>, chunks: Vec<Chunk> },
}

#[derive(Debug, Serialize)]
struct Chunk {
    /// Coordinates of its first element.
    coordinates: Vec<u64>,
    offset_bytes: u64,
    stored_bytes: u64,
    /// The filters that were not applied, as a bit mask.
    filter_mask: u32,
}

/// Reads the positions of the samples of `dataset` in `file`.
///
/// # Errors
///
/// [`IndexError`] if it has no ranges, or libhdf5 cannot read it.
pub(crate) fn read(file: &Path, dataset: &str) -> Result<Index, IndexError> {
    let file = File::open(file).map_err(IndexError::Library)?;
    let found = file.dataset(dataset).map_err(|error| unopened(&file, dataset, error))?;
    let shape: Vec<u64> = found.shape().into_iter().map(|len| len as u64).collect();
    if found.is_scalar() || shape.is_empty() {
        return Err(IndexError::NoAxes);
    }
    let datatype = found.dtype().map_err(IndexError::Library)?;
    let dtype = dtype::name(&datatype)?;
    let item_bytes = datatype.size() as u64;
    let layout = layout(&file, &found)?;
    Ok(Index { dataset: found.name(), dtype, shape, item_bytes, layout })
}

/// Why libhdf5 opens no dataset of that name.
fn unopened(file: &File, wanted: &str, error: hdf5_metno::Error) -> IndexError {
    let wanted = wanted.to_owned();
    if let Ok(group) = file.group(&wanted) {
        return IndexError::IsGroup { wanted, there: members(&group) };
    }
    if file.link_exists(&wanted) {
        let (major, minor, patch) = hdf5_metno::library_version();
        let version = format!("{major}.{minor}.{patch}");
        return IndexError::Unopened { wanted, version, source: error };
    }
    IndexError::Missing { wanted, there: members(file) }
}

/// The first members of a group, in words.
fn members(group: &Group) -> String {
    let mut names = group.member_names().unwrap_or_default();
    let more = names.len().saturating_sub(NAMES_SHOWN);
    names.truncate(NAMES_SHOWN);
    let mut there = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    if more > 0 {
        there = format!("{there} and {more} more");
    }
    there
}

fn layout(file: &File, dataset: &Dataset) -> Result<Layout, IndexError> {
    let plist = dataset.create_plist().map_err(IndexError::Library)?;
    match plist.get_layout().map_err(IndexError::Library)? {
        dataset_create::Layout::Contiguous => contiguous(dataset, &plist),
        dataset_create::Layout::Chunked => chunked(file, dataset, &plist),
        dataset_create::Layout::Compact => Err(IndexError::Layout {
            layout: "compact, in the header of its object",
            instead: "store it contiguous: h5repack -l CONTI",
        }),
        dataset_create::Layout::Virtual => Err(IndexError::Layout {
            layout: "virtual, a view of others",
            instead: "give the datasets that it shows, or copy it with h5repack",
        }),
    }
}

fn contiguous(dataset: &Dataset, plist: &DatasetCreate) -> Result<Layout, IndexError> {
    if !plist.get_external().map_err(IndexError::Library)?.is_empty() {
        return Err(IndexError::Layout {
            layout: "stored in external files",
            instead: "give those as raw records, or copy it with h5repack -l CONTI",
        });
    }
    let offset_bytes = dataset.offset().ok_or(IndexError::Unwritten)?;
    Ok(Layout::Contiguous { offset_bytes })
}

fn chunked(file: &File, dataset: &Dataset, plist: &DatasetCreate) -> Result<Layout, IndexError> {
    let chunk = plist.get_chunk().map_err(IndexError::Library)?.unwrap_or_default();
    let filters = plist.get_filters().map_err(IndexError::Library)?;
    let before =
        if hdf5_metno::library_version() < COUNTS_FROM_FILE_START { file.userblock() } else { 0 };
    let mut chunks = chunks(dataset)?;
    for chunk in &mut chunks {
        chunk.offset_bytes = chunk.offset_bytes.checked_add(before).ok_or(IndexError::Unwritten)?;
    }
    // libhdf5 lists them in the order of its own index.
    chunks.sort_by(|left, right| left.coordinates.cmp(&right.coordinates));
    Ok(Layout::Chunked {
        chunk: chunk.into_iter().map(|len| len as u64).collect(),
        filters: filters.iter().map(|filter| format!("{filter:?}")).collect(),
        chunks,
    })
}

#[cfg(goes_through_chunks)]
fn chunks(dataset: &Dataset) -> Result<Vec<Chunk>, IndexError> {
    let mut chunks = Vec::new();
    let visited = dataset.chunks_visit(|found| {
        chunks.push(Chunk {
            coordinates: found.offset.to_vec(),
            offset_bytes: found.addr,
            stored_bytes: found.size,
            filter_mask: found.filter_mask,
        });
        0
    });
    visited.map_err(IndexError::Library)?;
    Ok(chunks)
}

/// Reads one chunk after the other; for each libhdf5 iterates over those before it.
#[cfg(not(goes_through_chunks))]
fn chunks(dataset: &Dataset) -> Result<Vec<Chunk>, IndexError> {
    let count = dataset.num_chunks().ok_or(IndexError::Unwritten)?;
    let chunk = |index| {
        let found = dataset.chunk_info(index).ok_or(IndexError::Unwritten)?;
        Ok(Chunk {
            coordinates: found.offset,
            offset_bytes: found.addr,
            stored_bytes: found.size,
            filter_mask: found.filter_mask,
        })
    };
    (0..count).map(chunk).collect()
}
