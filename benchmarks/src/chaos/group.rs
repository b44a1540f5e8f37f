//! The control group of the agent of a chaos run: its memory gets short without that of the node.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use tierfeed_core::units::Bytes;

/// Where groups of version 1 are.
const MEMORY: &str = "/sys/fs/cgroup/memory";

/// What is left in a group that gets short: less than what an agent leaves free of any limit, and more than
/// anybody takes between two looks.
const LEFT: u64 = 10 << 20;

/// What is left to an agent that only begins: it has still to take what it works with.
const LEFT_AT_FIRST: u64 = 40 << 20;

/// How far an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Beginning,
    Settled,
}

/// A group with a limit; gone when dropped.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    limit: Bytes,
}

impl Group {
    /// A group that no process is in yet. Fails where this process may make none, or where groups are
    /// of version 2.
    pub(super) fn make(limit: Bytes) -> io::Result<Self> {
        let path = Path::new(MEMORY).join(format!("tierfeed-chaos-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Self { path, limit };
        group.relax()?;
        Ok(group)
    }

    /// Makes it short, as a neighbour would that takes memory.
    pub(super) fn squeeze(&self, agent: Stage) -> io::Result<()> {
        // Not what is cached of files: an agent counts that as free, and the kernel takes it.
        let stat = self.path.join("memory.stat");
        let files = field(&stat, "total_cache ").saturating_sub(field(&stat, "total_shmem "));
        let used = field(&self.path.join("memory.usage_in_bytes"), "").saturating_sub(files);
        let left = match agent {
            Stage::Beginning => LEFT_AT_FIRST,
            Stage::Settled => LEFT,
        };
        self.allow(used.saturating_add(left).min(self.limit.0))
    }

    /// Gives it its limit back.
    pub(super) fn relax(&self) -> io::Result<()> {
        self.allow(self.limit.0)
    }

    fn allow(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path.join("memory.limit_in_bytes"), bytes.to_string())
    }

    /// A command whose process is in the group before it becomes `program`.
    pub(super) fn enter(&self, program: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.path.join("cgroup.procs"));
        shell.arg(program);
        shell
    }

    /// Processes that the kernel killed for want of memory.
    pub(super) fn killed(&self) -> u64 {
        field(&self.path.join("memory.oom_control"), "oom_kill ")
    }

    /// Bytes that were swapped out.
    pub(super) fn swapped(&self) -> u64 {
        field(&self.path.join("memory.stat"), "total_swap ")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Members that were killed just now leave a moment later; an empty group harms nobody.
        let _ = fs::remove_dir(&self.path);
    }
}

fn field(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
