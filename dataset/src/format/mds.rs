//! MDS, the format of MosaicML Streaming: shards of samples, and an `index.json` that lists them.
//!
//! A shard is a table of offsets, the configuration it was written with, and the samples. A sample
//! is what `MDSReader.get_sample_data` returns: the sizes of the columns without a fixed size, then
//! the columns. Samples of compressed shards cannot be read one by one.
//!
//! 1. [`ranges`] fails unless shard and index agree in the number of samples and bytes.
//! 2. The samples are consecutive and the last ends with the shard.
//! 3. The name of a shard refers to a file below the folder of the index.
//!
//! Source: `streaming/base/format/mds/{reader,writer}.py` of mosaicml-streaming 0.13.

mod columns;
mod hashes;
mod index_file;
mod label;

pub use columns::columns;
pub use hashes::{Checked, check};
pub use index_file::shards;
pub(super) use label::integer;
pub use label::{LabelColumn, labels};

use tierfeed_transform::container::Column;

use super::{
    Checksums, DatasetFormat, Format, FormatError, Found, Kind, Parsed, Range, ReadAt, Taken, Told,
    objects::{Candidates, Objects, ObjectsError, Shards},
    offset_table,
    shard_index::{self, has_index},
};

pub(super) static KIND: Kind = Kind {
    told: Told::Together(|names| {
        let is_shard = |name: &&Vec<u8>| {
            name.starts_with(b"shard.") && name.windows(4).any(|part| part == b".mds")
        };
        if has_index(names) { names.iter().filter(is_shard).count() } else { 0 }
    }),
    taken: Taken::Listed,
    ..Kind::new("mds", |_| Ok(Format::Mds), |_| true, "the shards in its index.json")
};

pub(super) struct Mds;

impl DatasetFormat for Mds {
    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        shard_index::choose(&found, shards)
    }

    fn has_checksums(&self) -> bool {
        true
    }
}

impl Shards for Vec<Shard> {
    fn paths(&self) -> Vec<&str> {
        self.iter().map(|shard| shard.basename.as_str()).collect()
    }

    fn why_missing(&self, number: usize) -> Option<FormatError> {
        self[number].only_compressed()
    }

    fn columns(&self) -> Option<&[Column]> {
        columns_of(self)
    }

    fn parse(&self, object: &dyn ReadAt, number: usize) -> Result<Parsed, FormatError> {
        let mut ranges = ranges(object, &self[number])?;
        labels(object, &self[number], &mut ranges)?;
        Ok(Found::Ranges(ranges).into())
    }

    fn check(&self, object: &dyn ReadAt, number: usize) -> Result<Checksums, FormatError> {
        let checked = check(object, &self[number])?;
        Ok(if checked.verified.is_empty() { Checksums::None } else { Checksums::Hold })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its path, relative to the folder of the index; may contain folders.
    pub basename: String,
    /// Size in bytes according to the index.
    pub bytes: u64,
    /// Number of samples according to the index.
    pub samples: u32,
    pub compressed: Option<Compressed>,
    /// Its hashes by name, hexadecimal, as the index has them.
    pub hashes: Vec<(String, String)>,
    /// Its columns, in the order in which they lie in a sample.
    pub columns: Vec<Column>,
    /// The column that is the class of a sample, if there is one.
    pub label: Option<LabelColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compressed {
    /// Its path, relative to the folder of the index.
    pub basename: String,
    /// The compression, such as `zstd:7`.
    pub algorithm: String,
}

impl Shard {
    /// The error if the folder has the compressed form of the shard and not [`Self::basename`].
    ///
    /// `None` if the shard has no compressed form, so that a file is missing.
    pub fn only_compressed(&self) -> Option<FormatError> {
        let compressed = self.compressed.as_ref()?;
        Some(FormatError::Unsupported {
            what: format!(
                "the shard {} is there only compressed ({})",
                self.basename, compressed.algorithm
            ),
            instead: "decompress the shards beside index.json under their raw names \
                      (StreamingDataset does so with keep_zip), or write them without `compression`",
        })
    }
}

/// The columns of all shards; `None` if they differ.
#[must_use]
pub fn columns_of(shards: &[Shard]) -> Option<&[Column]> {
    let columns = &shards.first()?.columns;
    shards.iter().all(|shard| shard.columns == *columns).then_some(columns)
}

/// The positions of the samples of a shard, in order.
///
/// # Errors
///
/// [`FormatError::Truncated`] and [`FormatError::Malformed`] if the shard is not the one in the
/// index, or is damaged.
pub fn ranges(object: &dyn ReadAt, shard: &Shard) -> Result<Vec<Range>, FormatError> {
    let malformed = |what, at, found| FormatError::Malformed {
        what,
        at,
        found,
        right: "shard and index.json must be of one dataset, and whole",
    };
    if object.len() != shard.bytes {
        let found = format!("byte {}, but byte {} in the index", object.len(), shard.bytes);
        return Err(malformed("the end of the shard", object.len(), found));
    }
    let table = offset_table::read(object, shard.samples)?;
    if table.end != object.len() {
        let found = format!("byte {}, but the shard ends at byte {}", table.end, object.len());
        return Err(malformed("the end of the last sample", table.end, found));
    }
    if let Some(empty) = table.ranges.iter().find(|range| range.len == 0) {
        let found = "empty, which MDSReader takes for missing".to_owned();
        return Err(malformed("a sample", empty.offset, found));
    }
    Ok(table.ranges)
}
