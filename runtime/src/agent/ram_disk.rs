//! The RAM disk of a scratch tier without a path: the agent makes it, and removes it when it ends.
//!
//! It is a tmpfs that is mounted in the run directory, so trainers see it at the same path; its pages are
//! preferred on the NUMA node of the tier. Where this process may not mount, it is a directory of a RAM disk
//! that is there. Chunks are placed file by file in both cases (`prefetcher/src/tier/ram_disk.rs`), so the
//! option of the mount is for the files of the job.
//!
//! The node is preferred, not enforced (`mpol=prefer`, not `mpol=bind`): on a full node the kernel would kill
//! a process that writes there. What lies elsewhere is found out and reported.
//!
//! Invariants:
//!
//! 1. A RAM disk is removed only if no agent has locked it, and no trainer works in a directory on it.
//! 2. Only directories of this user with the names of this module are removed.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    mount::{MntFlags, umount2},
    sys::statfs::{TMPFS_MAGIC, statfs},
    unistd::geteuid,
};
use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_resource_gatherer::{Sysroot, inventory::mount};
use xxhash_rust::xxh3::xxh3_64;

use super::{scratch, tmpfs};

/// The source of the mount, by which a RAM disk of a killed agent is found.
const SOURCE: &str = "tierfeed-scratch";

/// The RAM disk that a process without the right to mount uses.
const SHARED: &str = "/dev/shm";

/// The size of a RAM disk that is mounted to find out whether this process may.
const PROBED: Bytes = Bytes::mib(1);

/// Entries of [`SHARED`] that are examined.
const LOOKED_AT_MAX: usize = 10_000;

/// The number of times that a RAM disk is made because another agent took it for a leftover.
const ATTEMPTS: u32 = 3;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RamDiskError {
    #[error("{}: {source}", .path.display())]
    System { path: PathBuf, source: io::Error },
    #[error(
        "this process may not mount a RAM disk ({mount}), and {} is none that it can use ({source}); name \
         a directory on a RAM disk as tiers.scratch.path", .path.display()
    )]
    Nowhere { mount: Errno, path: PathBuf, source: io::Error },
    #[error("{}: another agent uses this RAM disk; choose another --run-dir", .path.display())]
    InUse { path: PathBuf },
}

/// Removed when it is dropped.
#[derive(Debug)]
pub(super) struct RamDisk {
    path: PathBuf,
    numa: Option<NumaNode>,
    is_mount: bool,
    /// Held until the RAM disk is removed.
    lock: Option<Flock<File>>,
}

impl RamDisk {
    /// Makes a RAM disk at `path`, or elsewhere if this process may not mount; at most `size` bytes are
    /// written to it.
    pub(super) fn make(path: &Path, size: Bytes, locality: Locality) -> Result<Self, RamDiskError> {
        for _ in 0..ATTEMPTS {
            if let Some(mut made) = Self::try_make(path, size, locality)? {
                made.numa = locality.node();
                return Ok(made);
            }
        }
        Err(RamDiskError::InUse { path: path.to_owned() })
    }

    /// `None` if another agent, which looked for leftovers, removed it before it was locked.
    fn try_make(
        path: &Path,
        size: Bytes,
        locality: Locality,
    ) -> Result<Option<Self>, RamDiskError> {
        create(path)?;
        if is_mount(path) {
            // A killed agent made it, and trainers of its run still work on it.
            return Self::lock(path.to_owned(), true);
        }
        match tmpfs::mount_on(path, SOURCE, size, locality.node()) {
            Ok(options) => {
                tracing::info!(path = %path.display(), options, "RAM disk of the scratch tier");
                Self::lock(path.to_owned(), true)
            }
            Err(refused) => Self::in_shared(path, refused),
        }
    }

    /// A directory of a RAM disk that is there.
    fn in_shared(path: &Path, refused: Errno) -> Result<Option<Self>, RamDiskError> {
        if is_on_ram_disk(path) {
            return Self::lock(path.to_owned(), false);
        }
        let nowhere =
            |source| RamDiskError::Nowhere { mount: refused, path: SHARED.into(), source };
        if !is_on_ram_disk(Path::new(SHARED)) {
            return Err(nowhere(io::ErrorKind::NotFound.into()));
        }
        let own = shared_path(path);
        match create(&own) {
            Err(RamDiskError::System { source, .. }) => return Err(nowhere(source)),
            made => made?,
        }
        tracing::info!(
            path = %own.display(), %refused,
            "no RAM disk may be mounted; the scratch tier uses one that is there"
        );
        // The tier's directory in the run directory is not used.
        let _ = fs::remove_dir(path);
        Self::lock(own, false)
    }

