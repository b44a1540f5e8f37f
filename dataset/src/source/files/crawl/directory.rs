//! Reads the names in one directory and queries their files, part by part.
//!
//! Files are queried in the order of the directory and not after sorting: a file system returns
//! names in an order that suits it, and a network file system has sent sizes along with names,
//! which it caches only briefly.

use std::{
    ffi::OsStr,
    mem,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fs::{AtFlags, FileType, RawDir, Stat, fstat, statat},
    io::Errno,
};

use super::Crawl;
use crate::source::{
    SourceError,
    arranged::{Filled, Found},
    files::{mtime_ns, open_directory, size, unreadable},
    names::append,
};

const BLOCK: usize = 1_024;

/// Buffer for the names that one system call returns.
const BUFFER_BYTES: usize = 128 << 10;

pub(super) struct Entry {
    /// Path below the source.
    pub(super) path: Vec<u8>,
    above: Option<Arc<Ancestor>>,
}

impl Entry {
    pub(super) fn root() -> Self {
        Self { path: Vec::new(), above: None }
    }
}

struct Ancestor {
    id: (u64, u64),
    path: Vec<u8>,
    above: Option<Arc<Ancestor>>,
}

/// A directory that was opened, while a part of it is in progress.
struct Entered {
    directory: OwnedFd,
    place: Arc<Ancestor>,
    mtime_ns: i64,
    found: Mutex<Found>,
}

pub(super) struct Block {
    entered: Arc<Entered>,
    names: Vec<u8>,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy)]
struct Candidate {
    /// End of its name; it starts where the previous one ends.
    name_end: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No directory, and selected.
    Taken,
    /// A symbolic link, or a name whose kind the file system does not return.
    Unknown,
}

pub(super) struct Buffers {
    buffer: Vec<u8>,
    path: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { buffer: Vec::with_capacity(BUFFER_BYTES), path: Vec::new() }
    }
}

enum Fault {
    NotAFile,
    DeadLink,
    System(Errno),
}

impl Fault {
    fn at(self, path: PathBuf) -> SourceError {
        match self {
            Self::NotAFile => SourceError::NotAFile { path },
            Self::DeadLink => SourceError::DeadLink { path },
            Self::System(error) => unreadable(path, error),
        }
    }
}

impl Entry {
    fn ancestor(&self, id: (u64, u64)) -> Option<&Ancestor> {
        let mut ancestor = self.above.as_deref();
        while let Some(it) = ancestor.filter(|it| it.id != id) {
            ancestor = it.above.as_deref();
        }
        ancestor
    }
}

impl Entered {
    fn child(&self, path: Vec<u8>) -> Entry {
        Entry { path, above: Some(Arc::clone(&self.place)) }
    }
}

impl Block {
    fn new(entered: &Arc<Entered>) -> Self {
        Self { entered: Arc::clone(entered), names: Vec::new(), candidates: Vec::new() }
    }

    fn push(&mut self, name: &[u8], kind: Kind) {
        self.names.extend_from_slice(name);
        self.candidates.push(Candidate { name_end: self.names.len(), kind });
    }
}

