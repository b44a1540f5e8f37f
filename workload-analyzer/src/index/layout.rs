//! What an index consists of, in memory as in its file: rows of numbers and one run of names.

use std::{ffi::OsStr, ops::Range, os::unix::ffi::OsStrExt, path::PathBuf};

use tierfeed_core::units::Bytes;

use super::{Format, IndexError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// The source, absolute.
    pub(super) root: PathBuf,
    pub(super) format: Format,
    /// Empty for formats without classes; otherwise the first starts at object 0.
    pub(super) classes: Vec<Class>,
    /// The directories that were listed, below the source, and when they last changed.
    pub(super) directories: Vec<Directory>,
    pub(super) objects: Vec<Object>,
    /// The names of all objects, one after the other: below their class, or below the source.
    pub(super) names: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class {
    /// The directory.
    pub(super) name: Vec<u8>,
    pub(super) first_object: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directory {
    /// Below the source; empty for the source itself.
    pub(super) name: Vec<u8>,
    pub(super) mtime_ns: i64,
}

/// A file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) size: u64,
    pub(super) mtime_ns: i64,
    /// Where its name ends in `names`; it starts where the one before ends.
    pub(super) name_end: u64,
}

impl Layout {
    /// The bytes of `names` that name an object; empty if the source itself is the object.
    pub(super) fn name_of(&self, object: usize) -> &[u8] {
        let start = object.checked_sub(1).map_or(0, |before| self.objects[before].name_end);
        let at = |position: u64| usize::try_from(position).expect("names lie in memory");
        let range: Range<usize> = at(start)..at(self.objects[object].name_end);
        &self.names[range]
    }

    pub(super) fn path_of(&self, object: usize) -> PathBuf {
        let after = self.classes.partition_point(|class| class.first_object as usize <= object);
        let class = after.checked_sub(1).map(|class| &self.classes[class].name);
        let mut path = self.path_below(class.map_or(&[], Vec::as_slice));
        let name = self.name_of(object);
        if !name.is_empty() {
            path.push(OsStr::from_bytes(name));
        }
        path
    }

    /// The source, or what `name` names in it. Nothing is joined for no name: that would add a slash.
    pub(super) fn path_below(&self, name: &[u8]) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(name)) }
    }

    /// The number of samples: at least one, and no more than ids can number.
    pub(super) fn samples(&self) -> Result<u32, IndexError> {
        let samples = match self.format {
            Format::ImageFolder => self.objects.len() as u64,
            Format::Raw { record_bytes } => self.records(record_bytes),
        };
        if samples == 0 {
            return Err(IndexError::NoSamples { root: self.root.clone() });
        }
        let too_many = |_| IndexError::TooManySamples { root: self.root.clone(), samples };
        u32::try_from(samples).map_err(too_many)
    }

    /// For raw files, the first sample of each object; empty for other formats.
    pub(super) fn first_samples(&self) -> Result<Vec<u32>, IndexError> {
        let Format::Raw { record_bytes } = self.format else { return Ok(Vec::new()) };
        self.samples()?;
        let mut next = 0;
        let firsts = self.objects.iter().map(|object| {
            let first = next;
            next +=
                u32::try_from(object.size / record_bytes.0).expect("all samples fit in 32 bits");
            first
        });
        Ok(firsts.collect())
    }

    fn records(&self, record_bytes: Bytes) -> u64 {
        let records = self.objects.iter().map(|object| object.size / record_bytes.0);
        records.fold(0, u64::saturating_add)
    }
}
