//! Opens an index file and refuses what does not hold.

use std::{fs::File, path::Path};

use tierfeed_core::units::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    FLAGS, HEADER_BYTES, Header, Image, Kind, MAGIC, SUMS_BYTES, Sections, Storage, VERSION, check,
    source_file::{self, Access, Unloaded},
    u32_at, u64_at,
};
use crate::index::{Damage, IndexError};

pub(in crate::index) fn open(path: &Path, access: Access) -> Result<Image, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(IndexError::Foreign { path: path.to_owned() });
    }
    let storage = source_file::load(&file, access).map_err(|unloaded| match unloaded {
        Unloaded::Unreadable(error) => unreadable(error),
        Unloaded::Fault(fault) => fault.at(path),
    })?;
    image(storage).map_err(|fault| fault.at(path))
}

pub(in crate::index) fn parse(bytes: Vec<u8>, file_name: &Path) -> Result<Image, IndexError> {
    image(Storage::Memory(bytes)).map_err(|fault| fault.at(file_name))
}

/// Why bytes are no index.
#[derive(Debug)]
pub(super) enum Fault {
    Foreign,
    Version(u32),
    Length { found: u64, expected: u64 },
    Damage(Damage),
}

impl Fault {
    fn at(self, path: &Path) -> IndexError {
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

/// Checks bytes that may come from anybody. Lengths first: nothing is looked at that is not there.
pub(super) fn image(storage: Storage) -> Result<Image, Fault> {
    let bytes = storage.bytes();
    let header = header(bytes, bytes.len() as u64)?;
    let at = Sections::of(&header);
    let sums = |damage| Fault::Damage(damage);
    let (body, fingerprint_and_times) = bytes.split_at(at.object_names.end);
    let (fingerprint_and_times, checksum) =
        fingerprint_and_times.split_at(fingerprint_and_times.len() - 8);
    let mut hash = Xxh3::new();
    hash.update(fingerprint_and_times);
    let holds =
        hash.digest() == u64_at(checksum, 0) && xxh3_64(body) == u64_at(fingerprint_and_times, 0);
    if !holds {
        return Err(sums(Damage::Checksum));
    }
    let image = Image { storage, header, at };
    check::refuse_nonsense(&image).map_err(sums)?;
    Ok(image)
}

/// Reads the counts from the start of a file that is `found` bytes long. When it returns, they add up to
/// that length.
pub(super) fn header(bytes: &[u8], found: u64) -> Result<Header, Fault> {
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
    if word(2) & !FLAGS != 0 || word(3) != 0 {
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
