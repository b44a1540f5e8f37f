//! Orders image folders like torchvision's `ImageFolder`.
//!
//! # Source
//!
//! `torchvision.datasets.folder`: the classes are the directories in the root, sorted; the samples of
//! a class come from `sorted(os.walk(directory, followlinks=True))`, directory by directory in the
//! order of their whole paths, and in each the image files sorted by name. A class without an image
//! is an error.

use std::{fs, os::unix::ffi::OsStringExt as _, path::Path};

use crate::{
    index::{IndexError, lossy},
    source::{
        Listing, Selection,
        names::{is_image, python_order},
    },
};

/// The files below a class that torchvision accepts as images.
pub(super) struct Images {
    pub(super) pattern: Option<super::Pattern>,
}

impl Selection for Images {
    fn enters(&self, _path: &[u8]) -> bool {
        true
    }

    fn takes(&self, path: &[u8]) -> bool {
        let is_picked = self.pattern.as_ref().is_none_or(|pattern| pattern.takes(path));
        path.contains(&b'/') && is_image(super::name_of(path)) && is_picked
    }
}

/// Orders a listing. A class without an image is an error unless the user picked files.
pub(super) fn choose(
    place: &str,
    listing: Listing,
    is_picked: bool,
    notes: &mut Vec<String>,
) -> Result<Listing, IndexError> {
    let root = place.to_owned();
    let is_one_file = listing.objects.len() == 1 && listing.names.is_empty();
    if is_one_file {
        return Err(IndexError::NotADirectory { root });
    }
    let classes = class_names(&listing);
    if classes.is_empty() {
        return Err(IndexError::NoClasses { root });
    }
    if !is_picked {
        refuse_empty_classes(&listing, &classes, root)?;
    }
    let hidden = classes.iter().find(|class| class.starts_with(b"."));
    notes.extend(hidden.map(|class| {
        let class = lossy(class);
        format!("{place}: the hidden directory `{class}` is a class, as in torchvision; remove it if it is none")
    }));
    Ok(class_by_class(listing))
}

/// The present directories in the root of an image folder, sorted.
pub(in crate::index) fn classes_at(root: &Path) -> std::io::Result<Vec<Vec<u8>>> {
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

pub(in crate::index) fn class_of(directory: &[u8]) -> &[u8] {
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
) -> Result<(), IndexError> {
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
            Err(IndexError::EmptyClass { root, class: lossy(first), others: empty.count() })
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
    let mut sorted = Listing::default();
    for number in order {
        for object in listing.objects_of(number) {
            listing.copy_object(object, &listing.directories[number], &mut sorted);
        }
    }
    listing.copy_other_directories(&mut sorted);
    sorted
}
