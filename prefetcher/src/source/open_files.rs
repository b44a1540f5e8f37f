//! Keeps the objects that hold many samples open between reads.
//!
//! Opening a file costs as much as reading a small sample, on a network file system far more. At most
//! a fixed number of files is open; the one that was not read for longest goes first.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Files by path, at most `files_max` of them.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    files_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Kept>,
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    file: Arc<File>,
    last_use: u64,
}

impl OpenFiles {
    /// Keeps at most `files_max` files open, beside those that are being read.
    pub(crate) fn new(files_max: usize) -> Self {
        Self { files_max, state: Mutex::default() }
    }

    /// The open file at `path`, and keeps it open.
    ///
    /// # Errors
    ///
    /// As [`open`].
    pub(crate) fn get(&self, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = self.lock().touch(path) {
            return Ok(file);
        }
        // Opened without the lock: on a network file system this takes a round trip.
        let file = Arc::new(open(path)?);
        if self.files_max > 0 {
            self.lock().keep(path, Arc::clone(&file), self.files_max);
        }
        Ok(file)
    }

    /// Opens `path` anew at its next use.
    pub(crate) fn forget(&self, path: &Path) {
        self.lock().files.remove(path);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, path: &Path) -> Option<Arc<File>> {
        self.uses += 1;
        let kept = self.files.get_mut(path)?;
        kept.last_use = self.uses;
        Some(Arc::clone(&kept.file))
    }

    /// Linear on purpose: the limit is some hundred files, and this runs once per opened file.
    fn keep(&mut self, path: &Path, file: Arc<File>, files_max: usize) {
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
/// `O_NONBLOCK` changes nothing for files, but a pipe that took an object's name hangs nobody.
///
/// # Errors
///
/// As `open(2)`.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
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
        let open_files = OpenFiles::new(2);
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
        let open_files = OpenFiles::new(2);
        let first = open_files.get(file.path()).unwrap();
        open_files.forget(file.path());
        assert!(!Arc::ptr_eq(&first, &open_files.get(file.path()).unwrap()));
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open_files = OpenFiles::new(0);
        let opened = open_files.get(file.path()).unwrap();
        assert_eq!(Arc::strong_count(&opened), 1);
    }
}
