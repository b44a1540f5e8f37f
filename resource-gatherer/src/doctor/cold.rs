//! How the files of datasets are read: by rings past the page cache, or by threads through it.
//!
//! It is tried on one file that is there, of which 4 KiB are read, or on one of ours without a name.

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

use super::{
    Attempt, Facts, Finding, FixPlace,
    calls::{let_call_through, since},
};
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
        Some(known.tried_on(file.as_ref()))
    }

    /// The same, tried on a temporary file in the directory `path`, if this is the live machine.
    pub(super) fn example(sysroot: Sysroot<'_>, mounts: &[Mount], path: &Path) -> Option<Self> {
        let known = Self::untried(mounts, path, path)?;
        if !sysroot.is_live() {
            return Some(known);
        }
        let example = || {
            let file = tempfile::tempfile_in(path).ok()?;
            file.write_all_at(&[0; ALIGNMENT], 0).ok()?;
            Some(file)
        };
        Some(known.tried_on(example().as_ref()))
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

    /// Tries the calls on `file`, if there is one; all that changes is whether it bypasses the page cache.
    fn tried_on(self, file: Option<&File>) -> Self {
        let Some(file) = file else { return self };
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

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let of_path = |files: &ColdFiles| [engine(facts, files), dont_cache(facts, files), view(files)];
    facts.cold.iter().flat_map(of_path).collect()
}

/// The engine that an agent chooses for these files before it measures both engines. Faults of the rings
/// themselves belong to the finding about rings.
fn engine(facts: &Facts, files: &ColdFiles) -> Finding {
    let place = place(files);
    let finding = |found: &str| Finding::ok("cold reads", format!("{place}: {found}"));
    let can_ring = matches!(facts.rings, None | Some(Ok(())));
    match files.direct {
        Attempt::Untried => finding("no file to try"),
        Attempt::Refused(_) if files.medium == Medium::Memory => {
            finding("threads; the files are in memory already")
        }
        Attempt::Refused(_) => {
            let finding = finding(&format!("O_DIRECT {}", files.direct.said()));
            let why =
                "its files are read by threads through the page cache, which costs more CPU time";
            on_a_volume(finding.degraded(why), files)
        }
        Attempt::Done if can_ring && !files.view.is_refused() => {
            let asks = files.alignment.map_or_else(String::new, asks);
            finding(&format!("io_uring past the page cache where samples share files{asks}"))
        }
        Attempt::Done => finding("threads through the page cache"),
    }
}

fn dont_cache(facts: &Facts, files: &ColdFiles) -> Finding {
    const SINCE: (u32, u32) = (6, 14);
    let found = format!("{}: RWF_DONTCACHE {}", place(files), files.dont_cache.said());
    let finding = Finding::ok("page cache spared", found);
    if !files.dont_cache.is_refused() || files.medium == Medium::Memory {
        return finding;
    }
    let finding = finding.degraded(
        "what threads read in is dropped afterwards by posix_fadvise, page by page, at more CPU time",
    );
    if version(&facts.kernel).is_some_and(|version| version >= SINCE) {
        // The kernel could; the file system cannot.
        return on_a_volume(finding, files);
    }
    finding.fix(FixPlace::Host, "boot Linux 6.14 or later, with the files on ext4, xfs or btrfs")
}

fn view(files: &ColdFiles) -> Finding {
    let found = format!("{}: cachestat {}", place(files), files.view.said());
    since(
        (Finding::ok("page cache seen", found), files.view),
        "Linux 6.5",
        "files are read by threads, because rings would read again what is in the page cache",
        |finding| let_call_through(finding, "cachestat"),
    )
}

/// A layered file system of a container hides the disk below it.
fn on_a_volume(finding: Finding, files: &ColdFiles) -> Finding {
    let path = files.path.display();
    match files.file_system.as_str() {
        "overlay" => finding
            .fix(FixPlace::Container, format!("-v {path}:{path}"))
            .fix(FixPlace::Kubernetes, format!("a volume mounted at {path}")),
        _ => finding.fix(
            FixPlace::Host,
            format!("put the files of {path} on ext4 or xfs, which have direct I/O"),
        ),
    }
}

fn place(files: &ColdFiles) -> String {
    format!("{} on {}", files.path.display(), files.file_system)
}

fn asks(alignment: Alignment) -> String {
    let Alignment { memory, offset } = alignment;
    format!(", memory at multiples of {memory}, offsets of {offset}")
}

/// The first two numbers of a release such as `6.12.9-amd64`.
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.trim().split(|char: char| !char.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
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

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(version("6.12.9-amd64\n"), Some((6, 12)));
        assert_eq!(version("6.14-rc3"), Some((6, 14)));
        assert!(version("6.9.0").unwrap() < (6, 14));
        assert_eq!(version("kernel"), None);
    }
}
