//! The root of the tree that everything is read from: `/`, or a copy of a machine's `/proc` and `/sys`.
//!
//! Every reader of this crate takes one, so that a machine that nobody here owns (a CXL node, a
//! machine with 255 as distances) is a directory in a test.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The root of a tree with `proc` and `sys` in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysroot<'root>(pub &'root Path);

/// A file of the tree that is there but says something else than it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The file could be read, but its text is not what the kernel documents.
    #[error("{}: found {found:?}, expected {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it says, shortened.
        found: String,
        /// What it should say.
        expected: &'static str,
    },
}

impl Sysroot<'_> {
    /// The machine that this process runs on.
    #[must_use]
    pub fn live() -> Sysroot<'static> {
        Sysroot(Path::new("/"))
    }

    /// Whether this is the machine that the process runs on, so that measuring it makes sense.
    #[must_use]
    pub fn is_live(self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where `path`, absolute or not, lies in this tree.
    #[must_use]
    pub fn join(self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file that must be there.
    pub(crate) fn require(self, path: &str) -> Result<String, ReadError> {
        let path = self.join(path);
        fs::read_to_string(&path).map_err(|source| ReadError::Unreadable { path, source })
    }
}

/// The trimmed text of a file, or `None` where the kernel does not provide it.
///
/// Attributes of sysfs come and go with kernel options and hot-plug, and some can be listed but not
/// read, so an unreadable one counts as absent.
pub(crate) fn optional(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The number in a file, or `None` where there is none.
pub(crate) fn optional_number(path: &Path) -> Option<u64> {
    optional(path)?.parse().ok()
}

/// The names in a directory that are `prefix` and a number, as numbers in ascending order.
pub(crate) fn numbered_entries(directory: &Path, prefix: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// An error about the text of `path`.
pub(crate) fn malformed(path: PathBuf, text: &str, expected: &'static str) -> ReadError {
    ReadError::Malformed { path, found: text.chars().take(60).collect(), expected }
}
