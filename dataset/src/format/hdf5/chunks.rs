//! Checks that chunks tile a dataset, and lie in the object.

use super::{Chunk, Chunks, bytes_of, document};
use crate::format::{
    FormatError, Range, ReadAt,
    piece::{end_of, malformed, refuse_overlap},
};

const WHAT: &str = "a chunk";

/// HDF5's pipelines have at most 32 filters, one for each bit of the mask.
const FILTERS_MAX: usize = 32;

pub(super) fn checked(
    object: &dyn ReadAt,
    shape: &[u64],
    item_bytes: u64,
    chunk: Vec<u64>,
    filters: Vec<String>,
    found: Vec<document::Chunk>,
) -> Result<Chunks, FormatError> {
    if chunk.len() != shape.len() || chunk.contains(&0) || filters.len() > FILTERS_MAX {
        let found = format!("{chunk:?} for {shape:?}, with {} filters", filters.len());
        return Err(malformed("the shape of a chunk", 0, found, "as many axes, none empty"));
    }
    let tiles = tiles(shape, &chunk);
    refuse_missing(&tiles, found.len() as u64)?;
    let chunk_bytes = bytes_of(item_bytes, &chunk)?;
    let mut filtered = 0;
    let mut chunks = Vec::with_capacity(found.len());
    for (number, it) in (0..).zip(found) {
        let at = it.offset_bytes;
        let expected = coordinates(number, &tiles, &chunk);
        if it.coordinates != expected {
            let found = format!("for {:?}", it.coordinates);
            return Err(malformed(WHAT, at, found, "chunks tile the dataset in row-major order"));
        }
        let is_filtered = applies(it.filter_mask, filters.len());
        if !is_filtered && it.stored_bytes != chunk_bytes {
            let found = format!("{} bytes long, without a filter", it.stored_bytes);
            return Err(malformed(WHAT, at, found, "it is as long as its elements"));
        }
        if it.stored_bytes == 0 {
            let right = "what filters leave of a chunk has bytes";
            return Err(malformed(WHAT, at, "0 bytes long", right));
        }
        end_of(object, WHAT, at, it.stored_bytes)?;
        filtered += u64::from(is_filtered);
        let range = Range::plain(at, it.stored_bytes);
        chunks.push(Chunk { range, coordinates: expected, filter_mask: it.filter_mask });
    }
    refuse_overlap(WHAT, chunks.iter().map(|chunk| &chunk.range))?;
    Ok(Chunks { shape: chunk, filters, filtered, chunks })
}

fn applies(filter_mask: u32, filters: usize) -> bool {
    (0..filters).any(|filter| filter_mask >> filter & 1 == 0)
}

fn tiles(shape: &[u64], chunk: &[u64]) -> Vec<u64> {
    shape.iter().zip(chunk).map(|(axis, chunk)| axis.div_ceil(*chunk)).collect()
}

fn refuse_missing(tiles: &[u64], found: u64) -> Result<(), FormatError> {
    let expected = tiles.iter().try_fold(1_u64, |product, &axis| product.checked_mul(axis));
    if expected == Some(found) {
        return Ok(());
    }
    let expected = expected.map_or_else(|| "more than 2^64".to_owned(), |it| it.to_string());
    Err(FormatError::Unsupported {
        what: format!("a dataset of which {found} of {expected} chunks were written"),
        instead: "write them all: a chunk that is not there has no bytes to read",
    })
}

/// The coordinates of the first element of chunk `number` in row-major order.
fn coordinates(number: u64, tiles: &[u64], chunk: &[u64]) -> Vec<u64> {
    let mut rest = number;
    let mut coordinates: Vec<u64> = tiles
        .iter()
        .zip(chunk)
        .rev()
        .map(|(&tiles, chunk)| {
            let place = rest % tiles;
            rest /= tiles;
            place * chunk
        })
        .collect();
    coordinates.reverse();
    coordinates
}
