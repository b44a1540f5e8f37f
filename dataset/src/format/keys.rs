//! The keys of a dataset: where it lies, which of its files are taken, and what its format has to be told.
//!
//! They come from a job file, options of a command or arguments in Python, and are checked in the same way. A key of a
//! format is declared beside the format; all that lists or passes keys takes them from here.
//!
//! 1. A key that the format or the source does not use is refused, because its author expects an effect.
//! 2. Credentials are refused, and never repeated in an error.

mod error;
mod path;
mod selection;
mod source;

use std::{collections::BTreeMap, num::NonZeroU64, path::Path};

use tierfeed_core::units::Bytes;

use self::selection::MANIFEST;
pub use self::{
    error::{KeyConflict, KeyError, Reason},
    path::mistake,
    selection::Files,
};
pub(super) use self::{
    error::{conflict, invalid},
    selection::GLOB,
};
use super::{FORMATS, Format, KINDS, Kind};
use crate::{Dataset, source::Location};

/// A key by its name in job files.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// The placeholder of its value in the help of commands.
    pub value: &'static str,
    pub help: &'static str,
    pub is_list: bool,
}

impl Key {
    pub(crate) const fn new(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { name, value, help, is_list: false }
    }

    /// The formats that have it; none for a key of any format.
    pub fn formats(&self) -> Vec<&'static str> {
        KINDS.iter().filter(|kind| kind.has(self.name)).map(|kind| kind.name).collect()
    }
}

/// The keys of where a dataset lies and what it is.
static OF_ANY: [Key; 5] = [
    Key::new("source", "SOURCE", "a directory or file, or a bucket"),
    Key::new("format", "FORMAT", "how samples lie in objects"),
    Key::new("endpoint", "URL", "the server of a bucket"),
    Key::new("region", "NAME", "the region of a bucket of s3://"),
    Key::new("anonymous", "true|false", "whether requests are left unsigned"),
];

/// All keys, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static Key> {
    OF_ANY.iter().chain(of_contents())
}

#[must_use]
pub fn named(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name)
}

/// The keys that select files or belong to a format.
pub fn of_contents() -> impl Iterator<Item = &'static Key> {
    let mut keys: Vec<&Key> = vec![&GLOB, &MANIFEST];
    for key in KINDS.iter().flat_map(|kind| kind.keys.iter().copied()) {
        if keys.iter().all(|it| it.name != key.name) {
            keys.push(key);
        }
    }
    keys.into_iter()
}

/// The keys of a dataset as given by the user, unchecked: the values of each, which are one unless it is a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatasetKeys(BTreeMap<&'static str, Vec<String>>);

impl DatasetKeys {
    #[must_use]
    pub fn new(source: impl Into<String>, format: impl Into<String>) -> Self {
        Self(BTreeMap::from([("source", vec![source.into()]), ("format", vec![format.into()])]))
    }

    /// # Panics
    ///
    /// If there is no such key.
    pub fn set(&mut self, name: &str, values: Vec<String>) {
        let key = named(name).expect("a key of datasets");
        self.0.insert(key.name, values);
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, vec![value.into()]);
        self
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of a key that is no list.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.first().map(String::as_str)
    }

    pub fn source(&self) -> &str {
        self.get("source").unwrap_or_default()
    }

    pub fn format_name(&self) -> &str {
        self.get("format").unwrap_or_default()
    }

    /// The keys that are given with their values, in the order of [`all`].
    pub fn given(&self) -> impl Iterator<Item = (&'static Key, &[String])> {
        all().filter_map(|key| Some((key, self.0.get(key.name)?.as_slice())))
    }

    /// The dataset. Relative paths start at `directory`.
    ///
    /// # Errors
    ///
    /// If a key is invalid, missing, or of another source or format.
    pub fn dataset(&self, directory: &Path) -> Result<Dataset, KeyError> {
        self.dataset_at(self.location(directory)?, directory)
    }

    /// As [`Self::dataset`], for a source whose path is no text.
    ///
    /// # Errors
    ///
    /// As [`Self::dataset`].
    pub fn dataset_at(&self, source: Location, directory: &Path) -> Result<Dataset, KeyError> {
        let format = self.format(directory)?;
        Ok(Dataset::new(source, format).picking(self.given_at(directory)?.picked()?))
    }

    /// The format with its keys. Relative paths start at `directory`.
    ///
    /// # Errors
    ///
    /// If the format is unknown, if a key that it needs is missing, or if a key of another format is given.
    pub fn format(&self, directory: &Path) -> Result<Format, KeyError> {
        let given = self.given_at(directory)?;
        let is_foreign = |key: &&Key| !given.kind.has(key.name) && !key.formats().is_empty();
        match self.given().map(|(key, _)| key).find(is_foreign) {
            Some(key) => {
                let formats = key.formats().join(" or ");
                Err(conflict(key.name, KeyConflict::OfOtherFormat { formats }))
            }
            None => (given.kind.of_keys)(&given),
        }
    }

    fn given_at<'a>(&'a self, directory: &'a Path) -> Result<Given<'a>, KeyError> {
        let name = self.format_name();
        let kind = KINDS.into_iter().find(|kind| kind.name == name);
        let unknown = || invalid("format", name, Reason::NotOneOf(FORMATS.join(", ")));
        Ok(Given { keys: self, kind: kind.ok_or_else(unknown)?, directory })
    }
}

