//! Compares a shard with its hashes in the index.

use xxhash_rust::{xxh3::Xxh3, xxh32::Xxh32, xxh64::Xxh64};

use super::{FormatError, ReadAt, Shard};
use crate::format::read_ahead::for_each_piece;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    pub verified: Vec<String>,
    /// Names of the hashes that tierfeed cannot compute.
    pub unknown: Vec<String>,
}

/// Reads a shard and compares it with its hashes: `xxh32`, `xxh64`, `xxh3_64`, `xxh3_128`, `xxh128`.
///
/// The shard is not read if the index has none of these.
///
/// # Errors
///
/// [`FormatError::Malformed`] if a hash does not match.
pub fn check(object: &dyn ReadAt, shard: &Shard) -> Result<Checked, FormatError> {
    let mut checked = Checked::default();
    let mut hashers = Vec::new();
    for (name, expected) in &shard.hashes {
        match Hasher::new(name) {
            Some(hasher) => hashers.push((name, expected, hasher)),
            None => checked.unknown.push(name.clone()),
        }
    }
    if hashers.is_empty() {
        return Ok(checked);
    }
    for_each_piece(object, 0, object.len(), &mut |bytes| {
        hashers.iter_mut().for_each(|(_, _, hasher)| hasher.update(bytes));
    })?;
    for (name, expected, hasher) in hashers {
        let found = hasher.hex();
        if !found.eq_ignore_ascii_case(expected) {
            return Err(FormatError::Malformed {
                what: "a byte of the shard",
                at: 0,
                found: format!("damaged: its {name} is {found}, but {expected:?} in the index"),
                right: "copy the shard again",
            });
        }
        checked.verified.push(name.clone());
    }
    Ok(checked)
}

enum Hasher {
    Xxh32(Xxh32),
    Xxh64(Xxh64),
    Xxh3Short(Box<Xxh3>),
    Xxh3Long(Box<Xxh3>),
}

impl Hasher {
    fn new(name: &str) -> Option<Self> {
        Some(match name {
            "xxh32" => Self::Xxh32(Xxh32::new(0)),
            "xxh64" => Self::Xxh64(Xxh64::new(0)),
            "xxh3_64" => Self::Xxh3Short(Box::default()),
            "xxh3_128" | "xxh128" => Self::Xxh3Long(Box::default()),
            _ => return None,
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Xxh32(hasher) => hasher.update(bytes),
            Self::Xxh64(hasher) => hasher.update(bytes),
            Self::Xxh3Short(hasher) | Self::Xxh3Long(hasher) => hasher.update(bytes),
        }
    }

    fn hex(&self) -> String {
        match self {
            Self::Xxh32(hasher) => format!("{:08x}", hasher.digest()),
            Self::Xxh64(hasher) => format!("{:016x}", hasher.digest()),
            Self::Xxh3Short(hasher) => format!("{:016x}", hasher.digest()),
            Self::Xxh3Long(hasher) => format!("{:032x}", hasher.digest128()),
        }
    }
}
