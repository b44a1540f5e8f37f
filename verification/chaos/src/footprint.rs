//! What a process holds: memory, descriptors, threads, and CPU time, as `/proc` has it.
//!
//! Chunks of tiers come and go with the memory that is free, so they are counted apart: how many there may
//! be follows from the budgets, not from how many there were before. What must not grow is the rest.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use nix::sys::stat::makedev;
use serde::Serialize;
use tierfeed_core::tier::Kind;

/// What a process holds at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Footprint {
    /// Memory of its own (`RssAnon`), and [`Self::files`] that are memory.
    pub(crate) memory_bytes: u64,
    /// Chunks of tiers, in memory and on disks.
    pub(crate) cache_bytes: u64,
    /// Open descriptors of anything else.
    pub(crate) descriptors: u64,
    /// Files without a name that are no chunks, open or only mapped, each once: staging, rings, buffers.
    pub(crate) files: u64,
    /// Threads.
    pub(crate) threads: u64,
}

/// What process `pid` holds, or `None` if it is gone.
pub(crate) fn of(pid: u32) -> Option<Footprint> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let mut nameless = mapped(&fs::read_to_string(format!("/proc/{pid}/maps")).ok()?);
    let mut descriptors = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        match (Sort::of(&target.to_string_lossy()), fs::metadata(entry.path())) {
            (Sort::Named, _) | (_, Err(_)) => descriptors += 1,
            (sort, Ok(file)) => {
                nameless.insert((file.dev(), file.ino()), (sort, file.blocks() * 512));
            }
        }
    }
    let bytes_of = |sort| nameless.values().filter(|it| it.0 == sort).map(|it| it.1).sum::<u64>();
    Some(Footprint {
        memory_bytes: (field("RssAnon:") << 10) + bytes_of(Sort::Memory),
        cache_bytes: bytes_of(Sort::Chunk),
        descriptors,
        files: nameless.values().filter(|it| it.0 == Sort::Memory).count() as u64,
        threads: field("Threads:"),
    })
}

/// What a descriptor or a mapping is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// A chunk of a tier, or all chunks of a tier that trainers read.
    Chunk,
    /// Other memory.
    Memory,
    /// What had a name once: a socket, or a file of the dataset in whose place is another by now.
    Named,
}

impl Sort {
    /// By what `/proc` shows.
    fn of(target: &str) -> Self {
        let Some(path) = target.strip_suffix(" (deleted)") else { return Self::Named };
        if let Some(name) = path.strip_prefix("/memfd:") {
            let is_tier = |name: &str| Kind::ALL.iter().any(|tier| name.starts_with(tier.name()));
            let of_tier = name.strip_prefix("tierfeed-").is_some_and(is_tier);
            return if of_tier { Self::Chunk } else { Self::Memory };
        }
        // Files that never had a name, and those of file systems that know no such files.
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(['#']) || name.starts_with(".tierfeed-") {
            return Self::Chunk;
        }
        Self::Named
    }
}

/// Files without a name by device and number, with what is mapped of them, from the text of a
/// `/proc/PID/maps`.
fn mapped(maps: &str) -> BTreeMap<(u64, u64), (Sort, u64)> {
    let mut files = BTreeMap::new();
    for (file, sort, bytes) in maps.lines().filter_map(mapping) {
        files.entry(file).or_insert((sort, 0)).1 += bytes;
    }
    files
}

/// A line such as `7f00-7f01 rw-s 00000000 00:01 1042 /memfd:tierfeed-rings (deleted)`.
fn mapping(line: &str) -> Option<((u64, u64), Sort, u64)> {
    let fields: Vec<&str> = line.splitn(6, ' ').collect();
    let [range, _, _, device, number, path] = fields.as_slice() else { return None };
    let sort = Sort::of(path.trim_start());
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let file = (makedev(hex(major)?, hex(minor)?), number.parse().ok()?);
    let bytes = hex(end)?.checked_sub(hex(start)?)?;
    (sort != Sort::Named).then_some((file, sort, bytes))
}

/// A tick of the CPU times in `/proc`: `USER_HZ` is 100 on every platform of ours.
const TICK: Duration = Duration::from_millis(10);

/// The CPU time that all threads of process `pid` have had, or `None` if it is gone.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses; what follows the last one has none.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = ticks(11)? + ticks(12)?;
    Some(TICK * u32::try_from(ticks).ok()?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn own() -> Footprint {
        of(std::process::id()).unwrap()
    }

    #[test]
    fn this_process_holds_something() {
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
    fn files_of_tiers_have_no_name_and_files_of_datasets_had_one() {
        let sorts =
            ["/tier/#123 (deleted)", "/tier/.tierfeed-7-0 (deleted)", "/data/7.jpg (deleted)"];
        assert_eq!(sorts.map(Sort::of), [Sort::Chunk, Sort::Chunk, Sort::Named]);
        assert_eq!(Sort::of("/tier/#123"), Sort::Named, "somebody else's");
    }

    #[test]
    fn memory_that_is_mapped_and_not_open_is_found() {
        let maps = "\
            7f0000000000-7f0000002000 rw-s 00000000 00:01 42      /memfd:tierfeed-rings (deleted)\n\
            7f0000002000-7f0000003000 r--s 00002000 00:01 42      /memfd:tierfeed-rings (deleted)\n\
            7f0000004000-7f0000005000 rw-s 00000000 00:01 43      /memfd:tierfeed-scratch-1 (deleted)\n\
            7f0000006000-7f0000007000 rw-p 00000000 00:00 0\n\
            7f0000008000-7f0000009000 r-xp 00000000 fe:01 9       /usr/bin/tierfeed\n";
        let expected = [((1, 42), (Sort::Memory, 0x3000)), ((1, 43), (Sort::Chunk, 0x1000))];
        assert_eq!(mapped(maps), BTreeMap::from(expected));
    }

    #[test]
    fn a_process_that_is_gone_holds_nothing() {
        assert_eq!(of(u32::MAX), None);
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