/// The keys as a format takes them.
pub(crate) struct Given<'a> {
    keys: &'a DatasetKeys,
    kind: &'static Kind,
    directory: &'a Path,
}

impl Given<'_> {
    pub(crate) fn text(&self, key: &Key) -> Option<&str> {
        self.keys.get(key.name)
    }

    /// The error for a key that the format needs; `what` says what it is for.
    pub(crate) fn needs(&self, key: &Key, what: &'static str) -> KeyError {
        let (format, key) = (self.kind.name, key.name);
        KeyError::Conflict {
            key: None,
            conflict: KeyConflict::NeededByFormat { format, key, what },
        }
    }

    /// A number of bytes or a size, at least `least`.
    pub(crate) fn size(&self, key: &'static Key, least: Bytes) -> Result<Option<Bytes>, KeyError> {
        let size = |typed: &str| {
            let reason = if least.0 > 0 { Reason::NotARecordSize } else { Reason::NotASize };
            let size = parse_size(typed).filter(|size| *size >= least);
            size.ok_or_else(|| invalid(key.name, typed, reason))
        };
        self.text(key).map(size).transpose()
    }

    pub(crate) fn count(&self, key: &'static Key) -> Result<Option<NonZeroU64>, KeyError> {
        const MAX: u64 = u32::MAX as u64;
        let count = |typed: &str| {
            let count = typed.parse().ok().filter(|count: &NonZeroU64| count.get() <= MAX);
            count.ok_or_else(|| invalid(key.name, typed, Reason::OutOfRange { min: 1, max: MAX }))
        };
        self.text(key).map(count).transpose()
    }

    /// The value with the given name.
    pub(crate) fn one_of<T: Copy>(
        &self,
        key: &'static Key,
        known: &[(&str, T)],
    ) -> Result<Option<T>, KeyError> {
        let value = |typed: &str| {
            let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            let found = known.iter().find(|(name, _)| *name == typed).map(|(_, value)| *value);
            found.ok_or_else(|| invalid(key.name, typed, Reason::NotOneOf(names.join(", "))))
        };
        self.text(key).map(value).transpose()
    }

    /// A list of names. A missing list means all; an empty one is an error.
    pub(crate) fn names(
        &self,
        key: &'static Key,
        example: &'static str,
    ) -> Result<Vec<String>, KeyError> {
        let Some(typed) = self.keys.0.get(key.name) else { return Ok(Vec::new()) };
        if typed.is_empty() {
            return Err(conflict(key.name, KeyConflict::EmptyList));
        }
        for (index, name) in typed.iter().enumerate() {
            if name.is_empty() {
                return Err(invalid(key.name, name, Reason::EmptyName { example }));
            }
            if typed[..index].contains(name) {
                return Err(invalid(key.name, name, Reason::NamedTwice));
            }
        }
        Ok(typed.clone())
    }
}

/// A size with or without a unit: the name of its key says bytes.
#[must_use]
pub fn parse_size(typed: &str) -> Option<Bytes> {
    typed.parse::<u64>().ok().map(Bytes).or_else(|| typed.parse().ok())
}

#[cfg(test)]
mod tests;
