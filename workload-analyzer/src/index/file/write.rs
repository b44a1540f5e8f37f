//! Writes an index file.

use std::{
    fs::{self, Permissions},
    io::{self, BufWriter, Write as _},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
};

use xxhash_rust::xxh3::Xxh3;

use super::{MAGIC, VERSION};
use crate::index::{
    Format, IndexError,
    layout::{Directory, Layout},
};

/// An index holds names, sizes and times: what `ls -l` shows to whoever may list the dataset.
const MODE: u32 = 0o644;

pub(in crate::index) fn write(layout: &Layout, path: &Path) -> Result<(), IndexError> {
    let unwritable = |source| IndexError::Unwritable { path: path.to_owned(), source };
    write_beside(layout, path).map_err(unwritable)
}

/// Writes a file with a name of its own, then gives it the right one.
fn write_beside(layout: &Layout, path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let beside = tempfile::Builder::new()
        .prefix(".tierfeed-index-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(directory)?;
    let mut file = BufWriter::new(beside.as_file());
    let mut hash = Xxh3::new();
    sections(layout, &layout.directories, &mut |bytes| {
        hash.update(bytes);
        file.write_all(bytes)
    })?;
    file.write_all(&hash.digest().to_le_bytes())?;
    file.flush()?;
    drop(file);
    beside.as_file().sync_all()?;
    beside.persist(path)?;
    fs::File::open(directory)?.sync_all()
}

/// Hands everything but the checksum to `put`, piece by piece, with `directories` for those of the
/// layout.
pub(super) fn sections(
    layout: &Layout,
    directories: &[Directory],
    put: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let root = layout.root.as_os_str().as_bytes();
    let labels = || {
        let classes = layout.classes.iter().map(|class| &class.name);
        classes.chain(directories.iter().map(|directory| &directory.name))
    };
    let (format, record_bytes) = match layout.format {
        Format::ImageFolder => (0_u32, 0),
        Format::Raw { record_bytes } => (1, record_bytes.0),
    };
    put(&MAGIC)?;
    put(&VERSION.to_le_bytes())?;
    put(&format.to_le_bytes())?;
    put(&record_bytes.to_le_bytes())?;
    let counts = [
        root.len(),
        layout.classes.len(),
        directories.len(),
        layout.objects.len(),
        labels().map(Vec::len).sum(),
        layout.names.len(),
    ];
    for count in counts {
        put(&(count as u64).to_le_bytes())?;
    }
    put(root)?;
    let mut end = 0;
    for class in &layout.classes {
        end += class.name.len() as u64;
        put(&end.to_le_bytes())?;
        put(&class.first_object.to_le_bytes())?;
    }
    for directory in directories {
        end += directory.name.len() as u64;
        put(&end.to_le_bytes())?;
        put(&directory.mtime_ns.to_le_bytes())?;
    }
    for object in &layout.objects {
        put(&object.size.to_le_bytes())?;
        put(&object.mtime_ns.to_le_bytes())?;
        put(&object.name_end.to_le_bytes())?;
    }
    for label in labels() {
        put(label)?;
    }
    put(&layout.names)
}
