//! The control group of the agent of a chaos run: its memory gets short without that of the node.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use tierfeed_core::units::Bytes;

/// A field: a file of a group, and what begins its line there.
type Field = (&'static str, &'static str);

/// Where a version keeps what a group may have and has.
#[derive(Debug)]
struct Interface {
    root: &'static str,
    limit: &'static str,
    used: Field,
    /// Pages of files, those of shared memory among them.
    files: Field,
    shared: Field,
    kills: Field,
    swapped: Field,
}

const VERSION_1: Interface = Interface {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: ("memory.usage_in_bytes", ""),
    files: ("memory.stat", "total_cache "),
    shared: ("memory.stat", "total_shmem "),
    kills: ("memory.oom_control", "oom_kill "),
    swapped: ("memory.stat", "total_swap "),
};

const VERSION_2: Interface = Interface {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: ("memory.current", ""),
    files: ("memory.stat", "file "),
    shared: ("memory.stat", "shmem "),
    kills: ("memory.events", "oom_kill "),
    swapped: ("memory.swap.current", ""),
};

impl Interface {
    /// The one of this host, with what it takes to make groups.
    fn of_host() -> io::Result<Self> {
        if Path::new(VERSION_1.root).is_dir() {
            return Ok(VERSION_1);
        }
        let controllers = Path::new(VERSION_2.root).join("cgroup.subtree_control");
        if !fs::read_to_string(&controllers)?.split_whitespace().any(|it| it == "memory") {
            fs::write(controllers, "+memory")?;
        }
        Ok(VERSION_2)
    }
}

/// What is left in a group that gets short: less than what an agent leaves free of any limit, and more than
/// anybody takes between two looks.
const LEFT: u64 = 10 << 20;

/// What is left to an agent that only begins: it has still to take what it works with.
const LEFT_AT_FIRST: u64 = 40 << 20;

/// How far an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Beginning,
    Settled,
}

/// A group with a limit; gone when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    interface: Interface,
    limit: Bytes,
}

impl Group {
    /// A group that no process is in yet. Fails where this process may make none.
    pub(crate) fn make(limit: Bytes) -> io::Result<Self> {
        let interface = Interface::of_host()?;
        let name = format!("tierfeed-chaos-{}", std::process::id());
        let path = Path::new(interface.root).join(name);
        fs::create_dir(&path)?;
        let group = Self { path, interface, limit };
        group.relax()?;
        Ok(group)
    }

    /// Makes it short, as a neighbour would that takes memory.
    pub(crate) fn squeeze(&self, agent: Stage) -> io::Result<()> {
        // Not what is cached of files: an agent counts that as free, and the kernel takes it.
        let Interface { used, files, shared, .. } = self.interface;
        let files = self.field(files).saturating_sub(self.field(shared));
        let used = self.field(used).saturating_sub(files);
        let left = match agent {
            Stage::Beginning => LEFT_AT_FIRST,
            Stage::Settled => LEFT,
        };
        self.allow(used.saturating_add(left).min(self.limit.0))
    }

    /// Gives it its limit back.
    pub(crate) fn relax(&self) -> io::Result<()> {
        self.allow(self.limit.0)
    }

    fn allow(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path.join(self.interface.limit), bytes.to_string())
    }

    /// A command whose process is in the group before it becomes `program`.
    pub(crate) fn enter(&self, program: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.path.join("cgroup.procs"));
        shell.arg(program);
        shell
    }

    /// Processes that the kernel killed for want of memory.
    pub(crate) fn killed(&self) -> u64 {
        self.field(self.interface.kills)
    }

    /// What cannot be read is nothing: a kernel without swap has no file for it.
    fn field(&self, (file, name): Field) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    }

    /// Bytes that were swapped out.
    pub(crate) fn swapped(&self) -> u64 {
        self.field(self.interface.swapped)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Members that were killed just now leave a moment later; an empty group harms nobody.
        let _ = fs::remove_dir(&self.path);
    }
}
