//! Files in the order of a text file that names them: a path below the source per line.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    index::{IndexError, Progress, Stage, lossy, parallel},
    source::{Directory, Listing, Object, Store, names::python_order},
};

/// Largest manifest in bytes: ten million paths of a hundred bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// The objects of `listing` that the manifest at `path` names, and the hash of the manifest.
pub(super) fn choose(path: &Path, listing: &Listing) -> Result<(Listing, u64), IndexError> {
    let mut chosen = Listing::default();
    let Manifest { lines, hash } = read(path)?;
    for Line { number, name } in lines {
        let Some((directory, object)) = find(listing, &name) else {
            let manifest = path.to_owned();
            return Err(IndexError::NotInSource { manifest, line: number, name: lossy(&name) });
        };
        listing.copy_object(object, &listing.directories[directory], &mut chosen);
    }
    listing.copy_other_directories(&mut chosen);
    Ok((chosen, hash))
}

/// The objects that the manifest at `path` names, each queried: a web server has no listings.
pub(in crate::index) fn look_up(
    path: &Path,
    store: &dyn Store,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Listing, u64), IndexError> {
    let Manifest { lines, hash } = read(path)?;
    let mut listing = Listing::default();
    let stat = |number: usize| Ok(store.stat(&lines[number].name)?);
    let take = |_, listed: crate::source::Listed| {
        let (parent, name) = parted(&listed.path);
        if listing.directories.last().is_none_or(|last| last.name != parent) {
            let (name, first_object) = (parent.to_vec(), listing.objects.len());
            listing.directories.push(Directory { name, mtime_ns: None, first_object });
        }
        listing.names.extend_from_slice(name);
        if let Some(etag) = &listed.etag {
            listing.names.push(0);
            listing.names.extend_from_slice(etag.as_bytes());
        }
        let (size, mtime_ns) = (listed.size, listed.mtime_ns);
        let name_end = listing.names.len() as u64;
        listing.objects.push(Object { size, mtime_ns, name_end });
        Ok(())
    };
    parallel::in_order(lines.len(), Stage::Listing, stat, take, progress)?;
    Ok((listing, hash))
}

struct Line {
    /// Line number, counted from 1.
    number: u64,
    name: Vec<u8>,
}

struct Manifest {
    /// The lines that are not empty.
    lines: Vec<Line>,
    hash: u64,
}

fn read(path: &Path) -> Result<Manifest, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
    let mut text = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(unreadable(io::Error::other("longer than 1 GiB; a manifest is shorter")));
    }
    let line = |(number, text): (u64, &[u8])| {
        let name = text.trim_ascii();
        let name = name.strip_prefix(b"./").unwrap_or(name);
        (!name.is_empty()).then(|| Line { number, name: name.to_vec() })
    };
    let lines = (1..).zip(text.split(|byte| *byte == b'\n')).filter_map(line).collect();
    Ok(Manifest { lines, hash: xxh3_64(&text) })
}

pub(in crate::index) fn hash(path: &Path) -> Result<u64, IndexError> {
    read(path).map(|manifest| manifest.hash)
}

fn parted(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or((&[][..], path), |at| (&path[..at], &path[at + 1..]))
}

/// The directory and the number of the object with this path.
pub(super) fn find(listing: &Listing, path: &[u8]) -> Option<(usize, usize)> {
    let (parent, name) = parted(path);
    let is_before = |it: &Directory| python_order(&it.name, parent).is_lt();
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
