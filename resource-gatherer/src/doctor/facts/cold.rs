//! Tries how files of a dataset can be read, on one file that is there or on one without a name.
//!
//! Only reads what is not ours, 4 KiB of it.

use std::{
    fs::{self, File},
    io::{self, IoSliceMut},
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    path::{Path, PathBuf},
};

use rustix::io::{ReadWriteFlags, preadv2};
use tierfeed_core::units::Bytes;
use tierfeed_file_io::{
    AlignedBuffer,
    buffer::ALIGNMENT,
    direct::{self, Alignment, Caching},
};
use tierfeed_numa_memory::cached;

use super::Attempt;
use crate::{
    inventory::mount::{self, Medium, Mount},
    sysroot::Sysroot,
};

/// Folders of a dataset that are searched for a file, at most, and entries of each.
const FOLDERS_MAX: usize = 100;
const ENTRIES_MAX: usize = 100;

/// `RWF_DONTCACHE` of `linux/fs.h`.
const DONT_CACHE: u32 = 0x80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdFiles {
    pub path: PathBuf,
    /// The type of its file system, for instance `ext4`.
    pub file_system: String,
    pub medium: Medium,
    /// Whether a read past the page cache works.
    pub direct: Attempt,
    /// Alignment that such a read requires of memory and of the offset in the file, as far as it is known.
    pub alignment: Option<Alignment>,
    /// Whether a read can leave the page cache as it was (`RWF_DONTCACHE`).
    pub dont_cache: Attempt,
    /// Whether the kernel tells what the page cache holds (`cachestat`).
    pub view: Attempt,
}

impl ColdFiles {
    /// Facts about the files below `path`, which may be a file itself; without a file there, nothing is
    /// tried. `None` if nothing is mounted there.
    pub(super) fn look(mounts: &[Mount], path: &Path) -> Option<Self> {
        let absolute = fs::canonicalize(path).ok()?;
        let known = Self::untried(mounts, path, &absolute)?;
        let file = first_file(&absolute).and_then(|path| File::open(path).ok());
        Some(match file {
            Some(file) => known.tried_on(&file),
            None => known,
        })
    }

    /// The same, tried on a temporary file in the directory `path`, if this is the live machine.
    pub(super) fn example(sysroot: Sysroot<'_>, mounts: &[Mount], path: &Path) -> Option<Self> {
        let known = Self::untried(mounts, path, path)?;
        if !sysroot.is_live() {
            return Some(known);
        }
        let file = tempfile::tempfile_in(path).and_then(|file| {
            file.write_all_at(&[0; ALIGNMENT], 0)?;
            Ok(file)
        });
        Some(match file {
            Ok(file) => known.tried_on(&file),
            Err(_) => known,
        })
    }

    fn untried(mounts: &[Mount], path: &Path, absolute: &Path) -> Option<Self> {
        let mount = mount::holding(mounts, absolute)?;
        Some(Self {
            path: path.to_owned(),
            file_system: mount.file_system.clone(),
            medium: mount.medium,
            direct: Attempt::Untried,
            alignment: None,
            dont_cache: Attempt::Untried,
            view: Attempt::Untried,
        })
    }

    /// Tries the calls on `file`; all that changes is whether it bypasses the page cache.
    fn tried_on(self, file: &File) -> Self {
        let dont_cache = without_caching(file).into();
        let view = cached(file.as_fd(), Bytes(0), Bytes(1)).into();
        let alignment = direct::alignment(file).ok().flatten();
        Self { direct: directly(file).into(), alignment, dont_cache, view, ..self }
    }
}

/// Some file systems take the flag and refuse the first read.
fn directly(file: &File) -> io::Result<usize> {
    direct::set_caching(file, Caching::Bypassed)?;
    let mut buffer = AlignedBuffer::zeroed(ALIGNMENT);
    file.read_at(buffer.as_mut_slice(), 0)
}

fn without_caching(file: &File) -> io::Result<usize> {
    let mut buffer = [0; 512];
    let mut part = [IoSliceMut::new(&mut buffer)];
    Ok(preadv2(file, &mut part, 0, ReadWriteFlags::from_bits_retain(DONT_CACHE))?)
}

fn first_file(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned());
    }
    let mut folders = vec![path.to_owned()];
    for _ in 0..FOLDERS_MAX {
        let Ok(entries) = fs::read_dir(folders.pop()?) else { continue };
        for entry in entries.flatten().take(ENTRIES_MAX) {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                // Where a link leads to a file, that is the sample.
                Ok(_) if entry.path().is_file() => return Some(entry.path()),
                _ => (),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts() -> Vec<Mount> {
        mount::read_all(Sysroot::live()).unwrap()
    }

    #[test]
    fn a_file_below_the_path_is_tried_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("sample"), [7; 5000]).unwrap();
        let known = ColdFiles::look(&mounts(), folder.path()).unwrap();
        for attempt in [known.direct, known.dont_cache, known.view] {
            assert_ne!(attempt, Attempt::Untried);
        }
        assert_eq!(known.path, folder.path());
        assert_eq!(fs::read(below.join("sample")).unwrap(), [7; 5000]);
        assert_eq!(ColdFiles::look(&mounts(), &below.join("sample")).unwrap().direct, known.direct);
    }

    #[test]
    fn among_a_thousand_folders_a_file_is_found_and_a_link_to_one_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        for class in 0..1_100 {
            let class = folder.path().join(format!("n{class:08}"));
            fs::create_dir(&class).unwrap();
            std::os::unix::fs::symlink(elsewhere.path(), class.join("1.jpg")).unwrap();
        }
        assert!(first_file(folder.path()).is_some());
    }

    #[test]
    fn a_directory_without_files_is_not_tried_and_a_missing_one_not_known() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("empty")).unwrap();
        let known = ColdFiles::look(&mounts(), folder.path()).unwrap();
        assert_eq!((known.direct, known.view), (Attempt::Untried, Attempt::Untried));
        assert_eq!(ColdFiles::look(&mounts(), &folder.path().join("missing")), None);
    }

    #[test]
    fn a_directory_of_ours_is_tried_with_a_file_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let known = ColdFiles::example(Sysroot::live(), &mounts(), folder.path()).unwrap();
        assert_ne!(known.dont_cache, Attempt::Untried);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
