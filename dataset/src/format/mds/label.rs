//! Finds the class of a sample in its columns.
//!
//! A sample stores columns of a fixed size without their size, and the sizes of the others at its
//! head, so the position of a column follows from head and index.

use super::{FormatError, Range, ReadAt, Shard};
use crate::format::{label, read_ahead::ReadAhead};

/// Names of the column; the first one that exists is used.
const NAMES: [&str; 4] = ["class", "label", "y", "target"];
const SIZE_BYTES: u64 = 4;
/// Longest text that may be a class.
const TEXT_BYTES_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelColumn {
    /// Sizes of the columns before it; `None` for a size that is at the head.
    before: Vec<Option<u64>>,
    sizes_at_head: u64,
    encoding: String,
    /// `None` for text, whose length is at the head.
    size: Option<u64>,
}

impl LabelColumn {
    /// The class in the bytes of the column, if a label can be so large.
    fn class(&self, bytes: &[u8]) -> Option<i64> {
        let is_too_large = |class: i64| self.encoding == "uint64" && class < 0;
        integer(&self.encoding, bytes).filter(|it| !is_too_large(*it) && *it != i64::MIN)
    }
}

pub(super) fn column(
    names: &[String],
    encodings: &[String],
    sizes: &[Option<u64>],
) -> Option<LabelColumn> {
    let sizes = sizes.iter().map(|size| size.filter(|size| *size > 0)).collect::<Vec<_>>();
    NAMES.iter().find_map(|wanted| {
        let column = names.iter().position(|name| name == wanted)?;
        let encoding = encodings[column].clone();
        let size = match encoding.as_str() {
            "int" | "int64" | "uint64" => Some(8),
            "int32" | "uint32" => Some(4),
            "int16" | "uint16" => Some(2),
            "int8" | "uint8" => Some(1),
            "str_int" => None,
            _ => return None,
        };
        (sizes[column] == size).then(|| LabelColumn {
            before: sizes[..column].to_vec(),
            sizes_at_head: sizes.iter().filter(|size| size.is_none()).count() as u64,
            encoding,
            size,
        })
    })
}

/// An integer in an encoding of MDS. An unsigned one of 64 bits keeps its bits.
pub(in crate::format) fn integer(encoding: &str, bytes: &[u8]) -> Option<i64> {
    match encoding {
        "str_int" => label::of_text(bytes),
        "int" | "int64" | "uint64" => bytes.try_into().ok().map(i64::from_le_bytes),
        "int32" => bytes.try_into().ok().map(|it| i32::from_le_bytes(it).into()),
        "int16" => bytes.try_into().ok().map(|it| i16::from_le_bytes(it).into()),
        "int8" => bytes.try_into().ok().map(|it| i8::from_le_bytes(it).into()),
        "uint32" => bytes.try_into().ok().map(|it| u32::from_le_bytes(it).into()),
        "uint16" => bytes.try_into().ok().map(|it| u16::from_le_bytes(it).into()),
        "uint8" => bytes.try_into().ok().map(|it| u8::from_le_bytes(it).into()),
        _ => None,
    }
}

/// Reads the class of every sample of a shard into `ranges`, the ranges of the shard.
///
/// A sample stays without label if the shard has no such column, or its class is too large or no number.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the columns of a sample do not fit into it.
pub fn labels(object: &dyn ReadAt, shard: &Shard, ranges: &mut [Range]) -> Result<(), FormatError> {
    let Some(column) = &shard.label else { return Ok(()) };
    let mut ahead = ReadAhead::new(object);
    for range in ranges {
        range.label = class(&mut ahead, column, range)?;
    }
    Ok(())
}

fn class(
    ahead: &mut ReadAhead<'_>,
    column: &LabelColumn,
    range: &Range,
) -> Result<Option<i64>, FormatError> {
    let sample_end = range.offset.saturating_add(range.len);
    let mut start = column.sizes_at_head.checked_mul(SIZE_BYTES);
    let mut size_at = range.offset;
    let mut size_of = |size: Option<u64>| match size {
        Some(size) => Ok(size),
        None if sample_end < size_at.saturating_add(SIZE_BYTES) => Err(misfit(range)),
        None => {
            let size = u32::from_le_bytes(ahead.array(size_at)?);
            size_at += SIZE_BYTES;
            Ok(u64::from(size))
        }
    };
    for size in &column.before {
        let size = size_of(*size)?;
        start = start.and_then(|start| start.checked_add(size));
    }
    let len = size_of(column.size)?;
    let end = start.and_then(|start| start.checked_add(len));
    let (Some(start), Some(_)) = (start, end.filter(|end| *end <= range.len)) else {
        return Err(misfit(range));
    };
    let Some(len) = usize::try_from(len).ok().filter(|len| *len <= TEXT_BYTES_MAX) else {
        return Ok(None);
    };
    Ok(column.class(ahead.bytes(range.offset + start, len)?))
}

fn misfit(range: &Range) -> FormatError {
    FormatError::Malformed {
        what: "a sample",
        at: range.offset,
        found: format!("{} bytes long, too short for its columns", range.len),
        right: "shard and index.json must be of one dataset, and whole",
    }
}
