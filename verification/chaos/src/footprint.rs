//! The resources of a process: memory, descriptors, threads and CPU time, as `/proc` shows them.
//!
//! Chunks of tiers are counted apart: their number follows the free memory within the budgets of the tiers.
//! Everything else must not grow.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use nix::sys::stat::makedev;
use procfs::process::{MMapPath, MemoryMap, MemoryMaps, Process};
use serde::Serialize;
use tierfeed_core::tier::Kind;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Footprint {
    /// Memory of its own (`RssAnon`), and [`Self::files`] that are memory.
    pub(crate) memory_bytes: u64,
    /// Chunks of tiers, in memory and on disks.
    pub(crate) cache_bytes: u64,
    /// Open descriptors of anything else.
    pub(crate) descriptors: u64,
    /// Unnamed files that are no chunks, open or only mapped, each counted once: staging, rings, buffers.
    pub(crate) files: u64,
    pub(crate) threads: u64,
}

/// The footprint of process `pid`, or `None` if it is gone.
pub(crate) fn of(pid: u32) -> Option<Footprint> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let status = process.status().ok()?;
    let mut unnamed = mapped(process.maps().ok()?);
    let mut descriptors = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        match (FileKind::of(&target.to_string_lossy()), fs::metadata(entry.path())) {
            (FileKind::Named, _) | (_, Err(_)) => descriptors += 1,
            (kind, Ok(file)) => {
                unnamed.insert((file.dev(), file.ino()), (kind, file.blocks() * 512));
            }
        }
    }
    let bytes_of = |kind| unnamed.values().filter(|it| it.0 == kind).map(|it| it.1).sum::<u64>();
    Some(Footprint {
        memory_bytes: (status.rssanon.unwrap_or(0) << 10) + bytes_of(FileKind::Memory),
        cache_bytes: bytes_of(FileKind::Chunk),
        descriptors,
        files: unnamed.values().filter(|it| it.0 == FileKind::Memory).count() as u64,
        threads: status.threads,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    /// A chunk of a tier, or all chunks of a tier that trainers read.
    Chunk,
    /// Memory for anything but chunks.
    Memory,
    /// Sockets and files with a name, also one that was removed, as when a file of the dataset is replaced.
    Named,
}

impl FileKind {
    /// The kind of a link target of `/proc/PID/fd` or a path of `/proc/PID/maps`.
    fn of(target: &str) -> Self {
        let Some(path) = target.strip_suffix(" (deleted)") else { return Self::Named };
        if let Some(name) = path.strip_prefix("/memfd:") {
            let is_tier = |name: &str| Kind::ALL.iter().any(|tier| name.starts_with(tier.name()));
            let of_tier = name.strip_prefix("tierfeed-").is_some_and(is_tier);
            return if of_tier { Self::Chunk } else { Self::Memory };
        }
        // Files of `O_TMPFILE`, and their substitutes on file systems without it.
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(['#']) || name.starts_with(".tierfeed-") {
            return Self::Chunk;
        }
        Self::Named
    }
}

/// Unnamed files by device and inode number, with the bytes that are mapped of them.
fn mapped(maps: MemoryMaps) -> BTreeMap<(u64, u64), (FileKind, u64)> {
    let mut files = BTreeMap::new();
    for MemoryMap { address: (start, end), dev: (major, minor), inode, pathname, .. } in maps {
        let MMapPath::Path(path) = pathname else { continue };
        let kind = FileKind::of(&path.to_string_lossy());
        if kind != FileKind::Named {
            let device = makedev(major.cast_unsigned().into(), minor.cast_unsigned().into());
            files.entry((device, inode)).or_insert((kind, 0)).1 += end - start;
        }
    }
    files
}

/// The CPU time of all threads of process `pid`, or `None` if it is gone.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
    let millis = 1000 * (stat.utime + stat.stime) / procfs::ticks_per_second();
    Some(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use procfs::FromRead as _;

    use super::*;

    fn own() -> Footprint {
        of(std::process::id()).unwrap()
    }

    #[test]
    fn this_process_has_memory_descriptors_and_threads() {
        let own = own();
        assert!(own.memory_bytes > 4096 && own.descriptors >= 3 && own.threads >= 1, "{own:?}");
    }

    #[test]
    fn an_open_file_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let descriptors = || own().descriptors;
        let files: Vec<_> =
            (0..50).map(|it| File::create(folder.path().join(it.to_string())).unwrap()).collect();
        let with = descriptors();
        drop(files);
        // Other tests of this process open and close some too.
        assert!(with > descriptors() + 10);
    }

    #[test]
    fn chunks_are_counted_apart_from_other_memory() {
        let memory = |name: &str| {
            let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC).unwrap());
            file.set_len(8 << 20).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; 8 << 20], 0).unwrap();
            file
        };
        let before = own();
        let _chunks = ["tierfeed-main-memory-7", "tierfeed-cxl-memory"].map(memory);
        let with_chunks = own();
        assert_eq!(with_chunks.cache_bytes - before.cache_bytes, 16 << 20);
        let _staging = memory("tierfeed-staging-0");
        let with_staging = own();
        assert_eq!(with_staging.cache_bytes, with_chunks.cache_bytes);
        assert!(with_staging.files > before.files, "{with_staging:?}");
        assert!(with_staging.memory_bytes >= before.memory_bytes + (7 << 20), "{with_staging:?}");
    }

    #[test]
    fn unnamed_files_of_tiers_are_told_from_removed_files_of_datasets() {
        let kinds =
            ["/tier/#123 (deleted)", "/tier/.tierfeed-7-0 (deleted)", "/data/7.jpg (deleted)"];
        assert_eq!(kinds.map(FileKind::of), [FileKind::Chunk, FileKind::Chunk, FileKind::Named]);
        assert_eq!(FileKind::of("/tier/#123"), FileKind::Named, "the file of another program");
    }

    #[test]
    fn memory_that_is_mapped_and_not_open_is_counted() {
        let maps = "\
            7f0000000000-7f0000002000 rw-s 00000000 00:01 42      /memfd:tierfeed-rings (deleted)\n\
            7f0000002000-7f0000003000 r--s 00002000 00:01 42      /memfd:tierfeed-rings (deleted)\n\
            7f0000004000-7f0000005000 rw-s 00000000 00:01 43      /memfd:tierfeed-scratch-1 (deleted)\n\
            7f0000006000-7f0000007000 rw-p 00000000 00:00 0 \n\
            7f0000008000-7f0000009000 r-xp 00000000 fe:01 9       /usr/bin/tierfeed\n";
        let expected =
            [((1, 42), (FileKind::Memory, 0x3000)), ((1, 43), (FileKind::Chunk, 0x1000))];
        let maps = MemoryMaps::from_read(maps.as_bytes()).unwrap();
        assert_eq!(mapped(maps), BTreeMap::from(expected));
    }

    #[test]
    fn a_process_that_is_gone_has_no_footprint() {
        assert_eq!(of(u32::MAX), None);
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
