//! A directory for the trainer's own files on the scratch tier: intermediate data and checkpoints.
//!
//! Where this process may mount, the directory is a RAM disk of its own with the budget as its size, so
//! the kernel enforces the budget. Elsewhere, and where the files are to be kept, the agent measures the
//! directory from time to time; log and report name a job that exceeds its budget.
//!
//! Invariants:
//!
//! 1. This module removes only directories of this user that carry its names and that no running process
//!    has locked. It does not follow symbolic links.
//! 2. A directory that is to be kept is never removed.
//!
//! # Source
//!
//! `DeepMemoryDL`, "Allocation of Fast Scratch Storage".

mod leftovers;

pub use leftovers::hold;
pub(in crate::agent) use leftovers::remove as remove_leftovers;

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg},
    mount::{MntFlags, umount2},
    sys::{
        statfs::{TMPFS_MAGIC, statfs},
        statvfs::statvfs,
    },
    unistd::geteuid,
};
use tierfeed_core::{
    id::{NodeId, NumaNode},
    units::Bytes,
};
use tierfeed_workload_analyzer::job::{AfterRun, JobScratch};

use super::tmpfs;
use crate::{
    observe::report::{HeldBy, ScratchEntry},
    transport::token::{self, TokenError},
};

/// The prefix of every directory and lock.
const PREFIX: &str = "tierfeed-job-";

/// Entries that one measurement counts; beyond, the result is a lower bound.
const ENTRIES_MAX: usize = 10_000;

/// The content of the lock file of a directory that is to be kept.
const KEPT: &str = "keep";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchError {
    #[error("{}: another run of this job uses it; end that one, or give this job another name",
        .path.display())]
    InUse { path: PathBuf },
    #[error("{}: is no directory of this user; remove it or give the job another name",
        .path.display())]
    NotOurs { path: PathBuf },
    #[error("{}: holds files that an earlier run kept; remove them, or set job_scratch.keep",
        .path.display())]
    Kept { path: PathBuf },
    #[error("no other name for the directory: {error}")]
    Random {
        #[source]
        error: TokenError,
    },
    #[error("{}: {source}", .path.display())]
    System { path: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub struct Scratch {
    entry: ScratchEntry,
    lock_path: PathBuf,
    after_run: AfterRun,
    _lock: Flock<File>,
}

impl Scratch {
    /// Creates the directory in `tier`, or reuses the one that was kept, after removing the directories of
    /// killed runs of this user. Its pages are preferred on `numa`.
    pub fn prepare(
        tier: (&Path, Option<NumaNode>),
        job: &str,
        node: NodeId,
        request: JobScratch,
    ) -> Result<Self, ScratchError> {
        let (tier, numa) = tier;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ScratchError::System { path, source }
        };
        fs::create_dir_all(tier).map_err(failed(tier))?;
        let tier = std::path::absolute(tier).map_err(failed(tier))?;
        leftovers::remove(&tier);
        let usual = tier.join(format!("{PREFIX}{job}-{}", node.0));
        let (path, mut lock) = take(usual, request.after_run)?;
        let lock_path = lock_of(&path);
        let kept = if request.after_run == AfterRun::Keep { KEPT } else { "" };
        lock.set_len(0)
            .and_then(|()| lock.write_all(kept.as_bytes()))
            .map_err(failed(&lock_path))?;
        make_private(&path)?;
        let is_taken_over = leftovers::is_in_use(&path);
        let is_empty = || fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        if request.after_run == AfterRun::Remove && !is_taken_over && !is_empty() {
            return Err(ScratchError::Kept { path });
        }
        let is_mounted = request.after_run == AfterRun::Remove
            && (is_mount(&path, &tier) || mount_on(&path, request.size, numa));
        let is_on_node = numa.and_then(|numa| tmpfs::lies_on(&path, numa));
        if let (Some(numa), Some(false)) = (numa, is_on_node) {
            let path = path.display();
            tracing::warn!(%path, numa_node = numa.0, "the job's scratch lies on another NUMA node");
        }
        let entry = ScratchEntry {
            numa_node: numa.map(|numa| numa.0),
            is_on_node,
            path,
            size_bytes: request.size.0,
            peak_bytes: 0,
            held_by: if is_mounted { HeldBy::Mount } else { HeldBy::Watch },
            is_exceeded: false,
            is_kept: request.after_run == AfterRun::Keep,
        };
        tracing::info!(path = %entry.path.display(), size = %request.size, ?entry.held_by, "job scratch");
        Ok(Self { entry, lock_path, after_run: request.after_run, _lock: lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.entry.path
    }

    /// Measures how much is used, and logs the first time that it exceeds the budget.
    pub fn look(&mut self) {
        let used = match self.entry.held_by {
            HeldBy::Mount => used_of_mount(&self.entry.path),
            HeldBy::Watch => used_below(&self.entry.path),
        };
        self.entry.peak_bytes = self.entry.peak_bytes.max(used.0);
        if used.0 > self.entry.size_bytes && !self.entry.is_exceeded {
            self.entry.is_exceeded = true;
            let (path, size) = (self.entry.path.display(), Bytes(self.entry.size_bytes));
            tracing::warn!(%path, %used, %size, "the job writes more scratch than job_scratch.size");
        }
    }

    /// Removes the directory, unless the job file keeps it.
    #[must_use]
    pub fn end(mut self) -> ScratchEntry {
        self.look();
        let removed = match self.after_run {
            AfterRun::Keep => Ok(()),
            AfterRun::Remove => clear_away(&self.entry.path),
        };
        if let Err(error) = removed.and_then(|()| fs::remove_file(&self.lock_path)) {
            let path = self.entry.path.display();
            tracing::warn!(%path, %error, "scratch of the job is left behind; the next run removes it");
        }
        self.entry
    }
}

/// Locks the usual directory of a job. If another user has taken its name, a directory that is removed
/// later gets a random name; one that is kept must have the usual name to be found again.
fn take(usual: PathBuf, after_run: AfterRun) -> Result<(PathBuf, Flock<File>), ScratchError> {
    match (take_lock(&lock_of(&usual), &usual), after_run) {
        (Ok(lock), _) if fs::symlink_metadata(&usual).is_err() || is_ours(&usual) => {
            Ok((usual, lock))
        }
        (Ok(_), AfterRun::Keep) => Err(ScratchError::NotOurs { path: usual }),
        (Ok(_) | Err(ScratchError::NotOurs { .. }), AfterRun::Remove) => {
            let mut name = usual.into_os_string();
            let random = token::incarnation().map_err(|error| ScratchError::Random { error })?;
            name.push(format!("-{random:016x}"));
            let path = PathBuf::from(name);
            let lock = take_lock(&lock_of(&path), &path)?;
            Ok((path, lock))
        }
        (Err(error), _) => Err(error),
    }
}

fn lock_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn take_lock(lock_path: &Path, path: &Path) -> Result<Flock<File>, ScratchError> {
    let failed = |source| ScratchError::System { path: lock_path.to_owned(), source };
    let not_ours = || ScratchError::NotOurs { path: lock_path.to_owned() };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let opened = options.custom_flags(nix::libc::O_NOFOLLOW).open(lock_path);
    let file = opened.map_err(|error| {
        // Another user may have created a file without rights for this one (EACCES), a link (ELOOP) or a
        // directory (EISDIR).
        let is_taken = fs::symlink_metadata(lock_path).is_ok_and(|found| !is_lock(&found));
        if is_taken { not_ours() } else { failed(error) }
    })?;
    let found = file.metadata().map_err(failed)?;
    if !is_lock(&found) {
        return Err(not_ours());
    }
    let in_use = || ScratchError::InUse { path: path.to_owned() };
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    let lock = locked.map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => in_use(),
        errno => failed(errno.into()),
    })?;
    // Another run may have removed it as a leftover between opening and locking.
    match fs::symlink_metadata(lock_path) {
        Ok(now) if (now.dev(), now.ino()) == (found.dev(), found.ino()) => Ok(lock),
        _ => Err(in_use()),
    }
}

