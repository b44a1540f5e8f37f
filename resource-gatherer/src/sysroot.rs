//! The root of the tree that everything is read from: `/`, or a copy of a machine's `/proc` and `/sys`.
//!
//! Every reader of this crate takes one, so that a rare machine (a CXL node, a
//! machine with 255 as distances) is a directory in a test.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The root of a tree with `proc` and `sys` in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysroot<'root>(pub &'root Path);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error("cannot read {path}: {1}", path = .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    #[error("{path}: found {found:?}, expected {expected}", path = .path.display())]
    Malformed { path: PathBuf, found: String, expected: &'static str },
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

    /// Maps `path`, absolute or not, into this tree.
    #[must_use]
    pub fn join(self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The target of `path` of this tree with all its links followed; `None` if there is none, or if it lies
    /// outside the tree.
    pub(crate) fn resolve(self, path: &Path) -> Option<PathBuf> {
        let root = self.0.canonicalize().ok()?;
        path.canonicalize().ok().filter(|place| place.starts_with(root))
    }

    pub(crate) fn require(self, path: &str) -> Result<String, ReadError> {
        let path = self.join(path);
        fs::read_to_string(&path).map_err(|source| ReadError::Unreadable(path, source))
    }
}

/// The trimmed text of a file, or `None` where the kernel does not provide it.
///
/// Attributes of sysfs come and go with kernel options and hot-plug, and some can be listed but not
/// read, so an unreadable one counts as absent.
pub(crate) fn optional(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The rest of the first line that begins with `key`, as in `VmRSS:  200000 kB`.
pub(crate) fn field<'text>(text: &'text str, key: &str) -> Option<&'text str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// The bytes of a field in kB; `Node 0` may stand before its key.
pub(crate) fn field_bytes(text: &str, key: &str) -> Option<u64> {
    let kibibytes: u64 = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != key);
        words.nth(1)?.parse().ok()
    })?;
    kibibytes.checked_mul(1024)
}

pub(crate) fn optional_number(path: &Path) -> Option<u64> {
    optional(path)?.parse().ok()
}

/// The result of `parse` on a file, or `None` where the kernel does not provide the file.
///
/// # Errors
///
/// The file is there, but `parse` returns `None`.
pub(crate) fn parsed<T>(
    path: &Path,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, ReadError> {
    let Some(text) = optional(path) else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| malformed(path.to_owned(), &text, expected))
}

/// A number that is decimal or, with `0x` before it, hexadecimal.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// [`whole_number`] of a file that holds one number.
pub(crate) fn strict_number(path: &Path) -> Result<Option<u64>, ReadError> {
    parsed(path, "a whole number", whole_number)
}

/// The number of a NUMA node in a file; -1 stands for none.
pub(crate) fn optional_node(path: &Path) -> Option<u32> {
    optional(path)?.parse().ok()
}

/// The last component of the target of a link.
pub(crate) fn link_name(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

/// The names in a directory in ascending order; none where there is no directory.
pub(crate) fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort_unstable();
    names
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

pub(crate) fn malformed(path: PathBuf, text: &str, expected: &'static str) -> ReadError {
    ReadError::Malformed { path, found: text.chars().take(60).collect(), expected }
}
