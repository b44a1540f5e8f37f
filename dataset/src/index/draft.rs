//! An index under construction: objects in the order of sample ids, and their samples.

use std::{collections::BTreeSet, ops};

use serde::{Deserialize, Serialize};
use tierfeed_transform::container::Column;

use crate::{
    format::{Encoding, FormatError, Range, Stated},
    source::{Directory, Listed, Listing, Object},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    /// The source as text: an absolute path or a URL.
    pub(super) root: Vec<u8>,
    pub(super) kind: SourceKind,
    pub(super) format: String,
    pub(super) contents: Contents,
    pub(super) classes: Classes,
    /// In the order of sample ids; a directory may come several times.
    pub(super) listing: Listing,
    pub(super) samples: Samples,
}

/// The statements of the objects of a dataset, or of an index beside them, about samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Contents {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) columns: Option<Vec<Column>>,
    /// The content of samples whose bytes do not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stated: Option<Stated>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceKind {
    FileSystem,
    Bucket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Classes {
    /// The samples have labels of their own, or none.
    None,
    /// The top-level directories are the classes.
    Directories,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Samples {
    /// Each object is a sample.
    Objects,
    Records(RecordTable),
    /// Each object has samples at arbitrary positions.
    Ranges(RangeTable),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RecordTable {
    pub(super) record_bytes: u64,
    pub(super) counts: Vec<u32>,
    /// Start of the first record of each object.
    pub(super) starts: Vec<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RangeTable {
    pub(super) counts: Vec<u32>,
    /// For each sample its start in its object and its stored bytes.
    pub(super) places: Vec<(u64, u64)>,
    /// For each sample, or empty if all are plain.
    pub(super) encodings: Vec<Encoding>,
    /// For each sample, or empty if none has one; [`NO_LABEL`] for none.
    pub(super) labels: Vec<i64>,
}

/// The label of a sample without one, if other samples have labels.
pub(super) const NO_LABEL: i64 = i64::MIN;

impl RangeTable {
    /// Appends the samples of the next object, which is `size` bytes long.
    pub(super) fn push_object(&mut self, ranges: &[Range], size: u64) -> Result<(), FormatError> {
        let samples = ranges.len() as u64;
        let too_many = |_| FormatError::TooManySamples { samples };
        self.counts.push(u32::try_from(ranges.len()).map_err(too_many)?);
        self.places.reserve(ranges.len());
        for Range { offset, len, encoding, label } in ranges.iter().copied() {
            let needed = offset.saturating_add(len);
            if needed > size {
                let what = "a sample";
                return Err(FormatError::Truncated { what, at: offset, needed, found: size });
            }
            let before = self.places.len();
            self.places.push((offset, len));
            append(&mut self.encodings, before, encoding, Encoding::Plain);
            append(&mut self.labels, before, label.unwrap_or(NO_LABEL), NO_LABEL);
        }
        Ok(())
    }
}

/// Appends to a column that stays empty while all its `before` values are the default.
fn append<T: Copy + PartialEq>(column: &mut Vec<T>, before: usize, value: T, usual: T) {
    if column.is_empty() {
        if value == usual {
            return;
        }
        column.resize(before, usual);
    }
    column.push(value);
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

    pub(super) fn directory_of(&self, object: usize) -> usize {
        self.directories.partition_point(|it| it.first_object <= object) - 1
    }

    /// An object, in the form for opening it.
    pub(super) fn listed(&self, object: usize) -> Listed {
        let (name, etag) = self.name_of(object);
        let mut path = self.directories[self.directory_of(object)].name.clone();
        if !path.is_empty() && !name.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let Object { size, mtime_ns, .. } = self.objects[object];
        Listed { path, size, mtime_ns, etag: etag.map(str::to_owned) }
    }

    /// Appends an object to `to`; its directory is added unless it is the last one there.
    pub(super) fn copy_object(&self, object: usize, directory: &Directory, to: &mut Self) {
        let is_last = to.directories.last().is_some_and(|last| last.name == directory.name);
        if !is_last {
            let first_object = to.objects.len();
            to.directories.push(Directory { first_object, ..directory.clone() });
        }
        to.names.extend_from_slice(self.stored_name(object));
        let name_end = to.names.len() as u64;
        to.objects.push(Object { name_end, ..self.objects[object] });
    }

    /// Appends to `to` the directories that it does not have: their times show later additions.
    pub(super) fn copy_other_directories(&self, to: &mut Self) {
        let has: BTreeSet<Vec<u8>> = to.directories.iter().map(|it| it.name.clone()).collect();
        for directory in self.directories.iter().filter(|it| !has.contains(&it.name)) {
            let first_object = to.objects.len();
            to.directories.push(Directory { first_object, ..directory.clone() });
        }
    }
}

pub(super) fn split_etag(name: &[u8]) -> (&[u8], Option<&str>) {
    match name.iter().position(|byte| *byte == 0) {
        None => (name, None),
        Some(end) => (&name[..end], str::from_utf8(&name[end + 1..]).ok()),
    }
}
