//! The JSON document that the indexer prints.

use serde::Deserialize;

/// The document; fields that a layout does not have are absent. A tagged enum would need the whole list of
/// chunks twice in memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) dataset: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) item_bytes: u64,
    pub(super) layout: Layout,
    pub(super) offset_bytes: Option<u64>,
    pub(super) chunk: Option<Vec<u64>>,
    pub(super) filters: Option<Vec<String>>,
    pub(super) chunks: Option<Vec<Chunk>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Layout {
    Contiguous,
    Chunked,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chunk {
    pub(super) coordinates: Vec<u64>,
    pub(super) offset_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) filter_mask: u32,
}
