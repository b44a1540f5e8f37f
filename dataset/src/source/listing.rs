//! The objects of a source, directory by directory.

use std::{collections::BTreeSet, ops};

use super::names::{append, parted, python_order};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// All directories that were entered, with or without objects, in [`python_order`] of
    /// their paths. A source that is one file has one, without a name and a time.
    pub directories: Vec<Directory>,
    /// Directory by directory, in [`python_order`] of their names.
    pub objects: Vec<Object>,
    /// The names of the objects in their directories, one after the other. In a bucket each is
    /// followed by a NUL and the `ETag`.
    pub names: Vec<u8>,
}

/// A directory, or in a bucket the part of a key before its last `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Path below the source; empty for the source itself.
    pub name: Vec<u8>,
    /// Time of its last change, in nanoseconds since 1970; `None` if it has none.
    pub mtime_ns: Option<i64>,
    pub first_object: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Size of the object, in bytes.
    pub size: u64,
    /// Time of the last write, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// End of its name in [`Listing::names`]; it starts where the previous one ends.
    pub name_end: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Path below the source; empty if the source is the object.
    pub path: Vec<u8>,
    pub size: u64,
    pub mtime_ns: i64,
    /// The store's identifier of the version; `None` for files.
    pub etag: Option<String>,
}

impl Listing {
    pub(crate) fn objects_of(&self, directory: usize) -> ops::Range<usize> {
        let first = |number: usize| self.directories.get(number).map(|it| it.first_object);
        first(directory).unwrap_or(0)..first(directory + 1).unwrap_or(self.objects.len())
    }

    /// The name of an object in its directory, and its `ETag`.
    pub(crate) fn name_of(&self, object: usize) -> (&[u8], Option<&str>) {
        split_etag(self.stored_name(object))
    }

    fn stored_name(&self, object: usize) -> &[u8] {
        let at = |position: u64| usize::try_from(position).expect("names lie in memory");
        let start = object.checked_sub(1).map_or(0, |before| self.objects[before].name_end);
        &self.names[at(start)..at(self.objects[object].name_end)]
    }

    pub(crate) fn directory_of(&self, object: usize) -> usize {
        self.directories.partition_point(|it| it.first_object <= object) - 1
    }

    /// An object, in the form for opening it.
    pub(crate) fn listed(&self, object: usize) -> Listed {
        let (name, etag) = self.name_of(object);
        let mut path = self.directories[self.directory_of(object)].name.clone();
        append(&mut path, name);
        let Object { size, mtime_ns, .. } = self.objects[object];
        Listed { path, size, mtime_ns, etag: etag.map(str::to_owned) }
    }

    /// These objects in this order, and all directories: the times of the others show later additions.
    pub(crate) fn chosen(&self, objects: impl IntoIterator<Item = usize>) -> Self {
        let mut chosen = Self::default();
        for object in objects {
            let directory = &self.directories[self.directory_of(object)];
            if chosen.directories.last().is_none_or(|last| last.name != directory.name) {
                chosen.push_directory(directory);
            }
            chosen.names.extend_from_slice(self.stored_name(object));
            let name_end = chosen.names.len() as u64;
            chosen.objects.push(Object { name_end, ..self.objects[object] });
        }
        let has: BTreeSet<Vec<u8>> = chosen.directories.iter().map(|it| it.name.clone()).collect();
        for directory in self.directories.iter().filter(|it| !has.contains(&it.name)) {
            chosen.push_directory(directory);
        }
        chosen
    }

    fn push_directory(&mut self, directory: &Directory) {
        let first_object = self.objects.len();
        self.directories.push(Directory { first_object, ..directory.clone() });
    }

    /// Appends an object with its directory, unless that is the last one.
    pub(crate) fn push(&mut self, object: &Listed) {
        let (parent, name) = parted(&object.path);
        if self.directories.last().is_none_or(|last| last.name != parent) {
            self.push_directory(&Directory {
                name: parent.to_vec(),
                mtime_ns: None,
                first_object: 0,
            });
        }
        self.names.extend_from_slice(&entry(name, object.etag.as_deref()));
        let Listed { size, mtime_ns, .. } = *object;
        self.objects.push(Object { size, mtime_ns, name_end: self.names.len() as u64 });
    }

    /// The number of the object with this path.
    pub(crate) fn find(&self, path: &[u8]) -> Option<usize> {
        let (parent, name) = parted(path);
        let is_before = |it: &Directory| python_order(&it.name, parent).is_lt();
        let directory = self.directories.partition_point(is_before);
        if self.directories.get(directory)?.name != parent {
            return None;
        }
        let objects = self.objects_of(directory);
        let (mut low, mut high) = (objects.start, objects.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let is_before = python_order(self.name_of(middle).0, name).is_lt();
            if is_before { low = middle + 1 } else { high = middle }
        }
        (low < objects.end && self.name_of(low).0 == name).then_some(low)
    }
}

/// A name in the form of [`Listing::names`].
pub(crate) fn entry(name: &[u8], etag: Option<&str>) -> Vec<u8> {
    let mut entry = name.to_vec();
    if let Some(etag) = etag {
        entry.push(0);
        entry.extend_from_slice(etag.as_bytes());
    }
    entry
}

pub(crate) fn split_etag(name: &[u8]) -> (&[u8], Option<&str>) {
    match name.iter().position(|byte| *byte == 0) {
        None => (name, None),
        Some(end) => (&name[..end], str::from_utf8(&name[end + 1..]).ok()),
    }
}
