//! Finds and removes what killed runs left behind: directories whose lock nobody holds.

use std::{
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use nix::{
    fcntl::{Flock, FlockArg},
    unistd::geteuid,
};

use super::{KEPT, PREFIX, clear_away, is_ours};

/// Looks at so many entries; a directory with more is not one of ours alone.
const LOOKED_AT_MAX: usize = 10_000;

/// Removes leftovers below `tier`. What cannot be removed is logged and stays.
pub(super) fn remove(tier: &Path) {
    for entry in fs::read_dir(tier).into_iter().flatten().flatten().take(LOOKED_AT_MAX) {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".lock")) else {
            continue;
        };
        if name.starts_with(PREFIX) {
            remove_one(&entry.path(), &tier.join(name));
        }
    }
}

fn remove_one(lock_path: &Path, path: &Path) {
    let Some((lock, is_kept)) = orphaned(lock_path) else { return };
    let is_gone = !path.exists();
    if is_kept || is_gone || (is_ours(path) && clear_away(path).is_ok()) {
        let what = path.display();
        match fs::remove_file(lock_path) {
            Ok(()) if is_kept || is_gone => {}
            Ok(()) => tracing::info!(path = %what, "scratch that a run left behind is removed"),
            Err(error) => tracing::warn!(path = %what, %error, "scratch of a run is left behind"),
        }
    }
    drop(lock);
}

/// The lock of a process that is gone, taken, and whether its directory is to be kept.
fn orphaned(lock_path: &Path) -> Option<(Flock<File>, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(nix::libc::O_NOFOLLOW);
    let file = options.open(lock_path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.uid() != geteuid().as_raw() {
        return None;
    }
    let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
    // Another run may have removed it and made it anew between opening and locking.
    let now = fs::symlink_metadata(lock_path).ok()?;
    if (now.dev(), now.ino()) != (found.dev(), found.ino()) {
        return None;
    }
    let mut text = String::new();
    lock.by_ref().take(KEPT.len() as u64 + 1).read_to_string(&mut text).ok()?;
    Some((lock, text == KEPT))
}
