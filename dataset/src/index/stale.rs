//! Detects whether a dataset has changed since it was indexed.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{
    Index, IndexError, Progress, build,
    choose::Chosen,
    differences::{self, DifferenceKind, SAMPLED},
    draft::SourceKind,
    mtime_ns,
};
use crate::{
    Dataset,
    format::{
        image_folder::{class_of, classes_at},
        objects::Classes,
    },
    source::{
        Store,
        names::{below, python_order},
    },
};

/// Compares source and format, then the time of each directory, then size and time of some objects, because
/// the time of a directory does not show that a file was written in place. A source that is one file is
/// compared itself. In a bucket only a listing would show changes, so nothing is compared.
pub(super) fn check(index: &Index, dataset: &Dataset) -> Result<(), IndexError> {
    if !index.is_of(dataset) {
        return Err(IndexError::OtherDataset {
            indexed: index.source(),
            indexed_format: index.format().to_owned(),
            root: dataset.source.to_string(),
            format: build::format_of(dataset)?,
        });
    }
    match index.image.header.source_kind() {
        SourceKind::Bucket => Ok(()),
        SourceKind::FileSystem => {
            check_directories(index)?;
            match differences::first_among(index, SAMPLED) {
                None => Ok(()),
                Some(difference) => Err(IndexError::Stale { place: difference.place }),
            }
        }
    }
}

fn check_directories(index: &Index) -> Result<(), IndexError> {
    let image = &index.image;
    let root = PathBuf::from(OsStr::from_bytes(image.source()));
    for number in 0..image.directories() {
        let name = image.directory_name(number);
        let path = below(&root, name);
        let Some(expected) = image.directory_mtime_ns(number) else {
            compare_file(index, &path)?;
            continue;
        };
        match fs::metadata(&path) {
            Ok(metadata) if mtime_ns(&metadata) == expected => {}
            Ok(_) if name.is_empty() && has_same_classes(index, &root)? => {}
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(IndexError::Unreadable { path, source });
            }
            _ => return Err(IndexError::Stale { place: path.display().to_string() }),
        }
    }
    Ok(())
}

/// In the root of an image folder only the directories count; a file added there, perhaps the index itself,
/// changes nothing.
fn has_same_classes(index: &Index, root: &Path) -> Result<bool, IndexError> {
    if index.image.header.classes() == Classes::None {
        return Ok(false);
    }
    let unreadable = |source| IndexError::Unreadable { path: root.to_owned(), source };
    let found = classes_at(root).map_err(unreadable)?;
    let names = (0..index.image.directories()).map(|it| class_of(index.image.directory_name(it)));
    let mut indexed: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    indexed.sort_by(|left, right| python_order(left, right));
    indexed.dedup();
    Ok(found.iter().map(Vec::as_slice).eq(indexed))
}

fn compare_file(index: &Index, path: &Path) -> Result<(), IndexError> {
    match differences::difference_at(path, index, 0) {
        None => Ok(()),
        Some(DifferenceKind::Unreadable(source)) => {
            Err(IndexError::Unreadable { path: path.to_owned(), source })
        }
        Some(_) => Err(IndexError::Stale { place: path.display().to_string() }),
    }
}

/// Runs [`check`], then compares a new listing with the objects of the index; returns the listing.
pub(super) fn verify(
    index: &Index,
    dataset: &Dataset,
    store: &dyn Store,
    progress: &mut dyn FnMut(Progress),
) -> Result<Chosen, IndexError> {
    check(index, dataset)?;
    let chosen = build::chosen(dataset, store, progress)?;
    let listing = &chosen.objects.listing;
    let image = &index.image;
    let (found, indexed) = (listing.objects.len(), image.objects());
    let is_same = |number: &usize| {
        let listed = listing.listed(*number);
        image.is_as_listed(*number, &listed) && image.object_path(*number) == listed.path
    };
    let differs = (0..found.min(indexed)).find(|number| !is_same(number));
    let Some(number) = differs.or((found != indexed).then_some(found.min(indexed))) else {
        return Ok(chosen);
    };
    let path =
        if number < indexed { image.object_path(number) } else { listing.listed(number).path };
    let root = PathBuf::from(OsStr::from_bytes(image.source()));
    Err(IndexError::Stale { place: below(&root, &path).display().to_string() })
}
