//! A control group of version 1 with a limit of memory, where this process may make one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use tierfeed_core::units::Bytes;

/// A group; gone when dropped.
pub(crate) struct Group(PathBuf);

impl Group {
    /// `None`, with a word about why, where this process may make none.
    pub(crate) fn new(name: &str, limit: Bytes) -> Option<Self> {
        let name = format!("tierfeed-{name}-{}", std::process::id());
        let path = Path::new("/sys/fs/cgroup/memory").join(name);
        let group = Self(path);
        match group.make(limit) {
            Ok(()) => Some(group),
            Err(error) => {
                eprintln!("skipped: no control group {}: {error}", group.0.display());
                None
            }
        }
    }

    fn make(&self, limit: Bytes) -> io::Result<()> {
        fs::create_dir(&self.0)?;
        fs::write(self.0.join("memory.limit_in_bytes"), limit.0.to_string())
    }

    /// Allows so much from now on.
    pub(crate) fn limit(&self, limit: Bytes) {
        fs::write(self.0.join("memory.limit_in_bytes"), limit.0.to_string()).unwrap();
    }

    /// What its members hold, but for files that the kernel can drop.
    pub(crate) fn held(&self) -> Bytes {
        let field = |name| self.field("memory.stat", name);
        Bytes(field("total_rss ") + field("total_shmem "))
    }

    /// Nobody was killed for want of memory, and nothing was swapped.
    #[track_caller]
    pub(crate) fn assert_unharmed(&self) {
        assert_eq!(self.field("memory.oom_control", "oom_kill "), 0, "killed for want of memory");
        assert_eq!(self.field("memory.stat", "total_swap "), 0, "swapped");
    }

    /// `command`, started as a member.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
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

    fn field(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.0.join(file)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Members that were killed just now leave a moment later; an empty group harms nobody.
        let _ = fs::remove_dir(&self.0);
    }
}
