//! Which files of a source are taken: by a pattern, or by a file that lists them.

use std::{fmt, path::PathBuf};

use super::{
    Given, Key, KeyConflict, KeyError, Reason,
    error::{conflict, invalid},
    mistake,
};
use crate::format::Taken;

pub(in crate::format) static GLOB: Key =
    Key::new("glob", "PATTERN", "which files are taken, such as \"**/*.npz\" or \"train-*\"");
pub(super) static MANIFEST: Key = Key::new(
    "manifest",
    "FILE",
    "a text file with the path of a file to take, below SOURCE, per line",
);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// Files whose path below the source matches a pattern such as `**/*.npz`, in the order of
    /// their paths.
    Glob(String),
    /// Files that a text file names, a path below the source per line, in its order.
    Manifest(PathBuf),
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(pattern) => write!(f, "those that match `{pattern}`"),
            Self::Manifest(path) => write!(f, "those in {}", path.display()),
        }
    }
}

impl Given<'_> {
    /// The selection of files, if there is one.
    pub(crate) fn files(&self) -> Result<Option<Files>, KeyError> {
        match [&GLOB, &MANIFEST].map(|key| self.text(key)) {
            [Some(_), Some(_)] => Err(conflict("manifest", KeyConflict::Beside { other: "glob" })),
            [None, None] => Ok(None),
            [Some(pattern), None] if pattern.is_empty() || pattern.starts_with('/') => {
                Err(invalid("glob", pattern, Reason::NotAPattern))
            }
            [Some(pattern), None] => Ok(Some(Files::Glob(pattern.to_owned()))),
            [None, Some(path)] => match mistake(path) {
                Some(reason) => Err(invalid("manifest", path, reason)),
                None => Ok(Some(Files::Manifest(self.directory.join(path)))),
            },
        }
    }

    /// The selection of files of the source, for other formats than `files`.
    pub(super) fn picked(&self) -> Result<Option<Files>, KeyError> {
        let key = [&GLOB, &MANIFEST].into_iter().find(|key| self.text(key).is_some());
        match (self.kind.taken, key) {
            (Taken::Picked, _) => Ok(None),
            (Taken::Listed, Some(key)) => Err(conflict(key.name, KeyConflict::ListedByIndex)),
            (Taken::InDirectories, _) if self.text(&MANIFEST).is_some() => {
                Err(conflict(MANIFEST.name, KeyConflict::OrderedByClass))
            }
            _ => self.files(),
        }
    }
}
