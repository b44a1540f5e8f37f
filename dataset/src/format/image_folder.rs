//! Orders image folders like torchvision's `ImageFolder`.
//!
//! # Source
//!
//! `torchvision.datasets.folder`: the classes are the directories in the root, sorted; the samples of
//! a class come from `sorted(os.walk(directory, followlinks=True))`, directory by directory in the
//! order of their whole paths, and in each the image files sorted by name. A class without an image
//! is an error.

use std::{fs, os::unix::ffi::OsStringExt as _, path::Path};

use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Taken,
    objects::{Candidates, Classes, Objects, ObjectsError},
};
use crate::source::{
    Listing,
    names::{is_image, lossy, python_order},
};

pub(super) static KIND: Kind = Kind {
    taken: Taken::InDirectories,
    ..Kind::new(
        "image-folder",
        |_| Ok(Format::ImageFolder),
        is_image,
        "images below the directories of classes",
    )
};

/// One directory per class, one image file per sample.
pub(super) struct ImageFolder;

impl DatasetFormat for ImageFolder {
    /// A class without an image is an error unless the user picked files.
    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        let Candidates { place, listing, is_picked, .. } = found;
        let root = place.to_owned();
        let is_one_file = listing.objects.len() == 1 && listing.names.is_empty();
        if is_one_file {
            return Err(ObjectsError::NotADirectory { root });
        }
        let classes = class_names(&listing);
        if classes.is_empty() {
            return Err(ObjectsError::NoClasses { root });
        }
        if !is_picked {
            refuse_empty_classes(&listing, &classes, root)?;
        }
        let hidden = classes.iter().find(|class| class.starts_with(b"."));
        let note = hidden.map(|class| {
            let class = lossy(class);
            format!("{place}: the hidden directory `{class}` is a class, as in torchvision; remove it if it is none")
        });
        let notes = note.into_iter().collect();
        let objects = Objects::from(class_by_class(listing));
        Ok(Objects { classes: Classes::Directories, notes, ..objects })
    }

    fn of_size(&self, _size: u64) -> Result<Option<Found>, FormatError> {
        Ok(Some(Found::Whole))
    }
}

/// The present directories in the root of an image folder, sorted.
pub(crate) fn classes_at(root: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if fs::metadata(entry.path()).is_ok_and(|target| target.is_dir()) {
            names.push(entry.file_name().into_vec());
        }
    }
    names.sort_by(|left, right| python_order(left, right));
    Ok(names)
}

pub(crate) fn class_of(directory: &[u8]) -> &[u8] {
    directory.split(|byte| *byte == b'/').next().unwrap_or(directory)
}

/// The classes of a listing, with images or without, sorted.
fn class_names(listing: &Listing) -> Vec<Vec<u8>> {
    let names = listing.directories.iter().map(|directory| class_of(&directory.name).to_vec());
    let mut names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    names.sort_by(|left, right| python_order(left, right));
    names.dedup();
    names
}

fn refuse_empty_classes(
    listing: &Listing,
    classes: &[Vec<u8>],
    root: String,
) -> Result<(), ObjectsError> {
    let mut full: Vec<&[u8]> = (0..listing.directories.len())
        .filter(|number| !listing.objects_of(*number).is_empty())
        .map(|number| class_of(&listing.directories[number].name))
        .collect();
    full.sort_unstable();
    let is_empty = |class: &&Vec<u8>| full.binary_search(&class.as_slice()).is_err();
    let mut empty = classes.iter().filter(is_empty);
    match empty.next() {
        None => Ok(()),
        Some(first) => {
            Err(ObjectsError::EmptyClass { root, class: lossy(first), others: empty.count() })
        }
    }
}

/// Orders a listing by class; the order of paths differs: `a-b` comes between `a` and `a/c`.
fn class_by_class(listing: Listing) -> Listing {
    let mut order: Vec<usize> = (0..listing.directories.len()).collect();
    let class = |number: &usize| class_of(&listing.directories[*number].name);
    order.sort_by(|left, right| python_order(class(left), class(right)));
    if order.is_sorted() {
        return listing;
    }
    listing.chosen(order.into_iter().flat_map(|number| listing.objects_of(number)))
}