impl Crawl<'_> {
    /// Returns the number of queried objects.
    pub(super) fn enter(&self, entry: Entry, buffers: &mut Buffers) -> u64 {
        let path = entry.path.clone();
        let measured = self.open(entry).and_then(|entered| {
            let measured =
                self.read(&entered, buffers).map_err(|error| unreadable(self.path(&path), error));
            self.leave(entered);
            measured
        });
        measured.unwrap_or_else(|error| {
            self.fail(&path, None, |_| error);
            0
        })
    }

    fn open(&self, entry: Entry) -> Result<Arc<Entered>, SourceError> {
        let refused = |error| unreadable(self.path(&entry.path), error);
        let name: &[u8] = if entry.path.is_empty() { b"." } else { &entry.path };
        let name = Path::new(OsStr::from_bytes(name));
        let directory = open_directory(&self.directory, name).map_err(refused)?;
        let stat = fstat(&directory).map_err(refused)?;
        let id = (stat.st_dev, stat.st_ino);
        if let Some(ancestor) = entry.ancestor(id) {
            let (path, ancestor) = (self.path(&entry.path), self.path(&ancestor.path));
            return Err(SourceError::LinkLoop { path, ancestor });
        }
        let Entry { path, above } = entry;
        Ok(Arc::new(Entered {
            directory,
            place: Arc::new(Ancestor { id, path, above }),
            mtime_ns: mtime_ns(&stat),
            found: Mutex::default(),
        }))
    }

    /// Reads all names, and queries those that no other thread takes.
    fn read(&self, entered: &Arc<Entered>, buffers: &mut Buffers) -> Result<u64, Errno> {
        let Buffers { buffer, path } = buffers;
        let mut measured = 0;
        let mut block = Block::new(entered);
        let mut entries = RawDir::new(&entered.directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                entry => entry?,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            path.clear();
            path.extend_from_slice(&entered.place.path);
            append(path, name);
            match entry.file_type() {
                FileType::Directory if self.selection.enters(path) => {
                    self.add_directory(entered.child(path.clone()));
                }
                FileType::Directory => (),
                FileType::Symlink | FileType::Unknown => block.push(name, Kind::Unknown),
                _ if self.selection.takes(path) => block.push(name, Kind::Taken),
                _ => (),
            }
            if block.candidates.len() == BLOCK {
                let full = mem::replace(&mut block, Block::new(entered));
                measured += self.offer(full).map_or(0, |full| self.measure(full));
            }
        }
        Ok(measured + self.measure(block))
    }

    /// Returns the number of queried objects.
    pub(super) fn measure(&self, block: Block) -> u64 {
        let Block { entered, names, candidates } = block;
        let mut found = Found::default();
        let mut start = 0;
        for Candidate { name_end, kind } in candidates {
            let name = &names[mem::replace(&mut start, name_end)..name_end];
            match self.stat(&entered, name, kind) {
                Ok(Some(file)) => found.push(name, size(&file), mtime_ns(&file)),
                Ok(None) => (),
                Err(fault) => {
                    self.fail(&entered.place.path, Some(name), |path| fault.at(path));
                }
            }
        }
        let measured = found.len() as u64;
        entered.found.lock().unwrap_or_else(PoisonError::into_inner).append(found);
        self.leave(entered);
        measured
    }

    /// `None` if it is not selected, or is a directory to be read.
    fn stat(&self, entered: &Entered, name: &[u8], kind: Kind) -> Result<Option<Stat>, Fault> {
        let stat = statat(&entered.directory, name, AtFlags::empty());
        let file_type = stat.map(|it| FileType::from_raw_mode(it.st_mode));
        if kind == Kind::Unknown {
            let mut path = entered.place.path.clone();
            append(&mut path, name);
            if file_type == Ok(FileType::Directory) {
                if self.selection.enters(&path) {
                    self.add_directory(entered.child(path));
                }
                return Ok(None);
            }
            if !self.selection.takes(&path) {
                return Ok(None);
            }
        }
        match (stat, file_type) {
            (Ok(stat), Ok(FileType::RegularFile)) => Ok(Some(stat)),
            (Ok(_), _) => Err(Fault::NotAFile),
            (Err(Errno::NOENT), _) if is_there(entered, name) => Err(Fault::DeadLink),
            (Err(error), _) => Err(Fault::System(error)),
        }
    }

    /// The last thread that leaves a directory sorts its objects.
    fn leave(&self, entered: Arc<Entered>) {
        let Some(Entered { place, mtime_ns, found, .. }) = Arc::into_inner(entered) else { return };
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner).arranged();
        self.fill(Filled { name: place.path.clone(), mtime_ns: Some(mtime_ns), found });
    }
}

fn is_there(entered: &Entered, name: &[u8]) -> bool {
    statat(&entered.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
