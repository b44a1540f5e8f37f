//! LitData: chunks of items, or of tokens, and an `index.json` that lists them.
//!
//! A chunk is a table of offsets and the items. A sample is what LitData's `PyTreeLoader` decodes:
//! the sizes of an item's leaves and the leaves. Chunks of tokens, which its `TokensLoader` reads,
//! are read as blocks of the configured number of tokens, across the borders of the items; the
//! remaining tokens at the end of a chunk belong to no block.
//!
//! 1. [`ranges`] and [`token_blocks`] fail unless chunk and index agree in the number of items.
//! 2. The items are consecutive. After the last one the chunk ends, or has the copy of its rows
//!    that newer writers append.
//! 3. The name of a chunk refers to a file below the folder of the index.
//!
//! Source: `litdata/streaming/{writer,item_loader}.py` of litdata 0.2.76.

mod index_file;
mod leaves;

use std::num::NonZeroU64;

pub use index_file::{index, type_of};
use tierfeed_transform::container::Column;

use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Parsed, Range, ReadAt, Records, Stated, Taken,
    Told,
    keys::{Given, KeyError},
    objects::{Candidates, Objects, ObjectsError, Shards},
    offset_table,
    piece::{end_of, malformed},
    raw::SEQUENCE_LENGTH,
    shard_index::{self, has_index},
};

/// The end of a chunk that has its rows once more, or only, as an Arrow table.
const ROWS_MAGIC: [u8; 8] = *b"LDARW01\0";
/// Bytes of the number of items, and of each offset.
const WORD_BYTES: u64 = 4;

pub(super) static KIND: Kind = Kind {
    told: Told::Together(|names| {
        let is_chunk = |name: &&Vec<u8>| name.starts_with(b"chunk-") && name.ends_with(b".bin");
        if has_index(names) { names.iter().filter(is_chunk).count() } else { 0 }
    }),
    keys: &[&SEQUENCE_LENGTH],
    taken: Taken::Listed,
    ..Kind::new("litdata", of_keys, |_| true, "the chunks in its index.json")
};

fn of_keys(given: &Given<'_>) -> Result<Format, KeyError> {
    Ok(Format::LitData(LitData { sequence_length: given.count(&SEQUENCE_LENGTH)? }))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LitData {
    /// For chunks of tokens: number of tokens of a sample.
    pub sequence_length: Option<NonZeroU64>,
}

impl DatasetFormat for LitData {
    fn settings(&self) -> String {
        self.sequence_length.map_or_else(String::new, |length| format!("sequences of {length}"))
    }

    fn looked_for(&self) -> Option<&'static str> {
        self.sequence_length
            .map(|_| "chunks in its index.json that have as many tokens as `sequence_length`")
    }

    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        let sequence_length = self.sequence_length;
        let chunks = |text: &[u8]| Ok(Chunks { index: index(text)?, sequence_length });
        shard_index::choose(&found, chunks)
    }
}

#[derive(Debug)]
struct Chunks {
    index: Index,
    sequence_length: Option<NonZeroU64>,
}

impl Shards for Chunks {
    fn paths(&self) -> Vec<&str> {
        self.index.chunks.iter().map(|chunk| chunk.filename.as_str()).collect()
    }

    fn columns(&self) -> Option<&[Column]> {
        self.index.leaves.as_deref()
    }

    fn parse(&self, object: &dyn ReadAt, number: usize) -> Result<Parsed, FormatError> {
        let chunk = &self.index.chunks[number];
        match (self.index.content, self.sequence_length) {
            (Content::Items, None) => {
                ranges(object, chunk).map(|ranges| Found::Ranges(ranges).into())
            }
            (Content::Tokens { token_bytes, dtype }, Some(length)) => {
                let blocks = token_blocks(object, chunk, token_bytes, length)?;
                Ok(Parsed::new(Found::Records(blocks), Some(Stated::tokens(dtype))))
            }
            (Content::Items, Some(_)) => Err(FormatError::Unsupported {
                what: "the chunks hold items and no tokens".to_owned(),
                instead: "leave `sequence_length` out",
            }),
            (Content::Tokens { .. }, None) => Err(FormatError::Unsupported {
                what: "the chunks hold tokens".to_owned(),
                instead: "say with `sequence_length` how many are a sample",
            }),
        }
    }
}

