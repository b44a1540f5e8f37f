//! The paths of the objects and directories of an index in the file system.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The path of `name` below `root`. An empty name is the root itself: joining it would add a slash.
pub(super) fn below(root: &Path, name: &[u8]) -> PathBuf {
    if name.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(name)) }
}