    fn lock(path: PathBuf, is_mount: bool) -> Result<Option<Self>, RamDiskError> {
        let failed = |source| RamDiskError::System { path: path.clone(), source };
        let directory = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let opened = directory.metadata().map_err(failed)?;
        let lock = match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Err(RamDiskError::InUse { path }),
            Err((_, errno)) => return Err(failed(errno.into())),
        };
        let is_there = fs::symlink_metadata(&path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (opened.dev(), opened.ino()));
        Ok(is_there.then_some(Self { path, numa: None, is_mount, lock: Some(lock) }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory, and the NUMA node on which its files shall lie.
    pub(super) fn place(&self) -> (&Path, Option<NumaNode>) {
        (&self.path, self.numa)
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        if self.lock.is_none() {
            return;
        }
        if let Err(error) = remove(&self.path, self.is_mount) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the RAM disk is left behind; the next run removes it");
        }
    }
}

/// The bytes that are free on the RAM disk that `path` uses if this process may not mount, 0 if there is
/// none; `None` if memory alone limits it.
pub(super) fn room_without_mount(path: &Path) -> Option<Bytes> {
    if may_mount(path) {
        return None;
    }
    let there = path.parent().filter(|parent| is_on_ram_disk(parent)).unwrap_or(Path::new(SHARED));
    let found = statfs(there).ok().filter(|found| found.filesystem_type() == TMPFS_MAGIC);
    let block = |size| u64::try_from(size).unwrap_or(0);
    let free = found.map(|it| it.blocks_available().saturating_mul(block(it.block_size())));
    Some(Bytes(free.unwrap_or(0)))
}

/// Whether this process may mount a RAM disk there, or a killed agent did.
fn may_mount(path: &Path) -> bool {
    let is_made = create(path).is_ok();
    if is_made && is_mount(path) {
        return true;
    }
    let mounted = is_made && tmpfs::mount_on(path, SOURCE, PROBED, None).is_ok();
    if let Err(error) = remove(path, mounted) {
        tracing::debug!(path = %path.display(), %error, "the directory of a RAM disk is left behind");
    }
    mounted
}

fn is_on_ram_disk(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

/// The directory of a run on the shared RAM disk.
fn shared_path(path: &Path) -> PathBuf {
    let run = xxh3_64(path.as_os_str().as_encoded_bytes());
    Path::new(SHARED).join(format!("{SOURCE}-{}-{run:016x}", geteuid()))
}

/// Removes the RAM disks of killed agents of this user. What cannot be removed stays.
pub(super) fn remove_leftovers() {
    for mount in mount::lines(Sysroot::live()).unwrap_or_default() {
        if mount.file_system == "tmpfs" && mount.source == SOURCE {
            remove_orphan(&mount.path, true);
        }
    }
    let prefix = format!("{SOURCE}-{}-", geteuid());
    for entry in fs::read_dir(SHARED).into_iter().flatten().flatten().take(LOOKED_AT_MAX) {
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            remove_orphan(&entry.path(), false);
        }
    }
}

fn remove_orphan(path: &Path, is_mount: bool) {
    if !is_ours(path) {
        return;
    }
    let lock = File::open(path).map(|it| Flock::lock(it, FlockArg::LockExclusiveNonblock));
    let Ok(Ok(_lock)) = lock else { return };
    scratch::remove_leftovers(path);
    let is_empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if !is_empty {
        return;
    }
    match remove(path, is_mount) {
        Ok(()) => tracing::info!(path = %path.display(), "the RAM disk of a killed run is removed"),
        Err(error) => tracing::debug!(path = %path.display(), %error, "a RAM disk is left behind"),
    }
}

fn remove(path: &Path, is_mount: bool) -> io::Result<()> {
    if is_mount {
        umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?;
    }
    fs::remove_dir(path)
}

fn create(path: &Path) -> Result<(), RamDiskError> {
    let failed = |source| RamDiskError::System { path: path.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    if is_ours(path) { Ok(()) } else { Err(failed(io::ErrorKind::PermissionDenied.into())) }
}

/// Whether `path` is a directory of this user, and no link to one.
fn is_ours(path: &Path) -> bool {
    let owner = geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == owner)
}

fn is_mount(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
    path.parent().is_some_and(|parent| device(path) != device(parent))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tierfeed_test_needs::{Need, skip};

    use super::*;

    const SIZE: Bytes = Bytes::mib(1);

    fn mounts_below(path: &Path) -> usize {
        let mounts = mount::lines(Sysroot::live()).unwrap();
        mounts.iter().filter(|mount| mount.path.starts_with(path)).count()
    }

    /// As a kill does: the lock goes, the files stay.
    fn kill(mut disk: RamDisk) {
        disk.lock = None;
    }

    /// A folder in which this process may mount.
    fn folder() -> Option<TempDir> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let probe = path.join("probe");
        create(&probe).unwrap();
        match tmpfs::mount_on(&probe, SOURCE, SIZE, None) {
            Ok(_) => remove(&probe, true).unwrap(),
            Err(error) => {
                skip(Need::Mounts, error);
                return None;
            }
        }
        Some(folder)
    }

