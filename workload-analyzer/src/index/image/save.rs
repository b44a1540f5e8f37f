//! Writes an index file.

use std::{
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use super::Image;
use crate::index::IndexError;

/// An index holds names, sizes and times: what `ls -l` shows to whoever may list the dataset.
const MODE: u32 = 0o644;

/// Writes `image` to a file of its own beside `path`, then gives it the right name.
pub(in crate::index) fn save(image: &Image, path: &Path) -> Result<(), IndexError> {
    let unwritable = |source| IndexError::Unwritable { path: path.to_owned(), source };
    write_beside(image.storage.bytes(), path).map_err(unwritable)
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
    fs::File::open(directory)?.sync_all()
}
