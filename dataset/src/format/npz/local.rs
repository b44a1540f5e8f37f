//! Compares the header before a member with the directory, and finds the member's bytes.

use super::directory::{ENCRYPTED, Entry, Wide};
use crate::format::{
    FormatError, Range, ReadAt,
    piece::{end_of, malformed, read, u16_at, u32_at},
};

/// The bit that says that CRC-32 and sizes follow the data (APPNOTE 4.4.4, bit 3).
const DESCRIBED_BEHIND: u16 = 1 << 3;

const HEADER_BYTES: usize = 30;

const WHAT: &str = "the header of a member";

/// Extra fields that are read together with the header; writers of arrays need 20 bytes.
const EXTRA_BYTES_EXPECTED: usize = 128;

/// Finds header and data of `entry`, and the offset of the data; the directory starts at
/// `directory`.
pub(super) fn span(
    object: &dyn ReadAt,
    entry: &Entry,
    directory: u64,
) -> Result<(Range, u64), FormatError> {
    let at = entry.header;
    let header = read_header(object, entry, directory)?;
    check_header(&header, entry)?;
    let data = at + header.len() as u64;
    let end = end_of(object, "a member", data, entry.stored_len)?;
    if end > directory {
        return Err(differs(entry, "ends behind the start of the directory"));
    }
    Ok((Range::plain(at, end - at), data))
}

/// Reads the header with its name and extra fields, in one read if they have the expected length.
fn read_header(object: &dyn ReadAt, entry: &Entry, directory: u64) -> Result<Vec<u8>, FormatError> {
    let at = entry.header;
    let left = directory.saturating_sub(at);
    let expected = HEADER_BYTES + entry.name.len() + EXTRA_BYTES_EXPECTED;
    let mut header = read(object, WHAT, at, left.min(expected as u64), u32::MAX)?;
    if !header.starts_with(b"PK\x03\x04") || header.len() < HEADER_BYTES {
        return Err(differs(entry, "starts with something else"));
    }
    let short = |at| u16_at(&header, at).map_or(0, usize::from);
    let len = HEADER_BYTES + short(26) + short(28);
    if len > header.len() {
        header = read(object, WHAT, at, len as u64, u32::MAX)?;
    }
    header.truncate(len);
    Ok(header)
}

fn check_header(header: &[u8], entry: &Entry) -> Result<(), FormatError> {
    let short = |at| u16_at(header, at).expect("a header is at least 30 bytes long");
    let word = |at| u32_at(header, at).expect("a header is at least 30 bytes long");
    let (name, extra) = header[HEADER_BYTES..].split_at(usize::from(short(26)));
    if name != entry.name.as_bytes() {
        return Err(differs(entry, "has another name"));
    }
    if short(8) != entry.method || (short(6) ^ entry.flags) & (ENCRYPTED | DESCRIBED_BEHIND) != 0 {
        return Err(differs(entry, "is stored in another way"));
    }
    // A writer that cannot seek knows sizes only afterwards; then there is nothing to compare.
    if short(6) & DESCRIBED_BEHIND != 0 {
        return Ok(());
    }
    let cut_off = || differs(entry, "has extra fields that are cut off");
    let mut wide = Wide::new(extra).ok_or_else(cut_off)?;
    let (len, stored_len) = (wide.or(word(22)), wide.or(word(18)));
    let expected = (entry.crc32, Some(entry.stored_len), Some(entry.len));
    if (word(14), stored_len, len) == expected {
        return Ok(());
    }
    Err(differs(entry, "has another size or CRC-32"))
}

fn differs(entry: &Entry, found: &str) -> FormatError {
    let found = format!("not as the directory says: `{}` {found}", entry.name.escape_debug());
    malformed(WHAT, entry.header, found, "both say the same in a sound archive")
}
