//! MDS, the format of MosaicML Streaming: shards of samples, and an `index.json` that lists them.
//!
//! A shard is a table of offsets, the configuration it was written with, and the samples. A sample is
//! what `MDSReader.get_sample_data` returns: the sizes of the columns that have no fixed one, then
//! the columns. Shards that are compressed have no samples that could be read alone.
//!
//! 1. [`ranges`] fails unless shard and index agree in the number of samples and bytes.
//! 2. The samples lie one after the other and the last ends with the shard.
//! 3. A shard's name leads to a file below the folder of the index.
//!
//! Source: `streaming/base/format/mds/{reader,writer}.py` of mosaicml-streaming 0.13.

mod hashes;
mod index_file;
mod label;

pub use hashes::{Checked, check};
pub use index_file::shards;
pub use label::{LabelColumn, labels};

use super::{FormatError, Range, ReadAt, offset_table};

/// A file of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its name, relative to the folder of the index; may have folders.
    pub basename: String,
    /// Its size, by the index.
    pub bytes: u64,
    /// How many samples it has, by the index.
    pub samples: u32,
    /// The same as a compressed file, if it was written so.
    pub compressed: Option<Compressed>,
    /// Its hashes by their names, as the index has them: hexadecimal.
    pub hashes: Vec<(String, String)>,
    /// The column that is the class of a sample, if there is one.
    pub label: Option<LabelColumn>,
}

/// The compressed form of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compressed {
    /// Its name, relative to the folder of the index.
    pub basename: String,
    /// How it is compressed, such as `zstd:7`.
    pub algorithm: String,
}

impl Shard {
    /// What to say if the folder has no [`Self::basename`] but the compressed form of it.
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

/// Where the samples of a shard lie, in their order.
///
/// # Errors
///
/// [`FormatError::Truncated`] and [`FormatError::Malformed`] if the shard is not the one that the
/// index means, or is damaged.
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
