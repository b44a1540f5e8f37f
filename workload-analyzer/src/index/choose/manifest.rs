//! Files in the order of a text file that names them: a path below the source per line.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
};

use crate::{
    index::{IndexError, lossy},
    source::{Listing, names::python_order},
};

/// The objects of `listing` that the manifest at `path` names. Empty lines are passed over.
pub(super) fn choose(path: &Path, listing: &Listing) -> Result<Listing, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
    let mut chosen = Listing::default();
    let mut lines = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut text = Vec::new();
    for line in 1_u64.. {
        text.clear();
        if lines.read_until(b'\n', &mut text).map_err(unreadable)? == 0 {
            break;
        }
        let name = text.trim_ascii();
        if name.is_empty() {
            continue;
        }
        let Some((directory, object)) = find(listing, name) else {
            let manifest = path.to_owned();
            return Err(IndexError::NotInSource { manifest, line, name: lossy(name) });
        };
        listing.copy_object(object, &listing.directories[directory], &mut chosen);
    }
    listing.copy_other_directories(&mut chosen);
    Ok(chosen)
}

/// The directory and the number of the object with this path.
pub(super) fn find(listing: &Listing, path: &[u8]) -> Option<(usize, usize)> {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = slash.map_or((&[][..], path), |at| (&path[..at], &path[at + 1..]));
    let is_before = |it: &crate::source::Directory| python_order(&it.name, parent).is_lt();
    let directory = listing.directories.partition_point(is_before);
    if listing.directories.get(directory)?.name != parent {
        return None;
    }
    let objects = listing.objects_of(directory);
    let (mut low, mut high) = (objects.start, objects.end);
    while low < high {
        let middle = low + (high - low) / 2;
        let is_before = python_order(listing.name_of(middle).0, name).is_lt();
        if is_before { low = middle + 1 } else { high = middle }
    }
    (low < objects.end && listing.name_of(low).0 == name).then_some((directory, low))
}
