//! Files that the user picks: each is a sample.

use std::{fmt, path::PathBuf};

use super::{DatasetFormat, FormatError, Found, Kind, Taken};

pub(super) static KIND: Kind =
    Kind { taken: Taken::Picked, ..Kind::new("files", |_| true, "files that match its pattern") };

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

impl DatasetFormat for Files {
    fn settings(&self) -> String {
        self.to_string()
    }

    fn looked_for(&self) -> Option<&'static str> {
        match self {
            Self::Glob(_) => None,
            Self::Manifest(_) => Some("the files that its manifest names"),
        }
    }

    fn of_size(&self, _size: u64) -> Result<Option<Found>, FormatError> {
        Ok(Some(Found::Whole))
    }
}
