//! Finds the record that ends a zip archive, and with it the directory.
//!
//! Strict on purpose: the record must end the object, and its directory must end where the record
//! starts. Readers that search for a better record, or shift a directory that does not fit,
//! disagree on crafted archives. The crate `zip` (9.4) is such a reader: it searches a whole
//! damaged archive, shifts what does not fit, keeps one of two members of a name, and takes memory
//! for as many entries as the record claims.

use crate::format::{
    FormatError, ReadAt,
    piece::{malformed, read, u16_at, u32_at, u64_at},
};

const END_BYTES: u64 = 22;
/// Size of the locator of the ZIP64 record, right before the record at the end.
const LOCATOR_BYTES: u64 = 20;
const END64_BYTES: u64 = 56;

/// Largest distance of the record from the end: it is followed by a comment, with a length of two
/// bytes.
pub(super) const TAIL_BYTES: u32 = 22 + 0xFFFF;

/// The position of the directory.
#[derive(Debug)]
pub(super) struct End {
    pub(super) entries: u64,
    pub(super) start: u64,
    pub(super) len: u64,
}

pub(super) fn find(object: &dyn ReadAt) -> Result<End, FormatError> {
    let what = "the record at the end of the archive";
    let size = object.len();
    let right = "a zip archive ends in such a record; the file may be cut off";
    if size < END_BYTES {
        return Err(malformed(what, 0, format!("missing in {size} bytes"), right));
    }
    let tail_at = size - size.min(u64::from(TAIL_BYTES));
    let tail = read(object, what, tail_at, size - tail_at, u32::MAX)?;
    let ends_here = |at: &usize| {
        let comment = u16_at(&tail, at + 20).map(usize::from);
        tail[*at..].starts_with(b"PK\x05\x06")
            && comment.is_some_and(|it| at + 22 + it == tail.len())
    };
    let Some(at) = (0..=tail.len() - 22).rev().find(ends_here) else {
        return Err(malformed(what, size - END_BYTES, "missing", right));
    };
    let record = &tail[at..];
    let record_at = tail_at + at as u64;
    let short = |at| u16_at(record, at).expect("the record is 22 bytes long");
    let word = |at| u32_at(record, at).expect("the record is 22 bytes long");
    if let Some(locator_at) = record_at.checked_sub(LOCATOR_BYTES) {
        let locator = read(object, what, locator_at, LOCATOR_BYTES, u32::MAX)?;
        if locator.starts_with(b"PK\x06\x07") {
            return end64(object, &locator, locator_at);
        }
    }
    let (disks, entries) = ([short(4), short(6)], [short(8), short(10)]);
    if disks != [0, 0] || entries[0] != entries[1] {
        return Err(malformed(what, record_at, "one of several disks", "one archive, one file"));
    }
    let (len, start) = (u64::from(word(12)), u64::from(word(16)));
    check_place(start, len, record_at)?;
    Ok(End { entries: u64::from(entries[0]), start, len })
}

fn end64(object: &dyn ReadAt, locator: &[u8], locator_at: u64) -> Result<End, FormatError> {
    let what = "the ZIP64 record at the end of the archive";
    let right = "it stands right before its locator";
    let at = u64_at(locator, 8).expect("the locator is 20 bytes long");
    if at.checked_add(END64_BYTES).is_none_or(|end| end > locator_at) {
        return Err(malformed(what, locator_at, format!("said to be at byte {at}"), right));
    }
    let record = read(object, what, at, END64_BYTES, u32::MAX)?;
    let word = |at| u32_at(&record, at).expect("the record is 56 bytes long");
    let long = |at| u64_at(&record, at).expect("the record is 56 bytes long");
    let ends_at_locator = at.checked_add(12).and_then(|it| it.checked_add(long(4)));
    if !record.starts_with(b"PK\x06\x06") || ends_at_locator != Some(locator_at) {
        return Err(malformed(what, at, "something else", right));
    }
    if word(16) != 0 || word(20) != 0 || long(24) != long(32) {
        return Err(malformed(what, at, "one of several disks", "one archive, one file"));
    }
    let (len, start) = (long(40), long(48));
    check_place(start, len, at)?;
    Ok(End { entries: long(32), start, len })
}

/// Checks that the directory ends where the record at the end starts, so that every byte has one
/// meaning.
fn check_place(start: u64, len: u64, record_at: u64) -> Result<(), FormatError> {
    if start.checked_add(len) == Some(record_at) {
        return Ok(());
    }
    let found = format!("{len} bytes long and followed by the record at byte {record_at}");
    Err(malformed("the directory", start, found, "it ends where the record starts"))
}
