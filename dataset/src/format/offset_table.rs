//! The table of offsets at the start of MDS shards and LitData chunks.
//!
//! `u32` number of samples, then for each sample the `u32` offset of its start, then the `u32` end
//! of the last one; all little endian, all counted from the start of the object.

use super::{
    FormatError, Range, ReadAt,
    piece::{end_of, malformed},
    read_ahead::ReadAhead,
};

const WORD_BYTES: u64 = 4;

/// The samples of an object, and the end of the last one.
pub(super) struct Table {
    pub(super) ranges: Vec<Range>,
    pub(super) end: u64,
}

/// Reads the table of an object that has `count` samples according to its index.
pub(super) fn read(object: &dyn ReadAt, count: u32) -> Result<Table, FormatError> {
    let mut ahead = ReadAhead::new(object);
    let mut start = first(&mut ahead, count)?;
    let mut ranges = Vec::new();
    for sample in 0..u64::from(count) {
        let at = (sample + 2) * WORD_BYTES;
        let end = u64::from(word(&mut ahead, at)?);
        let len = end.checked_sub(start);
        let len =
            len.ok_or_else(|| bad_offset(at, end, "no offset is less than that before it"))?;
        end_of(object, "a sample", start, end - start)?;
        ranges.push(Range::plain(start, len));
        start = end;
    }
    Ok(Table { ranges, end: start })
}

/// The start of the first sample and the end of the last one.
pub(super) fn bounds(object: &dyn ReadAt, count: u32) -> Result<std::ops::Range<u64>, FormatError> {
    let mut ahead = ReadAhead::new(object);
    let start = first(&mut ahead, count)?;
    let at = (u64::from(count) + 1) * WORD_BYTES;
    let end = u64::from(word(&mut ahead, at)?);
    if end < start {
        return Err(bad_offset(at, end, "no offset is less than that before it"));
    }
    end_of(object, "a sample", start, end - start)?;
    Ok(start..end)
}

/// The start of the first of `count` samples; also checks that the whole table fits.
fn first(ahead: &mut ReadAhead<'_>, count: u32) -> Result<u64, FormatError> {
    let table_end = (u64::from(count) + 2) * WORD_BYTES;
    let found = ahead.object_len();
    if found < table_end {
        let what = "the table of offsets";
        return Err(FormatError::Truncated { what, at: 0, needed: table_end, found });
    }
    let found = word(ahead, 0)?;
    if found != count {
        let found = format!("{found}, but {count} in the index");
        let right = "object and index must be of one dataset";
        return Err(malformed("the number of samples", 0, found, right));
    }
    let start = u64::from(word(ahead, WORD_BYTES)?);
    if start < table_end {
        let right = "the samples start where the table ends, or later";
        return Err(bad_offset(WORD_BYTES, start, right));
    }
    Ok(start)
}

fn word(ahead: &mut ReadAhead<'_>, at: u64) -> Result<u32, FormatError> {
    Ok(u32::from_le_bytes(ahead.array(at)?))
}

fn bad_offset(at: u64, offset: u64, right: &'static str) -> FormatError {
    malformed("the offset of a sample", at, offset.to_string(), right)
}
