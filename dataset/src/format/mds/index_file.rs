//! Reads `index.json`, version 2.

use std::collections::BTreeMap;

use serde::Deserialize;
use tierfeed_transform::container::Column;

use super::{Compressed, Shard, label};
use crate::format::{
    FormatError,
    shard_index::{Names, parse, wrong},
};

const RIGHT: &str = "MDSWriter writes what is right (version 2)";

#[derive(Deserialize)]
struct IndexFile {
    version: u64,
    shards: Vec<ShardFile>,
}

#[derive(Deserialize)]
struct ShardFile {
    version: u64,
    format: String,
    #[serde(default)]
    compression: Option<String>,
    #[serde(default)]
    raw_data: Option<BytesFile>,
    #[serde(default)]
    zip_data: Option<BytesFile>,
    #[serde(default)]
    samples: u32,
    #[serde(default)]
    column_names: Vec<String>,
    #[serde(default)]
    column_encodings: Vec<String>,
    #[serde(default)]
    column_sizes: Vec<Option<u64>>,
}

#[derive(Deserialize)]
struct BytesFile {
    basename: String,
    bytes: u64,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

/// Parses the shards of a dataset, in the order of its index.
///
/// # Errors
///
/// [`FormatError::Index`] with the invalid key; [`FormatError::Unsupported`] if the shards have
/// another format than MDS.
pub fn shards(index_json: &[u8]) -> Result<Vec<Shard>, FormatError> {
    let file: IndexFile = parse(index_json, RIGHT)?;
    if file.version != 2 {
        return Err(wrong("version".into(), file.version.to_string(), "only version 2 is known"));
    }
    let mut names = Names::default();
    let shards = file.shards.into_iter().enumerate();
    shards.map(|(number, shard)| validated(shard, number, &mut names)).collect()
}

fn validated(file: ShardFile, number: usize, names: &mut Names) -> Result<Shard, FormatError> {
    let key = |name: &str| format!("shards[{number}].{name}");
    if file.format != "mds" {
        return Err(FormatError::Unsupported {
            what: format!("{} is {:?}", key("format"), file.format),
            instead: "write the dataset with MDSWriter; JSON and CSV have no index of samples here",
        });
    }
    if file.version != 2 {
        return Err(wrong(key("version"), file.version.to_string(), "only version 2 is known"));
    }
    expect_columns(&file, key("column_names"))?;
    let columns = columns(&file);
    let label = label::column(&file.column_names, &file.column_encodings, &file.column_sizes);
    let raw = file.raw_data.ok_or_else(|| wrong(key("raw_data"), "missing", RIGHT))?;
    names.take(&raw.basename, key("raw_data.basename"))?;
    let compressed = file.zip_data.map(|zip| {
        names.take(&zip.basename, key("zip_data.basename"))?;
        let algorithm = file.compression.unwrap_or_else(|| "unnamed".into());
        Ok::<_, FormatError>(Compressed { basename: zip.basename, algorithm })
    });
    Ok(Shard {
        basename: raw.basename,
        bytes: raw.bytes,
        samples: file.samples,
        compressed: compressed.transpose()?,
        hashes: raw.hashes.into_iter().collect(),
        columns,
        label,
    })
}

/// The three lists have one length.
fn columns(file: &ShardFile) -> Vec<Column> {
    let encodings = file.column_encodings.iter().zip(&file.column_sizes);
    let columns = file.column_names.iter().zip(encodings);
    let column = |(name, (encoding, size)): (&String, (&String, &Option<u64>))| Column {
        name: name.clone(),
        encoding: encoding.clone(),
        size: size.filter(|size| *size > 0),
    };
    columns.map(column).collect()
}

fn expect_columns(file: &ShardFile, place: String) -> Result<(), FormatError> {
    let names = file.column_names.len();
    let [encodings, sizes] = [file.column_encodings.len(), file.column_sizes.len()];
    if [encodings, sizes] == [names; 2] {
        return Ok(());
    }
    let found = format!("{names} long, column_encodings {encodings}, column_sizes {sizes}");
    Err(wrong(place, found, "the three must have one entry per column"))
}
