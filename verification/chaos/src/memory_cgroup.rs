//! The control group of the agent: its limit makes memory short for the agent and not for the node.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use tierfeed_core::units::Bytes;
use tierfeed_harness::cgroup;

/// A field: a file of a control group, and the beginning of its line there.
type Field = (&'static str, &'static str);

/// The files in which a version of control groups keeps limits and usage.
#[derive(Debug)]
struct Interface {
    root: &'static str,
    limit: &'static str,
    used: Field,
    /// Pages of files, including those of shared memory.
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
    /// The version of this host, with the memory controller enabled for new groups.
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

/// Memory that stays free under pressure, in bytes: less than an agent leaves free of any limit, and more
/// than its processes take between two checks.
const HEADROOM: u64 = 10 << 20;

/// As [`HEADROOM`], for an agent that starts: it still has to allocate its working memory.
const HEADROOM_AT_START: u64 = 40 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Running,
}

/// A control group with a memory limit; removed when dropped.
#[derive(Debug)]
pub(crate) struct MemoryCgroup {
    path: PathBuf,
    interface: Interface,
    limit: Bytes,
}

impl MemoryCgroup {
    /// Makes a group without processes. Fails where this process may make none.
    pub(crate) fn make(limit: Bytes) -> io::Result<Self> {
        let interface = Interface::of_host()?;
        let name = format!("tierfeed-chaos-{}", std::process::id());
        let path = Path::new(interface.root).join(name);
        fs::create_dir(&path)?;
        let cgroup = Self { path, interface, limit };
        cgroup.restore_limit()?;
        Ok(cgroup)
    }

    /// Lowers the limit to the usage and a headroom, as if a neighbour took the rest.
    pub(crate) fn lower_limit(&self, agent: Phase) -> io::Result<()> {
        // Without cached pages of files: an agent counts them as free, and the kernel reclaims them.
        let Interface { used, files, shared, .. } = self.interface;
        let files = self.field(files).saturating_sub(self.field(shared));
        let used = self.field(used).saturating_sub(files);
        let headroom = match agent {
            Phase::Starting => HEADROOM_AT_START,
            Phase::Running => HEADROOM,
        };
        self.set_limit(used.saturating_add(headroom).min(self.limit.0))
    }

    pub(crate) fn restore_limit(&self) -> io::Result<()> {
        self.set_limit(self.limit.0)
    }

    fn set_limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path.join(self.interface.limit), bytes.to_string())
    }

    /// A command whose process joins the group before it executes `program`.
    pub(crate) fn command(&self, program: &Path) -> Command {
        cgroup::command_in(std::slice::from_ref(&self.path), program)
    }

    pub(crate) fn oom_kills(&self) -> u64 {
        self.field(self.interface.kills)
    }

    /// A field that cannot be read counts as 0: a kernel without swap has no file for it.
    fn field(&self, (file, name): Field) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    }

    pub(crate) fn swapped_bytes(&self) -> u64 {
        self.field(self.interface.swapped)
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // Processes that were just killed leave a moment later; an empty group that stays does no harm.
        let _ = fs::remove_dir(&self.path);
    }
}
