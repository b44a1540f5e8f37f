//! Reads the header of an index file.

use tierfeed_core::units::Bytes;

use super::{
    FLAG_LABELS, FLAG_WIDE_LABELS, FLAGS, HEADER_BYTES, Header, Kind, MAGIC, SUMS_BYTES, VERSION,
    u32_at, u64_at,
};
use crate::index::{Damage, FileFault};

/// Reads the counts from the start of a file that is `found` bytes long, and checks that they add
/// up to that length.
pub(super) fn parse(bytes: &[u8], found: u64) -> Result<Header, FileFault> {
    if !bytes.starts_with(&MAGIC) {
        return Err(FileFault::Foreign);
    }
    let wrong_length =
        |expected| FileFault::Length { found: Bytes(found), expected: Bytes(expected) };
    let least = (HEADER_BYTES + SUMS_BYTES) as u64;
    if found < least {
        return Err(wrong_length(least));
    }
    let word = |number: usize| u32_at(bytes, MAGIC.len() + 4 * number);
    if word(0) != VERSION {
        return Err(FileFault::Version { found: word(0), expected: VERSION });
    }
    let kind = match word(1) {
        0 => Kind::Objects,
        1 => Kind::Records,
        2 => Kind::Ranges,
        _ => return Err(FileFault::Damaged(Damage::Format)),
    };
    let is_wide_of_none = word(2) & (FLAG_LABELS | FLAG_WIDE_LABELS) == FLAG_WIDE_LABELS;
    if word(2) & !FLAGS != 0 || word(3) != 0 || is_wide_of_none {
        return Err(FileFault::Damaged(Damage::Format));
    }
    let count = |number: usize| u64_at(bytes, MAGIC.len() + 16 + 8 * number);
    let header = Header {
        kind,
        flags: word(2),
        record_bytes: count(0),
        samples: count(1),
        format: count(2),
        source: count(3),
        directories: count(4),
        directory_names: count(5),
        objects: count(6),
        object_names: count(7),
    };
    let expected = header.total();
    if expected == found { Ok(header) } else { Err(wrong_length(expected)) }
}
