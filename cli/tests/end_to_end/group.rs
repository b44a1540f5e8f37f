//! A control group with a limit of memory, of version 1 or 2, where this process may make one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use tierfeed_core::units::Bytes;
use tierfeed_test_needs::{Need, skip};

/// The files in which a version keeps the limits and figures of a group. A field is a file and the beginning
/// of its line.
#[derive(Debug)]
struct Interface {
    root: &'static str,
    limit: &'static str,
    held: [(&'static str, &'static str); 2],
    kills: (&'static str, &'static str),
    swapped: (&'static str, &'static str),
}

const VERSION_1: Interface = Interface {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    held: [("memory.stat", "total_rss "), ("memory.stat", "total_shmem ")],
    kills: ("memory.oom_control", "oom_kill "),
    swapped: ("memory.stat", "total_swap "),
};

const VERSION_2: Interface = Interface {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    held: [("memory.stat", "anon "), ("memory.stat", "shmem ")],
    kills: ("memory.events", "oom_kill "),
    swapped: ("memory.swap.current", ""),
};

/// A control group; removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    interface: Interface,
}

impl Group {
    /// `None`, with a word about why, where this process may make none.
    #[track_caller]
    pub(crate) fn new(name: &str, limit: Bytes) -> Option<Self> {
        match Self::make(name, limit) {
            Ok(group) => Some(group),
            Err(error) => {
                skip(Need::MemoryGroups, error);
                None
            }
        }
    }

    fn make(name: &str, limit: Bytes) -> io::Result<Self> {
        let is_old = Path::new(VERSION_1.root).is_dir();
        let interface = if is_old { VERSION_1 } else { VERSION_2 };
        if !is_old {
            let controllers = Path::new(interface.root).join("cgroup.subtree_control");
            if !fs::read_to_string(&controllers)?.split_whitespace().any(|it| it == "memory") {
                fs::write(controllers, "+memory")?;
            }
        }
        let name = format!("tierfeed-{name}-{}", std::process::id());
        let group = Self { path: Path::new(interface.root).join(name), interface };
        fs::create_dir(&group.path)?;
        group.write_limit(limit)?;
        Ok(group)
    }

    pub(crate) fn limit(&self, limit: Bytes) {
        self.write_limit(limit).unwrap();
    }

    fn write_limit(&self, limit: Bytes) -> io::Result<()> {
        fs::write(self.path.join(self.interface.limit), limit.0.to_string())
    }

    /// The bytes that its members hold, without files that the kernel can drop.
    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.interface.held.iter().map(|field| self.field(*field)).sum())
    }

    /// No member was killed for lack of memory, and nothing was swapped.
    #[track_caller]
    pub(crate) fn assert_unharmed(&self) {
        assert_eq!(self.field(self.interface.kills), 0, "killed for want of memory");
        // A kernel without swap has no file for it in groups of version 2.
        if self.path.join(self.interface.swapped.0).exists() {
            assert_eq!(self.field(self.interface.swapped), 0, "swapped");
        }
    }

    /// `command`, started as a member.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.path.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            shell.current_dir(directory);
        }
        shell
    }

    fn field(&self, (file, name): (&str, &str)) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Members that were killed just now leave a moment later; an empty group does no harm.
        let _ = fs::remove_dir(&self.path);
    }
}
