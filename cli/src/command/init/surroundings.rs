//! Looks into a folder for scripts and for the names by which datasets are recognized.
//!
//! Directory by directory, those near the folder first; of a large dataset only a part is seen, which is
//! enough to recognize it.

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use tierfeed_dataset::recognition::Directory;

const ENTRIES_MAX: usize = 50_000;

/// Entries of one directory that are looked at, so that its neighbours are seen too.
const ENTRIES_OF_DIRECTORY_MAX: usize = 2_000;

/// Directories that lead from the folder to a file.
const DEPTH_MAX: usize = 6;

/// Scripts lie in the folder, or as deep as this below it.
const SCRIPT_DEPTH_MAX: usize = 1;

const SCRIPTS_MAX: usize = 32;

/// Directories that hold the code of others.
const FOREIGN: [&str; 4] = ["node_modules", "__pycache__", "site-packages", "build"];

#[derive(Debug, Default)]
pub(super) struct Surroundings {
    pub(super) scripts: Vec<PathBuf>,
    pub(super) directories: Vec<Directory>,
}

impl Surroundings {
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let mut left = VecDeque::from([(PathBuf::new(), 0)]);
        let mut entries = 0;
        while let Some((path, depth)) = left.pop_front() {
            let listed = fs::read_dir(folder.join(&path));
            // Only the folder itself must be readable.
            let Ok(listed) = (if depth == 0 { Ok(listed?) } else { listed }) else { continue };
            let mut directory = Directory { path: bytes(&path), files: Vec::new() };
            for entry in listed.take(ENTRIES_OF_DIRECTORY_MAX).flatten() {
                entries += 1;
                let (name, kind) = (entry.file_name(), entry.path());
                if name.as_bytes().starts_with(b".") {
                    continue;
                }
                if !kind.is_dir() {
                    found.note_script(&path.join(&name), depth);
                    directory.files.push(name.as_bytes().to_vec());
                } else if depth < DEPTH_MAX && !is_foreign(&kind) {
                    left.push_back((path.join(&name), depth + 1));
                }
            }
            found.directories.push(directory);
            if entries > ENTRIES_MAX {
                break;
            }
        }
        found.scripts.sort_by_key(|path| (path.components().count(), path.clone()));
        found.scripts.truncate(SCRIPTS_MAX);
        found.scripts = found.scripts.iter().map(|path| joined(folder, path)).collect();
        Ok(found)
    }

    fn note_script(&mut self, path: &Path, depth: usize) {
        let is_script = path.extension().is_some_and(|it| it == "py" || it == "ipynb");
        if is_script && depth <= SCRIPT_DEPTH_MAX {
            self.scripts.push(path.to_owned());
        }
    }
}

/// A path below a folder as a user would write it: without `./` before it.
pub(super) fn joined(folder: &Path, path: &Path) -> PathBuf {
    if folder == Path::new(".") { path.to_owned() } else { folder.join(path) }
}

fn is_foreign(directory: &Path) -> bool {
    let is_named = directory.file_name().is_some_and(|name| FOREIGN.iter().any(|it| name == *it));
    is_named || directory.join("pyvenv.cfg").exists()
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}
