//! Reads the directory of a zip archive: the position of each member, and how it is stored.

use super::end::{self, End};
use crate::format::{
    FormatError, ReadAt,
    piece::{Window, array, malformed, read, u16_at, u32_at, u64_at},
};

pub(super) const STORED: u16 = 0;
pub(super) const DEFLATED: u16 = 8;

/// The bits of an encrypted member (APPNOTE 4.4.4, bits 0, 6 and 13).
pub(super) const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// The bit of a name in UTF-8 (APPNOTE 4.4.4, bit 11).
const UTF_8: u16 = 1 << 11;

const ENTRY_BYTES: usize = 46;

/// The largest directory that is read: about ten million members.
const DIRECTORY_BYTES_MAX: u32 = 1 << 30;

/// The tag of the extra field that holds sizes of 64 bits (APPNOTE 4.5.3).
const ZIP64: u16 = 1;

#[derive(Debug)]
pub(super) struct Directory {
    /// Offset of the directory; members end before it.
    pub(super) start: u64,
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) is_encrypted: bool,
    pub(super) crc32: u32,
    /// Bytes in the archive.
    pub(super) stored_len: u64,
    pub(super) len: u64,
    /// Offset of its local header.
    pub(super) header: u64,
}

pub(super) fn list(object: &dyn ReadAt) -> Result<Directory, FormatError> {
    let object = Window::tail(object, end::TAIL_BYTES)?;
    let End { entries: count, start, len } = end::find(&object)?;
    let bytes = read(&object, "the directory", start, len, DIRECTORY_BYTES_MAX)?;
    let mut entries = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (entry, end) = entry(&bytes, at, start + at as u64)?;
        entries.push(entry);
        at = end;
    }
    if entries.len() as u64 != count {
        let found = format!("of {} entries, and said to have {count}", entries.len());
        return Err(malformed("the directory", start, found, "the archive is damaged"));
    }
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let found = format!("of two members `{}`", pair[0].escape_debug());
        return Err(malformed("the directory", start, found, "each name stands for one member"));
    }
    Ok(Directory { start, entries })
}

/// The entry at `at`, and the offset of the next one.
fn entry(bytes: &[u8], at: usize, entry_at: u64) -> Result<(Entry, usize), FormatError> {
    let what = "an entry of the directory";
    let broken = |found: &str| malformed(what, entry_at, found, "as APPNOTE 4.3.12 says");
    let fixed: [u8; ENTRY_BYTES] = array(bytes, at).ok_or_else(|| broken("cut off"))?;
    if !fixed.starts_with(b"PK\x01\x02") {
        return Err(broken("something else"));
    }
    let short = |at| u16_at(&fixed, at).expect("the array is 46 bytes long");
    let word = |at| u32_at(&fixed, at).expect("the array is 46 bytes long");
    let (name_len, extra_len, comment_len) =
        (usize::from(short(28)), usize::from(short(30)), usize::from(short(32)));
    let name_at = at + ENTRY_BYTES;
    let extra_at = name_at + name_len;
    let end = extra_at + extra_len + comment_len;
    let raw_name = bytes.get(name_at..extra_at).ok_or_else(|| broken("cut off"))?;
    let extra = bytes.get(extra_at..extra_at + extra_len).ok_or_else(|| broken("cut off"))?;
    if end > bytes.len() {
        return Err(broken("cut off"));
    }
    let flags = short(8);
    let name = match std::str::from_utf8(raw_name) {
        Ok(name) if flags & UTF_8 != 0 || name.is_ascii() => name.to_owned(),
        _ => return Err(broken("of a name that is neither ASCII nor marked as UTF-8")),
    };
    let mut wide = Wide::new(extra).ok_or_else(|| broken("of extra fields that are cut off"))?;
    let too_short = || broken("without its sizes of 64 bits");
    let len = wide.or(word(24)).ok_or_else(too_short)?;
    let stored_len = wide.or(word(20)).ok_or_else(too_short)?;
    let header = wide.or(word(42)).ok_or_else(too_short)?;
    if short(34) != 0 && short(34) != u16::MAX {
        return Err(broken("on another disk"));
    }
    let entry = Entry {
        name,
        flags,
        method: short(10),
        is_encrypted: flags & ENCRYPTED != 0,
        crc32: word(16),
        stored_len,
        len,
        header,
    };
    Ok((entry, end))
}

/// The 64-bit numbers in the extra fields of an entry, taken in their order.
pub(super) struct Wide<'a> {
    left: Option<&'a [u8]>,
}

impl<'a> Wide<'a> {
    /// `None` if the fields do not fit in `extra`.
    pub(super) fn new(extra: &'a [u8]) -> Option<Self> {
        let mut rest = extra;
        let mut left = None;
        // Fewer than four bytes are padding, which some writers use to align a member.
        while rest.len() >= 4 {
            let (tag, len) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
            let field = rest.get(4..4 + len)?;
            if tag == ZIP64 && left.replace(field).is_some() {
                return None;
            }
            rest = &rest[4 + len..];
        }
        Some(Self { left })
    }

    /// `narrow`, or the next number if `narrow` is the marker for a number beyond 32 bits.
    pub(super) fn or(&mut self, narrow: u32) -> Option<u64> {
        if narrow != u32::MAX {
            return Some(u64::from(narrow));
        }
        let left = self.left?;
        let number = u64_at(left, 0)?;
        self.left = left.get(8..);
        Some(number)
    }
}
