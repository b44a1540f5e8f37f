//! Looks at directories that tiers and sockets use.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::{sys::statvfs::statvfs, unistd::Uid};
use tierfeed_core::units::Bytes;
use tierfeed_file_io::direct::{self, Caching};

use super::Attempt;
use crate::{
    inventory::mount::{self, Medium, Mount},
    sysroot::Sysroot,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub path: PathBuf,
    /// The type of its file system, for instance `ext4`.
    pub file_system: String,
    pub medium: Medium,
    /// Size of the file system and free space for this user; `None` if the sysroot is not this machine.
    pub room: Option<(Bytes, Bytes)>,
    pub is_writable: Attempt,
    /// Whether a file could be opened past the page cache.
    pub direct: Attempt,
}

/// The folder in `/tmp` for sockets whose path in the run directory would be too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFolder {
    pub path: PathBuf,
    /// Whether it is a directory of this user.
    pub is_ours: bool,
    /// Permission bits, as in `0o700`.
    pub mode: u32,
}

impl Directory {
    /// `None` if there is no such directory.
    pub(super) fn look(sysroot: Sysroot<'_>, mounts: &[Mount], path: &Path) -> Option<Self> {
        let place = sysroot.join(path);
        if !place.is_dir() {
            return None;
        }
        let mount = mount::holding(mounts, path)?;
        let mut directory = Self {
            path: path.to_owned(),
            file_system: mount.file_system.clone(),
            medium: mount.medium,
            room: None,
            is_writable: Attempt::Untried,
            direct: Attempt::Untried,
        };
        if sysroot.is_live() {
            directory.room = room(&place);
            let file = tempfile::tempfile_in(&place);
            if let Ok(file) = &file {
                directory.direct = direct::set_caching(file, Caching::Bypassed).into();
            }
            directory.is_writable = file.into();
        }
        Some(directory)
    }
}

impl SocketFolder {
    /// `None` if the folder does not exist yet.
    pub(super) fn look(sysroot: Sysroot<'_>) -> Option<Self> {
        let own = Uid::effective();
        let path = PathBuf::from(format!("/tmp/tierfeed-{own}"));
        let found = sysroot.join(&path).symlink_metadata().ok()?;
        let is_ours = found.is_dir() && found.uid() == own.as_raw();
        Some(Self { path, is_ours, mode: found.mode() & 0o777 })
    }
}

fn room(path: &Path) -> Option<(Bytes, Bytes)> {
    let found = statvfs(path).ok()?;
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(found.fragment_size()));
    Some((bytes(found.blocks()), bytes(found.blocks_available())))
}
