//! Asks how much a directory can still take.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, Serializer};

use nix::sys::statvfs::statvfs;
use tierfeed_core::units::Bytes;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpace {
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Bytes that this process may still write.
    #[serde(rename = "free_bytes")]
    pub free: Bytes,
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
}

/// JSON has no other paths.
fn as_text<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

impl DiskSpace {
    /// The room below `path`, or below the nearest directory above it that is there; `None` where the
    /// file system refuses to tell. Waits for as long as the file system takes to answer.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let above = path.ancestors().find_map(|place| Self::at(place).ok());
        let here = || Self::at(Path::new(".")).ok().filter(|_| path.is_relative());
        Some(Self { path: path.to_owned(), ..above.or_else(here)? })
    }

    /// The room of the directory `path`.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let status = statvfs(path)?;
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(status.fragment_size()));
        Ok(Self {
            path: path.to_owned(),
            free: bytes(status.blocks_available()),
            total: bytes(status.blocks()),
        })
    }
}
