//! The JSON document that the indexer prints.

use serde::Deserialize;

/// The document; fields that a layout does not have are absent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) dataset: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) item_bytes: u64,
    layout: Kind,
    offset_bytes: Option<u64>,
    chunk: Option<Vec<u64>>,
    filters: Option<Vec<String>>,
    chunks: Option<Vec<Chunk>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Contiguous,
    Chunked,
}

#[derive(Debug)]
pub(super) enum Layout {
    Contiguous { offset_bytes: u64 },
    Chunked { chunk: Vec<u64>, filters: Vec<String>, chunks: Vec<Chunk> },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chunk {
    pub(super) coordinates: Vec<u64>,
    pub(super) offset_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) filter_mask: u32,
}

impl Document {
    /// Takes the layout out; `None` if it lacks a field. A tagged enum would need the whole list of
    /// chunks twice in memory.
    pub(super) fn layout(&mut self) -> Option<Layout> {
        Some(match self.layout {
            Kind::Contiguous => Layout::Contiguous { offset_bytes: self.offset_bytes? },
            Kind::Chunked => Layout::Chunked {
                chunk: self.chunk.take()?,
                filters: self.filters.take()?,
                chunks: self.chunks.take()?,
            },
        })
    }
}
