//! Lists files of records that all have one size: a single file, or the files of one directory.
//!
//! The files of a directory come in the order of their names. Names that start with a dot are passed
//! over; everything else must be a file of whole records, because a file that is silently left out
//! would renumber the samples.

use std::{
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use tierfeed_core::units::Bytes;

use super::{
    Format, IndexError, Progress, Stage,
    layout::{Directory, Layout, Object},
    measure::mtime_ns,
};
use crate::source::names::python_order;

pub(super) fn list(
    root: PathBuf,
    record_bytes: Bytes,
    progress: &mut dyn FnMut(Progress),
) -> Result<Layout, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: root.clone(), source };
    let metadata = fs::metadata(&root).map_err(unreadable)?;
    let (directories, file_names) = if metadata.is_dir() {
        let directory = Directory { name: Vec::new(), mtime_ns: mtime_ns(&metadata) };
        (vec![directory], file_names(&root)?)
    } else {
        (Vec::new(), vec![Vec::new()])
    };
    let mut names = Vec::new();
    let mut objects = Vec::new();
    for name in file_names {
        names.extend_from_slice(&name);
        objects.push(Object { size: 0, mtime_ns: 0, name_end: names.len() as u64 });
    }
    progress(Progress { stage: Stage::Listing, done: objects.len() as u64, total: None });
    let format = Format::Raw { record_bytes };
    Ok(Layout { root, format, classes: Vec::new(), directories, objects, names })
}

/// Checks that every file consists of whole records.
pub(super) fn refuse_partial_records(
    layout: &Layout,
    record_bytes: Bytes,
) -> Result<(), IndexError> {
    let is_partial = |object: &Object| !object.size.is_multiple_of(record_bytes.0);
    match layout.objects.iter().position(is_partial) {
        None => Ok(()),
        Some(object) => Err(IndexError::PartialRecord {
            path: layout.path_of(object),
            size: layout.objects[object].size,
            record_bytes: record_bytes.0,
        }),
    }
}

fn file_names(directory: &Path) -> Result<Vec<Vec<u8>>, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().into_vec();
        if name.starts_with(b".") {
            continue;
        }
        if fs::metadata(entry.path()).is_ok_and(|target| target.is_dir()) {
            return Err(IndexError::NestedDirectory { path: entry.path() });
        }
        names.push(name);
    }
    names.sort_by(|left, right| python_order(left, right));
    Ok(names)
}
