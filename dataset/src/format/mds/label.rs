//! Finds the class of a sample in its columns.
//!
//! A sample stores columns of a fixed size without their size, and the sizes of the others at its
//! head, so the position of a column follows from head and index.

use super::{FormatError, Range, ReadAt, Shard};
use crate::format::read_ahead::ReadAhead;

/// Names of the column; the first one that exists is used.
const NAMES: [&str; 4] = ["class", "label", "y", "target"];
/// Bytes of a size at the head of a sample.
const SIZE_BYTES: u64 = 4;

/// The column of integers that is the class of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelColumn {
    /// Sizes of the columns before it; `None` for a size that is at the head.
    before: Vec<Option<u64>>,
    /// Number of sizes at the head of a sample.
    sizes_at_head: u64,
    integer: Integer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Integer {
    bytes: u64,
    signed: bool,
}

impl Integer {
    fn from_encoding(encoding: &str) -> Option<Self> {
        let (bytes, signed) = match encoding {
            "int" | "int64" => (8, true),
            "int32" => (4, true),
            "int16" => (2, true),
            "int8" => (1, true),
            "uint64" => (8, false),
            "uint32" => (4, false),
            "uint16" => (2, false),
            "uint8" => (1, false),
            _ => return None,
        };
        Some(Self { bytes, signed })
    }

    /// The class in little-endian bytes, if it is in the range of classes.
    fn class(self, bytes: &[u8]) -> Option<u32> {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let negative = self.signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let class = u32::try_from(u64::from_le_bytes(word)).ok();
        class.filter(|class| !negative && *class < u32::MAX)
    }
}

/// Finds the class column among the columns of a shard.
pub(super) fn column(
    names: &[String],
    encodings: &[String],
    sizes: &[Option<u64>],
) -> Option<LabelColumn> {
    let sizes = sizes.iter().map(|size| size.filter(|size| *size > 0)).collect::<Vec<_>>();
    NAMES.iter().find_map(|wanted| {
        let column = names.iter().position(|name| name == wanted)?;
        let integer = Integer::from_encoding(&encodings[column])?;
        (sizes[column] == Some(integer.bytes)).then(|| LabelColumn {
            before: sizes[..column].to_vec(),
            sizes_at_head: sizes.iter().filter(|size| size.is_none()).count() as u64,
            integer,
        })
    })
}

/// Reads the class of every sample of a shard into `ranges`, the ranges of the shard.
///
/// They stay without label if the shard has no such column, or one of the classes is negative or
/// too large.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the columns of a sample do not fit into it.
pub fn labels(object: &dyn ReadAt, shard: &Shard, ranges: &mut [Range]) -> Result<(), FormatError> {
    let Some(column) = &shard.label else { return Ok(()) };
    let mut ahead = ReadAhead::new(object);
    let mut classes = Vec::new();
    for range in &*ranges {
        match class(&mut ahead, column, range)? {
            Some(class) => classes.push(class),
            None => return Ok(()),
        }
    }
    for (range, class) in ranges.iter_mut().zip(classes) {
        range.label = Some(class);
    }
    Ok(())
}

fn class(
    ahead: &mut ReadAhead<'_>,
    column: &LabelColumn,
    range: &Range,
) -> Result<Option<u32>, FormatError> {
    let sample_end = range.offset.saturating_add(range.len);
    let mut start = column.sizes_at_head.checked_mul(SIZE_BYTES);
    let mut size_at = range.offset;
    for size in &column.before {
        let size = match size {
            Some(size) => *size,
            None if sample_end < size_at.saturating_add(SIZE_BYTES) => return Err(misfit(range)),
            None => {
                let size = u32::from_le_bytes(ahead.array(size_at)?);
                size_at += SIZE_BYTES;
                size.into()
            }
        };
        start = start.and_then(|start| start.checked_add(size));
    }
    let end = start.and_then(|start| start.checked_add(column.integer.bytes));
    let (Some(start), Some(_)) = (start, end.filter(|end| *end <= range.len)) else {
        return Err(misfit(range));
    };
    let len = usize::try_from(column.integer.bytes).expect("at most 8");
    Ok(column.integer.class(ahead.bytes(range.offset + start, len)?))
}

fn misfit(range: &Range) -> FormatError {
    FormatError::Malformed {
        what: "a sample",
        at: range.offset,
        found: format!("{} bytes long, too short for its columns", range.len),
        right: "shard and index.json must be of one dataset, and whole",
    }
}
