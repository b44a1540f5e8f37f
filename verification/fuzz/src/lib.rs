//! Shared by the targets: objects to parse, inputs made of two files, and checks of ranges.
//!
//! A target asserts more than that no input causes a panic: a parser returns the same result again,
//! also if reads cost so much or so little that it divides them differently, and its ranges lie
//! within the object. libFuzzer checks that memory and time are in proportion to the input
//! (`scripts/fuzz.sh` sets the limits).

use std::{fmt, io};

use libfuzzer_sys::fuzzer_mutate;
use tierfeed_dataset::format::{FormatError, Range, ReadAt, Records};

/// Separates the two files of an input.
///
/// It is a mark and not a length, so that inserted or removed bytes do not move the border.
pub const SEPARATOR: &[u8] = b"\xff||fuzz||\xff";

/// Costs of reads: as high as over a network, as low as in memory, and as on a disk.
const READ_COSTS_BYTES: [u64; 3] = [64 * 1024, 1, 8 << 20];

/// Bytes to parse, and the cost of a read of them.
struct Object<'a> {
    bytes: &'a [u8],
    read_cost_bytes: u64,
}

impl ReadAt for Object<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read_exact_at(into, offset)
    }

    fn read_cost_bytes(&self) -> u64 {
        self.read_cost_bytes
    }
}

/// Parses `bytes` at every cost of a read; the result must be the same.
///
/// # Panics
///
/// If two results differ.
pub fn parsed<T: fmt::Debug + PartialEq>(
    bytes: &[u8],
    parse: impl Fn(&dyn ReadAt) -> Result<T, FormatError>,
) -> Option<T> {
    let [first, others @ ..] =
        READ_COSTS_BYTES.map(|read_cost_bytes| parse(&Object { bytes, read_cost_bytes }));
    for other in others {
        assert_same(&first, &other);
    }
    first.ok()
}

/// Fails unless both are equal, or errors with the same message.
///
/// # Panics
///
/// If they differ.
pub fn assert_same<T: fmt::Debug + PartialEq, E: fmt::Display + fmt::Debug>(
    first: &Result<T, E>,
    second: &Result<T, E>,
) {
    let same = match (first, second) {
        (Ok(first), Ok(second)) => first == second,
        (Err(first), Err(second)) => first.to_string() == second.to_string(),
        _ => false,
    };
    assert!(same, "{first:?}, and then {second:?}");
}

#[must_use]
pub fn two_files(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = input.windows(SEPARATOR.len()).position(|window| window == SEPARATOR)?;
    Some((&input[..at], &input[at + SEPARATOR.len()..]))
}

/// The bytes of `object` in a range.
///
/// # Panics
///
/// If it does not lie in `object`.
#[must_use]
pub fn slice<'a>(object: &'a [u8], range: &Range) -> &'a [u8] {
    let end = range.offset.checked_add(range.len).and_then(|end| usize::try_from(end).ok());
    let start = usize::try_from(range.offset).ok();
    start.zip(end).and_then(|(start, end)| object.get(start..end)).unwrap_or_else(|| {
        panic!("{range:?} in an object of {} bytes", object.len());
    })
}

/// Checks that each range lies in `object`, and that no label is the marker for none.
///
/// # Panics
///
/// If a range or a label is invalid.
pub fn assert_within(object: &[u8], ranges: &[Range]) {
    for range in ranges {
        let _ = slice(object, range);
        assert_ne!(range.label, Some(i64::MIN), "{range:?}");
    }
}

/// Checks that each range lies in `object` and starts at or behind the end of the one before.
///
/// # Panics
///
/// If a range is invalid.
pub fn assert_rising(object: &[u8], ranges: &[Range]) {
    assert_within(object, ranges);
    for pair in ranges.windows(2) {
        assert!(pair[0].offset + pair[0].len <= pair[1].offset, "{pair:?}");
    }
}

/// Checks that the records lie in `object` and are not empty.
///
/// # Panics
///
/// If a record is invalid.
pub fn assert_records_within(object_len: u64, records: Records) {
    assert!(records.record_bytes > 0, "{records:?}");
    let bytes = records.record_bytes.checked_mul(records.count);
    let end = bytes.and_then(|bytes| bytes.checked_add(records.offset));
    assert!(end.is_some_and(|end| end <= object_len), "{records:?} in {object_len} bytes");
}

/// Replaces a number in a text by another one every other time, and otherwise mutates like libFuzzer.
///
/// libFuzzer changes bytes, which rarely gives a longer number in a valid text.
pub fn mutate_numbers(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let otherwise = |data: &mut [u8]| fuzzer_mutate(data, size, max_size);
    let is_start = |at: &usize| {
        data[*at].is_ascii_digit() && at.checked_sub(1).is_none_or(|it| !data[it].is_ascii_digit())
    };
    let starts: Vec<usize> = (0..size).filter(is_start).collect();
    if seed.is_multiple_of(2) || starts.is_empty() {
        return otherwise(data);
    }
    // The multiplier of Knuth's MMIX generator: only the high bits are good.
    let random = u64::from(seed).wrapping_mul(6_364_136_223_846_793_005).rotate_left(32);
    let start = starts[usize::try_from(random % 65_521).unwrap_or(0) % starts.len()];
    let digits = data[start..size].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = match random >> 61 {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << ((random >> 16) % 64),
        3 => (random >> 16) % 32,
        4 => (random >> 16) % 100_000,
        _ => random >> ((random >> 16) % 64),
    };
    let rest = [number.to_string().as_bytes(), &data[start + digits..size]].concat();
    let end = start + rest.len();
    if end > max_size {
        return otherwise(data);
    }
    data[start..end].copy_from_slice(&rest);
    end
}
