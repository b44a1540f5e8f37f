//! Lists and opens files, on any file system that is mounted.
//!
//! 1. Symbolic links are followed; one that leads to a directory above itself is an error.
//! 2. The time of a directory is read before it is listed, so that a file that is added during the
//!    listing can be detected later.
//! 3. Opening never blocks on another process, as opening a pipe would.
//!
//! A source that is one file is a listing of that file, independent of the selection: the user
//! named it.

mod crawl;
mod opened;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};

use self::{crawl::Crawl, opened::OpenedFile};
use super::{
    Listed, Listing, Opened, Selection, SourceError, Store,
    arranged::{Filled, Found, listing},
};

#[derive(Debug)]
pub struct FileStore {
    root: PathBuf,
}

impl FileStore {
    /// The store at `root`, which is not accessed yet.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn single(stat: &Stat) -> Listing {
        let mut found = Found::default();
        found.push(b"", size(stat), mtime_ns(stat));
        listing(vec![Filled { name: Vec::new(), mtime_ns: None, found }])
    }
}

impl Store for FileStore {
    fn list(
        &self,
        selection: &dyn Selection,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Listing, SourceError> {
        let refused = |error| match error {
            Errno::NOENT | Errno::NOTDIR => SourceError::NoSource { path: self.root.clone() },
            error => unreadable(self.root.clone(), error),
        };
        let stat = rustix::fs::stat(&self.root).map_err(refused)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                progress(1);
                Ok(Self::single(&stat))
            }
            FileType::Directory => {
                let directory = open_directory(rustix::fs::CWD, &self.root).map_err(refused)?;
                Crawl::new(&self.root, directory, selection).run(progress)
            }
            _ => Err(SourceError::NotAFile { path: self.root.clone() }),
        }
    }

    fn stat(&self, path: &[u8]) -> Result<Listed, SourceError> {
        OpenedFile::stat(&self.root, path)
    }

    fn open(&self, object: &Listed) -> Result<Box<dyn Opened>, SourceError> {
        Ok(Box::new(OpenedFile::open(&self.root, object)?))
    }
}

fn open_directory(below: impl std::os::fd::AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(&below, path, flags, Mode::empty()))
}

fn unreadable(path: PathBuf, error: Errno) -> SourceError {
    match error {
        Errno::ACCESS | Errno::PERM => SourceError::Denied { path },
        Errno::NOENT | Errno::NOTDIR => SourceError::Changed { place: path.display().to_string() },
        error => SourceError::Unreadable { path, source: io::Error::from(error) },
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn mtime_ns(stat: &Stat) -> i64 {
    let part = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(part)
}
