//! Reads `index.json`.

use std::num::NonZeroU64;

use serde::Deserialize;
use serde_json::Value;
use tierfeed_transform::container::Column;

use super::{Chunk, Content, Index, leaves};
use crate::format::{
    FormatError,
    shard_index::{Names, parse, wrong},
};

const RIGHT: &str = "litdata.optimize writes what is right";

/// The types with the codes `no_header_tensor:N`, `N` from 0; each ends with its bytes.
const TENSOR_TYPES: [&str; 21] = [
    "<f4", "<f4", "<f8", "<f8", "<c8", "<c8", "<c16", "<c16", "<f2", "<f2", "<V2", "|u1", "|i1",
    "<i2", "<i2", "<i4", "<i4", "<i8", "<i8", "|b1", "<u2",
];
/// The types with the codes `no_header_numpy:N`, `N` from 0; each ends with its bytes.
const NUMPY_TYPES: [&str; 14] = [
    "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16",
    "|b1",
];

#[derive(Deserialize)]
struct IndexFile {
    chunks: Vec<ChunkFile>,
    config: ConfigFile,
}

#[derive(Deserialize)]
struct ChunkFile {
    filename: String,
    chunk_bytes: u64,
    chunk_size: u32,
    #[serde(default)]
    dim: Option<u64>,
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    compression: Option<String>,
    #[serde(default)]
    encryption: Option<Value>,
    #[serde(default)]
    item_loader: Option<String>,
    #[serde(default)]
    data_format: Option<Vec<String>>,
    #[serde(default)]
    data_spec: Option<Value>,
}

/// Parses the index of a dataset.
///
/// # Errors
///
/// [`FormatError::Index`] with the invalid key; [`FormatError::Unsupported`] if the chunks are
/// compressed, encrypted, or of a kind whose samples cannot be read one by one.
pub fn index(index_json: &[u8]) -> Result<Index, FormatError> {
    let file: IndexFile = parse(index_json, RIGHT)?;
    let content = content(&file.config)?;
    let mut names = Names::default();
    let mut chunks = Vec::new();
    for (number, chunk) in file.chunks.into_iter().enumerate() {
        names.take(&chunk.filename, format!("chunks[{number}].filename"))?;
        chunks.push(Chunk {
            filename: chunk.filename,
            items: chunk.chunk_size,
            bytes: chunk.chunk_bytes,
            tokens: chunk.dim,
        });
    }
    let leaves = leaves_of(&file.config).filter(|_| content == Content::Items);
    Ok(Index { chunks, content, leaves })
}

fn leaves_of(config: &ConfigFile) -> Option<Vec<Column>> {
    let names = leaves::names(config.data_spec.as_ref()?.as_str()?)?;
    leaves::columns(names, config.data_format.as_deref()?)
}

/// The type that the code of a leaf names, in NumPy's spelling.
#[must_use]
pub fn type_of(code: &str) -> Option<&'static str> {
    let (kind, number) = code.split_once(':')?;
    let number: usize = number.parse().ok()?;
    match kind {
        "no_header_tensor" => TENSOR_TYPES.get(number).copied(),
        "no_header_numpy" => NUMPY_TYPES.get(number).copied(),
        _ => None,
    }
}

fn content(config: &ConfigFile) -> Result<Content, FormatError> {
    if let Some(compression) = &config.compression {
        return Err(FormatError::Unsupported {
            what: format!("the chunks are compressed ({compression}), items cannot be read alone"),
            instead: "write the dataset without `compression`",
        });
    }
    if config.encryption.is_some() {
        return Err(FormatError::Unsupported {
            what: "the chunks are encrypted".into(),
            instead: "write the dataset without `encryption`",
        });
    }
    match config.item_loader.as_deref() {
        None | Some("PyTreeLoader") => Ok(Content::Items),
        Some("TokensLoader") => tokens(config),
        Some("ParquetLoader") => Err(FormatError::Unsupported {
            what: "the chunks are Parquet files".into(),
            instead: "say `format: parquet`",
        }),
        Some(loader) => Err(FormatError::Unsupported {
            what: format!("the chunks are for the loader {loader}"),
            instead: "write the dataset with PyTreeLoader or TokensLoader",
        }),
    }
}

fn tokens(config: &ConfigFile) -> Result<Content, FormatError> {
    let format = config.data_format.as_deref().and_then(<[_]>::first).map_or("", String::as_str);
    let dtype = type_of(format);
    let bytes = dtype.and_then(|it| it[2..].parse().ok()).and_then(NonZeroU64::new);
    let content = dtype.zip(bytes);
    let content = content.map(|(dtype, token_bytes)| Content::Tokens { token_bytes, dtype });
    content.ok_or_else(|| {
        let right = "TokensLoader needs tensors or arrays of one dimension and a known type";
        wrong("config.data_format[0]".into(), format!("{format:?}"), right)
    })
}