fn is_lock(found: &Metadata) -> bool {
    found.is_file() && found.uid() == geteuid().as_raw()
}

fn make_private(path: &Path) -> Result<(), ScratchError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(ScratchError::System { path: path.to_owned(), source: error });
        }
        _ => {}
    }
    if is_ours(path) { Ok(()) } else { Err(ScratchError::NotOurs { path: path.to_owned() }) }
}

/// Whether `path` is a directory of this user, and no link to one.
fn is_ours(path: &Path) -> bool {
    let owner = geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == owner)
}

/// Mounts a RAM disk of `size`, on a RAM disk only: the tier's kind must stay what the job file says.
fn mount_on(path: &Path, size: Bytes, numa: Option<NumaNode>) -> bool {
    if !statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC) {
        return false;
    }
    let mounted = tmpfs::mount_on(path, "tierfeed", size, numa);
    if let Err(error) = mounted {
        tracing::debug!(%error, "no RAM disk of its own; the job's scratch is watched instead");
    }
    mounted.is_ok()
}

/// Whether a file system is mounted on `path`, which lies in `tier`: an agent before this one mounted it.
fn is_mount(path: &Path, tier: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
    device(path) != device(tier)
}

/// Removes the directory and the RAM disk that is mounted on it.
fn clear_away(path: &Path) -> io::Result<()> {
    // Not mounted, or not permitted: then the removal reports the error.
    while umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn used_of_mount(path: &Path) -> Bytes {
    let used = |status: nix::sys::statvfs::Statvfs| {
        let blocks = status.blocks().saturating_sub(status.blocks_free());
        Bytes(blocks.saturating_mul(status.fragment_size()))
    };
    statvfs(path).map_or(Bytes(0), used)
}

/// The bytes that files below a directory occupy; links are not followed.
fn used_below(path: &Path) -> Bytes {
    let (mut used, mut seen) = (0_u64, 0);
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > ENTRIES_MAX {
                return Bytes(used);
            }
            let Ok(found) = entry.metadata() else { continue };
            used = used.saturating_add(found.blocks().saturating_mul(512));
            if found.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Bytes(used)
}

#[cfg(test)]
mod tests;
