//! Reads one file, and detects whether it differs from the listing.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{mtime_ns, size, unreadable};
use crate::{
    read_at::ReadAt,
    source::{Listed, Opened, SourceError, names::below},
};

#[derive(Debug)]
pub(super) struct OpenedFile {
    file: File,
    path: PathBuf,
    size: u64,
    mtime_ns: i64,
}

impl OpenedFile {
    pub(super) fn stat(root: &Path, path: &[u8]) -> Result<Listed, SourceError> {
        let place = place(root, path)?;
        let stat = rustix::fs::stat(&place);
        let stat = stat.map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => SourceError::NoSource { path: place.clone() },
            error => unreadable(place.clone(), error),
        })?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SourceError::NotAFile { path: place });
        }
        let (size, mtime_ns) = (size(&stat), mtime_ns(&stat));
        Ok(Listed { path: path.to_vec(), size, mtime_ns, etag: None })
    }

    pub(super) fn open(root: &Path, object: &Listed) -> Result<Self, SourceError> {
        let path = place(root, &object.path)?;
        // Otherwise opening would block on a pipe that replaced the file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::io::retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty()));
        let file = File::from(opened.map_err(|error| unreadable(path.clone(), error))?);
        let opened = Self { file, path, size: object.size, mtime_ns: object.mtime_ns };
        opened.check(rustix::fs::fstat(&opened.file))?;
        Ok(opened)
    }

    fn check(&self, stat: rustix::io::Result<Stat>) -> Result<(), SourceError> {
        let stat = stat.map_err(|error| unreadable(self.path.clone(), error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SourceError::NotAFile { path: self.path.clone() });
        }
        if (size(&stat), mtime_ns(&stat)) != (self.size, self.mtime_ns) {
            return Err(SourceError::Changed { place: self.path.display().to_string() });
        }
        Ok(())
    }
}

/// Keeps invariant 2 of [`crate::source`].
fn place(root: &Path, path: &[u8]) -> Result<PathBuf, SourceError> {
    let name = Path::new(OsStr::from_bytes(path));
    if name.components().any(|it| !matches!(it, Component::Normal(_) | Component::CurDir)) {
        return Err(SourceError::Outside { name: name.display().to_string() });
    }
    Ok(below(root, path))
}

impl ReadAt for OpenedFile {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.file, into, offset)
    }
}

impl Opened for OpenedFile {
    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn verify(&self) -> Result<(), SourceError> {
        // The handle shows writes, the path a file that replaced this one.
        self.check(rustix::fs::fstat(&self.file))?;
        self.check(rustix::fs::stat(&self.path))
    }
}
