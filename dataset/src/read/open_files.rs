//! Keeps the objects that hold many samples open between reads.
//!
//! Opening a file costs as much as reading a small sample, on a network file system far more. At
//! most a fixed number of files is open; the least recently used one is closed first.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{
    Advice, CWD, Mode, OFlags, ResolveFlags, fadvise, fcntl_getfl, fcntl_setfl, openat2,
};

/// Files by path, at most `files_max` of them, each with data of type `T`.
#[derive(Debug)]
pub struct OpenFiles<T = File> {
    files_max: usize,
    open: fn(&Path) -> io::Result<T>,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    files: BTreeMap<PathBuf, Kept<T>>,
    uses: u64,
}

#[derive(Debug)]
struct Kept<T> {
    file: Arc<T>,
    last_use: u64,
}

impl<T> OpenFiles<T> {
    /// Keeps at most `files_max` files open, in addition to those that are being read.
    pub fn new(files_max: usize, open: fn(&Path) -> io::Result<T>) -> Self {
        let state = State { files: BTreeMap::new(), uses: 0 };
        Self { files_max, open, state: Mutex::new(state) }
    }

    /// The same limit, with no file open; further files are opened by `open`.
    #[must_use]
    pub fn opened_with(self, open: fn(&Path) -> io::Result<T>) -> Self {
        Self::new(self.files_max, open)
    }

    pub fn get(&self, path: &Path) -> io::Result<Arc<T>> {
        if let Some(file) = self.get_open(path) {
            return Ok(file);
        }
        // Opened without the lock: on a network file system this takes a round trip.
        let file = Arc::new((self.open)(path)?);
        if self.files_max > 0 {
            self.lock().keep(path, Arc::clone(&file), self.files_max);
        }
        Ok(file)
    }

    pub fn get_open(&self, path: &Path) -> Option<Arc<T>> {
        self.lock().touch(path)
    }

    pub fn forget(&self, path: &Path) {
        self.lock().files.remove(path);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn touch(&mut self, path: &Path) -> Option<Arc<T>> {
        self.uses += 1;
        let kept = self.files.get_mut(path)?;
        kept.last_use = self.uses;
        Some(Arc::clone(&kept.file))
    }

    /// Linear on purpose: the limit is some hundred files, and this runs once per opened file.
    fn keep(&mut self, path: &Path, file: Arc<T>, files_max: usize) {
        self.files.insert(path.into(), Kept { file, last_use: self.uses });
        if self.files.len() > files_max {
            let oldest = self.files.iter().min_by_key(|(_, kept)| kept.last_use);
            let oldest = oldest.map(|(path, _)| path.clone());
            oldest.map(|path| self.files.remove(&path));
        }
    }
}

/// Opens a file for reading.
///
/// `O_NONBLOCK` has no effect on files, but opening a pipe with the object's name does not block.
///
/// # Errors
///
/// As `open(2)`.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, 0)
}

/// As [`open`], for samples in any order: a read brings its own pages into the page cache, and no others.
///
/// # Errors
///
/// As `open(2)`.
pub fn open_for_parts(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    // Only advice: without it the kernel reads ahead.
    let _ = fadvise(&file, 0, None, Advice::Random);
    Ok(file)
}

/// As [`open`], past the page cache.
///
/// # Errors
///
/// As `open(2)`: `EINVAL` if the file system does not support it.
pub fn open_direct(path: &Path) -> io::Result<File> {
    let file = open_with(path, libc::O_DIRECT)?;
    // Only opening must not wait for a peer. A ring fails reads of a file in non-blocking mode if
    // its file system cannot tell whether they would block.
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// As [`open`], if that needs no wait: the kernel has every component of the path cached.
///
/// # Errors
///
/// As `openat2(2)`: `EAGAIN` if it would wait, `ENOSYS` before Linux 5.6.
pub fn open_known(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED)?;
    Ok(file.into())
}

fn open_with(path: &Path, flag: libc::c_int) -> io::Result<File> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY | flag;
    File::options().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_file_that_was_not_read_for_longest_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| directory.path().join(name));
        for path in &paths {
            fs::write(path, "x").unwrap();
        }
        let open_files = OpenFiles::new(2, open);
        let first = open_files.get(&paths[0]).unwrap();
        open_files.get(&paths[1]).unwrap();
        open_files.get(&paths[0]).unwrap();
        open_files.get(&paths[2]).unwrap();
        assert!(Arc::ptr_eq(&first, &open_files.get(&paths[0]).unwrap()), "a was used since");
        let kept: Vec<_> = open_files.lock().files.keys().cloned().collect();
        assert_eq!(kept, [paths[0].clone(), paths[2].clone()]);
    }

    #[test]
    fn a_forgotten_file_is_opened_anew() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open_files = OpenFiles::new(2, open);
        let first = open_files.get(file.path()).unwrap();
        open_files.forget(file.path());
        assert!(!Arc::ptr_eq(&first, &open_files.get(file.path()).unwrap()));
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open_files = OpenFiles::new(0, open);
        let opened = open_files.get(file.path()).unwrap();
        assert_eq!(Arc::strong_count(&opened), 1);
    }
}
