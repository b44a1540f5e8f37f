//! Reads the header of an index file, and reports errors of the file.

use std::path::Path;

use tierfeed_core::units::Bytes;

use super::{
    FLAG_LABELS, FLAG_WIDE_LABELS, FLAGS, HEADER_BYTES, Header, Kind, MAGIC, SUMS_BYTES, VERSION,
    u32_at, u64_at,
};
use crate::index::{Damage, IndexError};

#[derive(Debug)]
pub(super) enum Fault {
    Foreign,
    Version(u32),
    Length { found: u64, expected: u64 },
    Damage(Damage),
}

impl Fault {
    pub(super) fn at(self, path: &Path) -> IndexError {
        let path = path.to_owned();
        match self {
            Self::Foreign => IndexError::Foreign { path },
            Self::Version(found) => IndexError::Version { path, found, expected: VERSION },
            Self::Length { found, expected } => {
                IndexError::Length { path, found: Bytes(found), expected: Bytes(expected) }
            }
            Self::Damage(damage) => IndexError::Damaged { path, damage },
        }
    }
}

/// Reads the counts from the start of a file that is `found` bytes long, and checks that they add
/// up to that length.
pub(super) fn parse(bytes: &[u8], found: u64) -> Result<Header, Fault> {
    if !bytes.starts_with(&MAGIC) {
        return Err(Fault::Foreign);
    }
    let least = (HEADER_BYTES + SUMS_BYTES) as u64;
    if found < least {
        return Err(Fault::Length { found, expected: least });
    }
    let word = |number: usize| u32_at(bytes, MAGIC.len() + 4 * number);
    if word(0) != VERSION {
        return Err(Fault::Version(word(0)));
    }
    let kind = match word(1) {
        0 => Kind::Objects,
        1 => Kind::Records,
        2 => Kind::Ranges,
        _ => return Err(Fault::Damage(Damage::Format)),
    };
    let is_wide_of_none = word(2) & (FLAG_LABELS | FLAG_WIDE_LABELS) == FLAG_WIDE_LABELS;
    if word(2) & !FLAGS != 0 || word(3) != 0 || is_wide_of_none {
        return Err(Fault::Damage(Damage::Format));
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
    if expected == found { Ok(header) } else { Err(Fault::Length { found, expected }) }
}
