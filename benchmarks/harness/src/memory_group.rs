//! A control group with a limit of memory, and what its processes cannot give back.

use std::{
    fs,
    path::{Path, PathBuf},
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
    clock::{now, pause},
    leftovers::own_name,
};

/// Between two looks at the processes of a group.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A control group of its own, of version 1 or 2.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    files: Files,
}

/// The names that a version uses.
#[derive(Debug, Clone, Copy)]
struct Files {
    mount: &'static str,
    limit: &'static str,
    /// Figures of `memory.stat` that page cache is no part of.
    held: [&'static str; 2],
}

const VERSION_1: Files = Files {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    held: ["total_rss", "total_shmem"],
};
const VERSION_2: Files =
    Files { mount: "/sys/fs/cgroup", limit: "memory.max", held: ["anon", "shmem"] };

impl MemoryGroup {
    /// Makes a group without a limit.
    ///
    /// # Errors
    ///
    /// If the kernel has no such groups; this needs root.
    pub fn make() -> anyhow::Result<Self> {
        let is_v1 = Path::new(VERSION_1.mount).is_dir();
        let files = if is_v1 { VERSION_1 } else { VERSION_2 };
        let mount = Path::new(files.mount);
        if !is_v1 {
            fs::write(mount.join("cgroup.subtree_control"), "+memory")
                .context("cannot turn the memory controller on; this needs root")?;
        }
        let path = mount.join(format!("{}-memory", own_name()));
        fs::create_dir(&path)
            .with_context(|| format!("cannot make {}; this needs root", path.display()))?;
        Ok(Self { path, files })
    }

    /// The group, for [`crate::cgroup::command_in_all`].
    pub fn path(&self) -> &Path {
        &self.path
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

    /// Waits until no process is in the group, for `patience` at most; says whether that is so.
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

    /// Kills all processes of the group.
    ///
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

    /// Memory of the group without page cache.
    pub fn held(&self) -> Bytes {
        let text = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let figure = |name: &&str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        Bytes(self.files.held.iter().map(figure).sum())
    }
}

impl Drop for MemoryGroup {
    /// A group with processes stays, and so does its name in the file system.
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}
