//! Takes the positions of records from the index that DALI's `tfrecord2idx` writes.
//!
//! A line is `offset size` for each record, both in bytes and both with the framing. The records must be
//! consecutive and fill the file, and their lengths are read to check that the index belongs to this file:
//! all of them where a read costs little, else the first, the last, and others evenly between.

use std::str;

use super::{HEAD_BYTES, Range, ReadAhead, ReadAt, TAIL_BYTES, record};
use crate::{format::FormatError, read_at::is_near};

/// Number of records that are compared with the file where each read is a request.
const COMPARED: usize = 64;

/// The positions of the records of a file, according to its index.
///
/// # Errors
///
/// [`FormatError::Index`] with line and value if the index is invalid, or not that of this file;
/// the errors of [`super::ranges`] if a compared record is damaged.
pub fn from_dali_index(index: &[u8], object: &dyn ReadAt) -> Result<Vec<Range>, FormatError> {
    let ranges = parse(index, object.len())?;
    let mut ahead = ReadAhead::new(object);
    let most = if is_near(object) { ranges.len() } else { COMPARED };
    for line in compared(ranges.len(), most) {
        let expected = ranges[line];
        let found = record(&mut ahead, expected.offset - HEAD_BYTES)?;
        if found != expected {
            let size = expected.len + HEAD_BYTES + TAIL_BYTES;
            let found =
                format!("a size of {size}, but the file has a record of {} bytes", found.len);
            return Err(wrong(line, found, "each size must be that of the record and 16 more"));
        }
    }
    Ok(ranges)
}

/// The ranges of consecutive lines up to `object_len`.
fn parse(index: &[u8], object_len: u64) -> Result<Vec<Range>, FormatError> {
    let mut ranges = Vec::new();
    let mut end = 0_u64;
    let text = index.strip_suffix(b"\n").unwrap_or(index);
    let lines = text.split(|byte| *byte == b'\n').filter(|_| !text.is_empty());
    for (line, bytes) in lines.enumerate() {
        let numbers = numbers(bytes);
        let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let [offset, size] = numbers.ok_or_else(|| {
            wrong(line, format!("{:?}", shown()), "each line must be `offset size`, both in bytes")
        })?;
        if offset != end {
            let found = format!("an offset of {offset}, but the record before ends at {end}");
            return Err(wrong(line, found, "each record must start where the one before ends"));
        }
        let len = size.checked_sub(HEAD_BYTES + TAIL_BYTES);
        let len = len.ok_or_else(|| {
            wrong(
                line,
                format!("a size of {size}"),
                "a record with its framing has 16 bytes or more",
            )
        })?;
        end = offset.checked_add(size).filter(|end| *end <= object_len).ok_or_else(|| {
            let found =
                format!("a record of {size} bytes at {offset}, but the file has {object_len}");
            wrong(line, found, "write the index again, it is not that of this file")
        })?;
        ranges.push(Range::plain(offset + HEAD_BYTES, len));
    }
    if end == object_len {
        return Ok(ranges);
    }
    let found = format!("the last, its record ends at {end}, but the file has {object_len} bytes");
    Err(wrong(ranges.len().saturating_sub(1), found, "write the index again, records are missing"))
}

fn numbers(line: &[u8]) -> Option<[u64; 2]> {
    let line = str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace().map(|word| word.parse().ok());
    let numbers = [words.next()??, words.next()??];
    words.next().is_none().then_some(numbers)
}

/// At most `most` indexes evenly from the first to the last of `count`, each once.
fn compared(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let steps = count.min(most);
    (0..steps).map(move |step| if steps == count { step } else { step * (count - 1) / (steps - 1) })
}

fn wrong(line: usize, found: String, right: &'static str) -> FormatError {
    FormatError::Index { place: format!("line {}", line + 1), found, right }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_record_are_compared_and_none_twice() {
        for count in [0, 1, 2, 63, 64, 65, 66, 1000, 1 << 20] {
            let compared = compared(count, COMPARED).collect::<Vec<_>>();
            assert_eq!(compared.len(), count.min(COMPARED));
            assert!(compared.windows(2).all(|pair| pair[0] < pair[1]), "{count}: {compared:?}");
            assert_eq!(compared.first().copied(), (count > 0).then_some(0));
            assert_eq!(compared.last().copied(), count.checked_sub(1));
        }
    }
}
