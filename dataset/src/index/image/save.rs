//! Writes an index file.

use std::{
    fs::{self, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use super::{Image, MAGIC};
use crate::index::IndexError;

/// Permission bits: an index holds names, sizes and times, which `ls -l` shows to all users who may
/// list the dataset.
const MODE: u32 = 0o644;

/// Writes `image` to a file of its own beside `path`, then renames it.
pub(in crate::index) fn save(image: &Image, path: &Path) -> Result<(), IndexError> {
    let unwritable = |source| IndexError::Unwritable { path: path.to_owned(), source };
    refuse_other_file(path)?;
    write_beside(image.storage.bytes(), path).map_err(unwritable)
}

/// Only an index, of any version, is replaced by an index: another file may be part of the dataset.
fn refuse_other_file(path: &Path) -> Result<(), IndexError> {
    let unwritable = |source| IndexError::Unwritable { path: path.to_owned(), source };
    let mut start = Vec::new();
    match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unwritable(error)),
        Ok(file) => file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(unwritable)?,
    };
    if start == MAGIC { Ok(()) } else { Err(IndexError::Occupied { path: path.to_owned() }) }
}

fn write_beside(bytes: &[u8], path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut beside = tempfile::Builder::new()
        .prefix(".tierfeed-index-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(directory)?;
    beside.write_all(bytes)?;
    beside.as_file().sync_all()?;
    beside.persist(path)?;
    // The index has its name; file systems that cannot make that durable return an error here.
    match fs::File::open(directory).and_then(|directory| directory.sync_all()) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}
