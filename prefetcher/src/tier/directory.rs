//! A directory in which chunks are unnamed files, on a RAM disk or on a disk.
//!
//! The kernel frees an unnamed file with its last descriptor: `kill -9` leaves nothing behind, and no other
//! process can open the cache of a job. On a disk every chunk is allocated in full before it is used, on a
//! RAM disk every slice of it: a full file system is found before a copy begins, never in the middle of it.
//!
//! Deliberately absent: any way to find a chunk again after a restart.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat, posix_fallocate},
    sys::{
        stat::Mode,
        statfs::{TMPFS_MAGIC, fstatfs},
    },
    unistd::{UnlinkatFlags, unlinkat},
};
use tierfeed_core::units::Bytes;

/// How many names are tried if files with these names exist already.
const NAMES_TRIED: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    Memory,
    Tmpfs,
    /// Any other file system.
    Disk,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The parent is not created: a missing parent most often means that a disk is not mounted, and the
    /// chunks would fill the root file system.
    #[error("cannot create {}: {source}; its parent must exist", .path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("cannot open the directory {}: {source}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot create a file in {}: {source}; it must be writable", .path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub(crate) struct Directory {
    opened: File,
    medium: Medium,
    names: AtomicU32,
}

impl Directory {
    /// Opens `path`, or creates it for this user alone, and creates a file in it as a test.
    pub(crate) fn open(path: &Path) -> Result<Self, DirectoryError> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => (),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(source) => return Err(DirectoryError::Create { path: path.into(), source }),
        }
        let flags = libc::O_DIRECTORY | libc::O_CLOEXEC;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(|source| DirectoryError::Open { path: path.into(), source })?;
        let medium = match fstatfs(&opened) {
            Ok(status) if status.filesystem_type() == TMPFS_MAGIC => Medium::Tmpfs,
            _ => Medium::Disk,
        };
        let directory = Self { opened, medium, names: AtomicU32::new(0) };
        directory
            .create_file()
            .map_err(|source| DirectoryError::Unwritable { path: path.into(), source })?;
        Ok(directory)
    }

    pub(crate) fn medium(&self) -> Medium {
        self.medium
    }

    /// Creates an unnamed file for a chunk of `len` bytes on a RAM disk, none of them allocated
    /// ([`allocate_range`]). Of the free bytes of the RAM disk, `missing` are for chunks that were created
    /// before.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `fstatfs(2)`; `ENOSPC` if the bytes are not there.
    pub(crate) fn reserve_chunk(&self, len: Bytes, missing: Bytes) -> io::Result<File> {
        let status = fstatfs(&self.opened)?;
        let block = u64::try_from(status.block_size()).unwrap_or(0);
        let free = status.blocks_available().saturating_mul(block);
        // A RAM disk without a limit reports no blocks at all.
        if status.blocks() > 0 && free.saturating_sub(missing.0) < len.0 {
            return Err(Errno::ENOSPC.into());
        }
        self.create_file()
    }

    /// Creates an unnamed file of `len` bytes, all of them allocated.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `posix_fallocate(3)`: `ENOSPC` or `EDQUOT` if the bytes are not there.
    pub(crate) fn create_chunk(&self, len: Bytes) -> io::Result<File> {
        let file = self.create_file()?;
        allocate_range(&file, Bytes(0), len)?;
        Ok(file)
    }

    fn create_file(&self) -> io::Result<File> {
        let flags = OFlag::O_TMPFILE | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        match openat(&self.opened, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(file) => Ok(File::from(file)),
            // A file system without O_TMPFILE fails with EOPNOTSUPP, a kernel without it with EISDIR.
            Err(Errno::EOPNOTSUPP | Errno::EISDIR) => self.create_and_unlink(),
            Err(error) => Err(error.into()),
        }
    }

    /// For NFS and other file systems without `O_TMPFILE`.
    fn create_and_unlink(&self) -> io::Result<File> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        for _ in 0..NAMES_TRIED {
            let number = self.names.fetch_add(1, Ordering::Relaxed);
            let name = format!(".tierfeed-{}-{number}", std::process::id());
            match openat(&self.opened, name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR) {
                Ok(file) => {
                    unlinkat(&self.opened, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
                    return Ok(File::from(file));
                }
                Err(Errno::EEXIST) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EEXIST.into())
    }
}

/// Allocates a range of a file, which becomes long enough for it.
///
/// # Errors
///
/// As `posix_fallocate(3)`: `ENOSPC` or `EDQUOT` if the bytes are not there.
pub(crate) fn allocate_range(file: &File, offset: Bytes, len: Bytes) -> io::Result<()> {
    let as_offset = |bytes: Bytes| i64::try_from(bytes.0).map_err(|_| Errno::EFBIG);
    let (offset, len) = (as_offset(offset)?, as_offset(len)?);
    loop {
        match posix_fallocate(file, offset, len) {
            Err(Errno::EINTR) => (),
            outcome => return Ok(outcome?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn entries(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn a_missing_directory_is_created_for_its_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("tier");
        Directory::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_missing_parent_is_not_created() {
        let parent = tempfile::tempdir().unwrap();
        let error = Directory::open(&parent.path().join("unmounted/tier")).unwrap_err();
        assert!(matches!(error, DirectoryError::Create { .. }), "{error}");
        assert_eq!(entries(parent.path()), 0);
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Directory::open(file.path()).unwrap_err();
        assert!(matches!(error, DirectoryError::Open { .. }), "{error}");
    }

    #[test]
    fn a_chunk_has_no_name_and_all_its_bytes() {
        use std::os::unix::fs::MetadataExt as _;

        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        let chunk = directory.create_chunk(Bytes::mib(1)).unwrap();
        assert_eq!(entries(path.path()), 0);
        let metadata = chunk.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.nlink()), (1 << 20, 0));
        assert!(metadata.blocks() * 512 >= 1 << 20, "{} blocks", metadata.blocks());
    }

    #[test]
    fn without_o_tmpfile_a_chunk_loses_its_name_at_once() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        let squatted = path.path().join(format!(".tierfeed-{}-0", std::process::id()));
        fs::write(&squatted, "not ours").unwrap();
        let chunk = directory.create_and_unlink().unwrap();
        assert_eq!(chunk.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(entries(path.path()), 1, "only the squatted name is left");
        assert_eq!(fs::read(squatted).unwrap(), b"not ours");
    }

    #[test]
    fn a_chunk_that_does_not_fit_is_refused() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        assert!(directory.create_chunk(Bytes(u64::MAX)).is_err());
        assert!(directory.create_chunk(Bytes(1 << 60)).is_err());
    }
}
