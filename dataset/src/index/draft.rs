//! An index under construction: objects in the order of sample ids, and their samples.

use serde::{Deserialize, Serialize};
use tierfeed_transform::container::Column;

use crate::{
    format::{Encoding, FormatError, Range, Stated, objects::Classes},
    source::Listing,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    /// The source as text: an absolute path or a URL.
    pub(super) root: Vec<u8>,
    pub(super) kind: SourceKind,
    pub(super) format: String,
    pub(super) contents: Contents,
    pub(super) classes: Classes,
    /// In the order of sample ids; a directory may come several times.
    pub(super) listing: Listing,
    pub(super) samples: Samples,
}

/// The statements of the objects of a dataset, or of an index beside them, about samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Contents {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) columns: Option<Vec<Column>>,
    /// The content of samples whose bytes do not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stated: Option<Stated>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceKind {
    FileSystem,
    Bucket,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Samples {
    /// Each object is a sample.
    #[default]
    Objects,
    Records(RecordTable),
    /// Each object has samples at arbitrary positions.
    Ranges(RangeTable),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RecordTable {
    pub(super) record_bytes: u64,
    pub(super) counts: Vec<u32>,
    /// Start of the first record of each object.
    pub(super) starts: Vec<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RangeTable {
    pub(super) counts: Vec<u32>,
    /// For each sample its start in its object and its stored bytes.
    pub(super) places: Vec<(u64, u64)>,
    /// For each sample, or empty if all are plain.
    pub(super) encodings: Vec<Encoding>,
    /// For each sample, or empty if none has one; [`NO_LABEL`] for none.
    pub(super) labels: Vec<i64>,
}

/// The label of a sample without one, if other samples have labels.
pub(super) const NO_LABEL: i64 = i64::MIN;

impl RangeTable {
    /// Appends the samples of the next object, which is `size` bytes long.
    pub(super) fn push_object(&mut self, ranges: &[Range], size: u64) -> Result<(), FormatError> {
        let samples = ranges.len() as u64;
        let too_many = |_| FormatError::TooManySamples { samples };
        self.counts.push(u32::try_from(ranges.len()).map_err(too_many)?);
        self.places.reserve(ranges.len());
        for Range { offset, len, encoding, label } in ranges.iter().copied() {
            let needed = offset.saturating_add(len);
            if needed > size {
                let what = "a sample";
                return Err(FormatError::Truncated { what, at: offset, needed, found: size });
            }
            let before = self.places.len();
            self.places.push((offset, len));
            append(&mut self.encodings, before, encoding, Encoding::Plain);
            append(&mut self.labels, before, label.unwrap_or(NO_LABEL), NO_LABEL);
        }
        Ok(())
    }
}

/// Appends to a column that stays empty while all its `before` values are the default.
fn append<T: Copy + PartialEq>(column: &mut Vec<T>, before: usize, value: T, usual: T) {
    if column.is_empty() {
        if value == usual {
            return;
        }
        column.resize(before, usual);
    }
    column.push(value);
}