/// The content of `index.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The chunks, in the order of the dataset.
    pub chunks: Vec<Chunk>,
    pub content: Content,
    /// The leaves of an item, in the order in which they lie; `None` for tokens, or if the index does not say
    /// it.
    pub leaves: Option<Vec<Column>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The chunks hold items, for [`ranges`].
    Items,
    /// The chunks hold tokens, for [`token_blocks`].
    Tokens {
        token_bytes: NonZeroU64,
        /// The type of a token, in NumPy's spelling.
        dtype: &'static str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its path, relative to the folder of the index.
    pub filename: String,
    /// Number of items according to the index.
    pub items: u32,
    /// Size in bytes according to the index; older writers do not count the table of offsets.
    pub bytes: u64,
    pub tokens: Option<u64>,
}

const ONE_DATASET: &str = "chunk and index.json must be of one dataset, and whole";

/// The positions of the items of a chunk, in order.
///
/// # Errors
///
/// [`FormatError::Truncated`] and [`FormatError::Malformed`] if the chunk is not the one in the
/// index, or is damaged; [`FormatError::Unsupported`] if its rows exist only as an Arrow table.
pub fn ranges(object: &dyn ReadAt, chunk: &Chunk) -> Result<Vec<Range>, FormatError> {
    end_of(object, "the chunk", 0, chunk.bytes)?;
    let table = offset_table::read(object, chunk.items)?;
    if table.end == object.len() {
        return Ok(table.ranges);
    }
    if !ends_with_rows(object, table.end)? {
        let found = format!("byte {}, but the chunk ends at byte {}", table.end, object.len());
        return Err(malformed("the end of the last item", table.end, found, ONE_DATASET));
    }
    if table.ranges.iter().all(|range| range.len == 0) {
        return Err(FormatError::Unsupported {
            what: "the chunk holds its rows as one Arrow table, no item can be read alone".into(),
            instead: "write it again with a function that returns a tuple or a list instead of a dictionary, \
                      such as (image, label), or write the dataset as Parquet",
        });
    }
    Ok(table.ranges)
}

/// The blocks of `block_tokens` tokens of a chunk.
///
/// # Errors
///
/// As [`ranges`]; [`FormatError::Index`] if the index has no number of tokens for the chunk.
pub fn token_blocks(
    object: &dyn ReadAt,
    chunk: &Chunk,
    token_bytes: NonZeroU64,
    block_tokens: NonZeroU64,
) -> Result<Records, FormatError> {
    end_of(object, "the chunk", 0, chunk.bytes)?;
    let tokens = chunk.tokens.ok_or_else(|| FormatError::Index {
        place: format!("the chunk {}", chunk.filename),
        found: "without `dim`".into(),
        right: "write the dataset with TokensLoader",
    })?;
    let offset = (u64::from(chunk.items) + 2) * WORD_BYTES;
    let first_to_last = offset_table::bounds(object, chunk.items)?;
    let bytes = tokens.checked_mul(token_bytes.get());
    let end = bytes.and_then(|bytes| offset.checked_add(bytes));
    if first_to_last != (offset..object.len()) || end != Some(object.len()) {
        let found = format!(
            "the end of {tokens} tokens of {token_bytes} bytes from byte {offset} on, but the \
                 chunk ends at byte {}",
            object.len()
        );
        return Err(malformed("the last token", first_to_last.end, found, ONE_DATASET));
    }
    let record_bytes = block_tokens.checked_mul(token_bytes).map_or(u64::MAX, NonZeroU64::get);
    Ok(Records { offset, record_bytes, count: tokens / block_tokens })
}

fn ends_with_rows(object: &dyn ReadAt, start: u64) -> Result<bool, FormatError> {
    let mut tail = [0; 12];
    let tail_at = object.len().checked_sub(tail.len() as u64).filter(|at| *at >= start);
    let Some(tail_at) = tail_at else { return Ok(false) };
    object.read_exact_at(&mut tail, tail_at)?;
    let [l0, l1, l2, l3, magic @ ..] = tail;
    Ok(magic == ROWS_MAGIC && u64::from(u32::from_le_bytes([l0, l1, l2, l3])) == tail_at - start)
}
