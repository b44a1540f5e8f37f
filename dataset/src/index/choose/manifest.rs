//! Files in the order of a text file that names them: a path below the source per line.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    index::{IndexError, Progress, Stage, parallel},
    source::{Listing, Store, names::lossy},
};

/// Largest manifest in bytes: ten million paths of a hundred bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// The objects of `listing` that the manifest at `path` names, and the hash of the manifest.
pub(super) fn choose(path: &Path, listing: &Listing) -> Result<(Listing, u64), IndexError> {
    let Manifest { lines, hash } = read(path)?;
    let mut objects = Vec::with_capacity(lines.len());
    for Line { number, name } in lines {
        objects.push(listing.find(&name).ok_or_else(|| IndexError::NotInSource {
            manifest: path.to_owned(),
            line: number,
            name: lossy(&name),
        })?);
    }
    Ok((listing.chosen(objects), hash))
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
    let take = |_, listed| {
        listing.push(&listed);
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
