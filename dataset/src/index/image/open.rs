//! Opens an index file and checks it.

use std::{fs::File, path::Path};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    Image, Section, Storage, check,
    header::{self, Fault},
    source_file::{self, Access, LoadError},
    u64_at,
};
use crate::index::{Damage, IndexError};

pub(in crate::index) fn open(path: &Path, access: Access) -> Result<Image, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(IndexError::Foreign { path: path.to_owned() });
    }
    let storage = source_file::load(&file, access).map_err(|refused| match refused {
        LoadError::Unreadable(error) => unreadable(error),
        LoadError::Fault(fault) => fault.at(path),
    })?;
    image(storage).map_err(|fault| fault.at(path))
}

pub(in crate::index) fn parse(bytes: Vec<u8>, file_name: &Path) -> Result<Image, IndexError> {
    image(Storage::Memory(bytes)).map_err(|fault| fault.at(file_name))
}

/// Checks bytes of any origin. Lengths come first, so that no check reads beyond the end.
pub(super) fn image(storage: Storage) -> Result<Image, Fault> {
    let bytes = storage.bytes();
    let header = header::parse(bytes, bytes.len() as u64)?;
    let image = Image { at: header.places(), storage, header };
    let sums = |damage| Fault::Damage(damage);
    let body = &image.storage.bytes()[..image.at[Section::Fingerprint as usize].start];
    let mut hash = Xxh3::new();
    hash.update(image.section(Section::Fingerprint));
    hash.update(image.section(Section::Times));
    let holds = hash.digest() == u64_at(image.section(Section::Checksum), 0)
        && xxh3_64(body) == image.fingerprint();
    if !holds {
        return Err(sums(Damage::Checksum));
    }
    check::check_invariants(&image).map_err(sums)?;
    Ok(image)
}
