//! Opens an index file and checks it.

use std::{fs::File, path::Path};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    Image, Section, Storage, check, header,
    source_file::{self, Access},
    u64_at,
};
use crate::index::{Damage, FileFault, IndexError};

pub(in crate::index) fn open(path: &Path, access: Access) -> Result<Image, IndexError> {
    let opened = || {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(FileFault::Foreign);
        }
        image(source_file::load(&file, access)?)
    };
    opened().map_err(|fault| IndexError::File { path: path.to_owned(), fault })
}

pub(in crate::index) fn parse(bytes: Vec<u8>, file_name: &Path) -> Result<Image, IndexError> {
    let wrong = |fault| IndexError::File { path: file_name.to_owned(), fault };
    image(Storage::Memory(bytes)).map_err(wrong)
}

/// Checks bytes of any origin. Lengths come first, so that no check reads beyond the end.
pub(super) fn image(storage: Storage) -> Result<Image, FileFault> {
    let bytes = storage.bytes();
    let header = header::parse(bytes, bytes.len() as u64)?;
    let image = Image { at: header.places(), storage, header };
    let body = &image.storage.bytes()[..image.at[Section::Fingerprint as usize].start];
    let mut hash = Xxh3::new();
    hash.update(image.section(Section::Fingerprint));
    hash.update(image.section(Section::Times));
    let holds = hash.digest() == u64_at(image.section(Section::Checksum), 0)
        && xxh3_64(body) == image.fingerprint();
    if !holds {
        return Err(FileFault::Damaged(Damage::Checksum));
    }
    check::check_invariants(&image).map_err(FileFault::Damaged)?;
    Ok(image)
}
