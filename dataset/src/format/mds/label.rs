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
    number: Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Binary {
        bytes: u64,
        is_signed: bool,
    },
    /// As text, whose length is at the head.
    Text,
}

impl Number {
    fn from_encoding(encoding: &str) -> Option<Self> {
        let (bytes, is_signed) = match encoding {
            "int" | "int64" => (8, true),
            "int32" => (4, true),
            "int16" => (2, true),
            "int8" => (1, true),
            "uint64" => (8, false),
            "uint32" => (4, false),
            "uint16" => (2, false),
            "uint8" => (1, false),
            "str_int" => return Some(Self::Text),
            _ => return None,
        };
        Some(Self::Binary { bytes, is_signed })
    }

    fn size(self) -> Option<u64> {
        match self {
            Self::Binary { bytes, .. } => Some(bytes),
            Self::Text => None,
        }
    }

    /// The class in the bytes of the column, if a label can be so large.
    fn class(self, bytes: &[u8]) -> Option<i64> {
        let Self::Binary { is_signed, .. } = self else { return label::of_text(bytes) };
        let is_negative = is_signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut word = [if is_negative { 0xFF } else { 0 }; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let class = i64::from_le_bytes(word);
        (is_signed || class >= 0).then_some(class).filter(|class| *class != i64::MIN)
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
        let number = Number::from_encoding(&encodings[column])?;
        (sizes[column] == number.size()).then(|| LabelColumn {
            before: sizes[..column].to_vec(),
            sizes_at_head: sizes.iter().filter(|size| size.is_none()).count() as u64,
            number,
        })
    })
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
    let len = size_of(column.number.size())?;
    let end = start.and_then(|start| start.checked_add(len));
    let (Some(start), Some(_)) = (start, end.filter(|end| *end <= range.len)) else {
        return Err(misfit(range));
    };
    let Some(len) = usize::try_from(len).ok().filter(|len| *len <= TEXT_BYTES_MAX) else {
        return Ok(None);
    };
    Ok(column.number.class(ahead.bytes(range.offset + start, len)?))
}

fn misfit(range: &Range) -> FormatError {
    FormatError::Malformed {
        what: "a sample",
        at: range.offset,
        found: format!("{} bytes long, too short for its columns", range.len),
        right: "shard and index.json must be of one dataset, and whole",
    }
}
