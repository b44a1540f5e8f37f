//! A control group with a limit of memory, and what its processes cannot give back.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tierfeed_core::units::Bytes;

use crate::{
    cgroup,
    clock::{now, pause},
    slow_disk::SlowDisk,
};

/// Time between two looks at the processes of a group.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    files: Files,
    /// The groups that a process of this group joins.
    joined: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
struct Files {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The file and the figure of what was swapped out; a kernel without swap has none.
    swapped: (&'static str, &'static str),
    /// Counts processes that were killed for want of memory, as `oom_kill`.
    kills: &'static str,
    /// Figures of `memory.stat` that do not include page cache.
    held: [&'static str; 2],
    /// The figures of all page cache, and of shared memory, which is a part of it.
    cache: (&'static str, &'static str),
    reclaim: Reclaim,
}

#[derive(Debug, Clone, Copy)]
enum Reclaim {
    /// A file takes the number of bytes.
    File(&'static str),
    /// By a limit below what the group uses.
    Limit,
}

const VERSION_1: Files = Files {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    swapped: ("memory.stat", "total_swap"),
    kills: "memory.oom_control",
    held: ["total_rss", "total_shmem"],
    cache: ("total_cache", "total_shmem"),
    reclaim: Reclaim::Limit,
};
const VERSION_2: Files = Files {
    mount: "/sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    swapped: ("memory.swap.current", ""),
    kills: "memory.events",
    held: ["anon", "shmem"],
    cache: ("file", "shmem"),
    reclaim: Reclaim::File("memory.reclaim"),
};

impl MemoryGroup {
    /// Makes a group without a limit. The limit of reads from `disk` holds for its processes too.
    ///
    /// # Errors
    ///
    /// If the kernel has no such groups; this needs root.
    pub fn make(disk: Option<&SlowDisk>) -> anyhow::Result<Self> {
        let is_v1 = Path::new(VERSION_1.mount).is_dir();
        let files = if is_v1 { VERSION_1 } else { VERSION_2 };
        let mut parent = Path::new(files.mount);
        if !is_v1 {
            // A process is in one group only, so this one is below that of the disk.
            cgroup::turn_on(parent, "memory")?;
            if let Some(disk) = disk {
                parent = disk.group();
                cgroup::turn_on(parent, "memory")?;
            }
        }
        let path = parent.join(cgroup::unused_name("memory"));
        fs::create_dir(&path)
            .with_context(|| format!("cannot make {}; this needs root", path.display()))?;
        let of_disk = disk.filter(|_| is_v1).map(|disk| disk.group().to_owned());
        let joined = [path.clone()].into_iter().chain(of_disk).collect();
        Ok(Self { path, files, joined })
    }

    /// A command that runs `program` in this group, and with the limit of reads from the disk.
    pub fn enter(&self, program: &Path) -> Command {
        cgroup::command_in(&self.joined, program)
    }

    /// Limits the memory of the group, page cache included.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn limit(&self, limit: Bytes) -> anyhow::Result<()> {
        let file = self.path.join(self.files.limit);
        fs::write(&file, limit.0.to_string()).with_context(|| file.display().to_string())
    }

    /// Takes page cache from the group, the least recently used first, until no more than `room` is left. The
    /// processes of the group can get memory all the while.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn trim_page_cache(&self, room: Bytes) -> anyhow::Result<()> {
        let Some(excess) = self.page_cache().0.checked_sub(room.0).filter(|excess| *excess > 0)
        else {
            return Ok(());
        };
        match self.files.reclaim {
            Reclaim::File(file) => self.write_reclaiming(file, &excess.to_string()),
            // A limit takes effect once the pages are gone, and is gone at once too.
            Reclaim::Limit => {
                let less = self.figure(self.files.usage, "").0.saturating_sub(excess);
                self.write_reclaiming(self.files.limit, &less.to_string())?;
                self.write_reclaiming(self.files.limit, "-1")
            }
        }
    }

    /// Writes to a file of the group by which the kernel reclaims pages; it may have found less than was asked for.
    fn write_reclaiming(&self, file: &str, text: &str) -> anyhow::Result<()> {
        match fs::write(self.path.join(file), text) {
            Err(error)
                if [Errno::EBUSY, Errno::EAGAIN]
                    .map(|it| Some(it as i32))
                    .contains(&error.raw_os_error()) =>
            {
                Ok(())
            }
            written => written.with_context(|| file.to_owned()),
        }
    }

    /// Waits for at most `patience` until no process is in the group. Returns whether none is.
    pub fn wait_until_empty(&self, patience: Duration) -> bool {
        let start = now();
        while !self.processes().is_empty() {
            if now() - start > patience {
                return false;
            }
            pause(LOOK_EVERY);
        }
        true
    }

    /// # Errors
    ///
    /// If one cannot be killed.
    pub fn kill(&self) -> anyhow::Result<()> {
        for pid in self.processes() {
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => (),
                Err(error) => return Err(error).with_context(|| format!("killing process {pid}")),
            }
        }
        Ok(())
    }

    fn processes(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Whether the kernel killed a process because the group had no memory left.
    pub fn has_killed(&self) -> bool {
        self.figure(self.files.kills, "oom_kill") > Bytes(0)
    }

    pub fn swapped(&self) -> Bytes {
        let (file, name) = self.files.swapped;
        self.figure(file, name)
    }

    /// All memory of the group but page cache of files, that of the kernel included.
    pub fn used_without_page_cache(&self) -> Bytes {
        Bytes(self.figure(self.files.usage, "").0.saturating_sub(self.page_cache().0))
    }

    fn page_cache(&self) -> Bytes {
        let (all, shared) = self.files.cache;
        let figure = |name| self.figure("memory.stat", name).0;
        Bytes(figure(all).saturating_sub(figure(shared)))
    }

    pub fn held(&self) -> Bytes {
        Bytes(self.files.held.iter().map(|name| self.figure("memory.stat", name).0).sum())
    }

    /// The number after `name` at the start of a line; 0 where there is none.
    fn figure(&self, file: &str, name: &str) -> Bytes {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let numbers = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            // A longer name has no blank there.
            (name.is_empty() || rest.starts_with(' ')).then(|| rest.trim().parse().ok())?
        });
        Bytes(numbers.into_iter().next().unwrap_or(0))
    }
}

impl Drop for MemoryGroup {
    /// A group that still has processes remains, and so does its name in the file system.
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}
