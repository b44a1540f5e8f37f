//! The control group of the agent of a chaos run: its memory gets short without that of the node.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use tierfeed_core::units::Bytes;

/// Where groups of version 1 are.
const MEMORY: &str = "/sys/fs/cgroup/memory";

/// A group with a limit; gone when dropped.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// A group that no process is in yet. Fails where this process may make none, or where groups are
    /// of version 2.
    pub(super) fn make(limit: Bytes) -> io::Result<Self> {
        let path = Path::new(MEMORY).join(format!("tierfeed-chaos-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Self(path);
        fs::write(group.0.join("memory.limit_in_bytes"), limit.0.to_string())?;
        Ok(group)
    }

    /// A command whose process is in the group before it becomes `program`.
    pub(super) fn enter(&self, program: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        shell.arg(program);
        shell
    }

    /// Processes that the kernel killed for want of memory.
    pub(super) fn killed(&self) -> u64 {
        field(&self.0.join("memory.oom_control"), "oom_kill ")
    }

    /// Bytes that were swapped out.
    pub(super) fn swapped(&self) -> u64 {
        field(&self.0.join("memory.stat"), "total_swap ")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Members that were killed just now leave a moment later; an empty group harms nobody.
        let _ = fs::remove_dir(&self.0);
    }
}

fn field(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
