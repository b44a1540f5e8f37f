//! Finds and removes directories of killed runs: those whose lock no process holds.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl},
};

use super::{KEPT, PREFIX, clear_away, is_lock, is_ours};

/// Entries of a directory that are examined; one with more is not used by tierfeed alone.
const LOOKED_AT_MAX: usize = 10_000;

/// Removes leftovers below `tier`. What cannot be removed is logged and stays.
pub(in crate::agent) fn remove(tier: &Path) {
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

/// Keeps the directory at `path` from being taken for a leftover, for as long as this process and those
/// that it starts live: trainers outlive an agent that is killed.
///
/// # Errors
///
/// As `open(2)` and `flock(2)`.
pub fn hold(path: &Path) -> io::Result<()> {
    let directory = File::open(path)?;
    fcntl(&directory, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let held = Flock::lock(directory, FlockArg::LockSharedNonblock).map_err(|(_, errno)| errno)?;
    // The descriptor is inherited, and closed by the end of the last process that has it.
    std::mem::forget(held);
    Ok(())
}

/// Whether processes of a run work in the directory at `path`.
pub(super) fn is_in_use(path: &Path) -> bool {
    let lock = File::open(path).map(|it| Flock::lock(it, FlockArg::LockExclusiveNonblock));
    matches!(lock, Ok(Err((_, Errno::EWOULDBLOCK))))
}

fn remove_one(lock_path: &Path, path: &Path) {
    let Some((lock, is_kept)) = orphaned(lock_path) else { return };
    if is_in_use(path) {
        return;
    }
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

/// Takes the lock of a process that has ended; returns it and whether its directory is to be kept.
fn orphaned(lock_path: &Path) -> Option<(Flock<File>, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(nix::libc::O_NOFOLLOW);
    let file = options.open(lock_path).ok()?;
    let found = file.metadata().ok()?;
    if !is_lock(&found) {
        return None;
    }
    let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
    // Another run may have removed and recreated it between opening and locking.
    let now = fs::symlink_metadata(lock_path).ok()?;
    if (now.dev(), now.ino()) != (found.dev(), found.ino()) {
        return None;
    }
    let mut text = String::new();
    lock.by_ref().take(KEPT.len() as u64 + 1).read_to_string(&mut text).ok()?;
    Some((lock, text == KEPT))
}
