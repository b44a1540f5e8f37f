//! What a process holds: memory, descriptors, threads, and CPU time, as `/proc` has it.

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt as _, time::Duration};

use serde::Serialize;

/// What a process holds at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Memory of its own (`RssAnon`) and files in memory that it has open, each once.
    pub memory_bytes: u64,
    /// Open descriptors, but for [`Self::files`].
    pub descriptors: u64,
    /// Open files without a name, each once: memory and the chunks of tiers.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

/// What process `pid` holds, or `None` if it is gone.
pub(super) fn of(pid: u32) -> Option<Footprint> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let mut files = BTreeSet::new();
    let mut in_memory = 0;
    let mut descriptors = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if !target.ends_with(" (deleted)") {
            descriptors += 1;
        } else if let Ok(file) = fs::metadata(entry.path())
            && files.insert((file.dev(), file.ino()))
            && target.starts_with("/memfd:")
        {
            in_memory += file.blocks() * 512;
        }
    }
    let memory_bytes = (field("RssAnon:") << 10) + in_memory;
    let (files, threads) = (files.len() as u64, field("Threads:"));
    Some(Footprint { memory_bytes, descriptors, files, threads })
}

/// A tick of the CPU times in `/proc`: `USER_HZ` is 100 on every platform of ours.
const TICK: Duration = Duration::from_millis(10);

/// The CPU time that all threads of process `pid` have had, or `None` if it is gone.
pub(super) fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses; what follows the last one has none.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = ticks(11)? + ticks(12)?;
    Some(TICK * u32::try_from(ticks).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_something() {
        let own = of(std::process::id()).unwrap();
        assert!(own.memory_bytes > 4096 && own.descriptors >= 3 && own.threads >= 1, "{own:?}");
    }

    #[test]
    fn an_open_file_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let descriptors = || of(std::process::id()).unwrap().descriptors;
        let files: Vec<_> = (0..50)
            .map(|it| fs::File::create(folder.path().join(it.to_string())).unwrap())
            .collect();
        let with = descriptors();
        drop(files);
        // Other tests of this process open and close some too.
        assert!(with > descriptors() + 10);
    }

    #[test]
    fn a_process_that_is_gone_holds_nothing() {
        assert_eq!(of(u32::MAX), None);
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