    #[test]
    fn a_ram_disk_has_its_size_and_is_gone_at_the_end() {
        let Some(folder) = folder() else { return };
        let path = folder.path().canonicalize().unwrap().join("scratch");
        let disk = RamDisk::make(&path, SIZE, Locality::Numa(NumaNode(0))).unwrap();
        assert_eq!((disk.path(), mounts_below(&path)), (path.as_path(), 1));
        fs::write(path.join("small"), vec![1; 1000]).unwrap();
        let error = fs::write(path.join("large"), vec![1; 2 << 20]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ENOSPC as i32));
        let mounts = mount::lines(Sysroot::live()).unwrap();
        let options = &mounts.iter().find(|mount| mount.path == path).unwrap().options;
        assert!(options.contains("mpol=prefer=static:0"), "{options}");
        drop(disk);
        assert_eq!((path.exists(), mounts_below(folder.path())), (false, 0));
    }

    #[test]
    fn memory_alone_limits_a_ram_disk_that_may_be_mounted() {
        let Some(folder) = folder() else { return };
        let path = folder.path().canonicalize().unwrap().join("scratch");
        assert_eq!(room_without_mount(&path), None);
        assert_eq!((path.exists(), mounts_below(folder.path())), (false, 0));
    }

    #[test]
    fn what_a_killed_agent_left_is_removed_and_what_a_live_one_has_is_not() {
        let Some(folder) = folder() else { return };
        let root = folder.path().canonicalize().unwrap();
        let [killed, live] = ["killed", "live"].map(|name| root.join(name));
        let disk = RamDisk::make(&live, SIZE, Locality::Anywhere).unwrap();
        kill(RamDisk::make(&killed, SIZE, Locality::Anywhere).unwrap());
        remove_leftovers();
        assert_eq!((killed.exists(), mounts_below(&root)), (false, 1));
        drop(disk);
        assert_eq!(mounts_below(&root), 0);
    }

    #[test]
    fn files_of_others_keep_a_ram_disk() {
        let Some(folder) = folder() else { return };
        let path = folder.path().canonicalize().unwrap().join("scratch");
        let disk = RamDisk::make(&path, SIZE, Locality::Anywhere).unwrap();
        fs::write(path.join("not ours"), "to lose").unwrap();
        kill(disk);
        remove_leftovers();
        assert_eq!(fs::read(path.join("not ours")).unwrap(), b"to lose");
        let again = RamDisk::make(&path, SIZE, Locality::Anywhere).unwrap();
        drop(again);
        assert!(!path.exists());
    }

    #[test]
    fn without_the_right_to_mount_it_is_a_directory_of_another_ram_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scratch");
        create(&path).unwrap();
        let disk = RamDisk::in_shared(&path, Errno::EPERM).unwrap().unwrap();
        let own = disk.path().to_owned();
        let taken = RamDisk::in_shared(&path, Errno::EPERM).unwrap_err();
        assert!(matches!(taken, RamDiskError::InUse { .. }), "{taken}");
        kill(disk);
        remove_leftovers();
        assert!(!own.exists(), "{}", own.display());
    }
}
