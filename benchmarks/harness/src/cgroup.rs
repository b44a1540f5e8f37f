//! Processes in a control group.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context as _;

use crate::leftovers::own_name;

/// A name for a group that no other group of this process has.
pub fn unused_name(kind: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("{}-{kind}-{}", own_name(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// Turns a controller on for the groups below one of version 2.
///
/// # Errors
///
/// If the kernel has no such controller, or refuses it: in a container, where processes are in the group itself.
pub fn turn_on(group: &Path, controller: &str) -> anyhow::Result<()> {
    fs::write(group.join("cgroup.subtree_control"), format!("+{controller}")).with_context(|| {
        format!(
            "cannot turn the {controller} controller on below {}; this needs root, and no processes in that group \
             unless it is the host's first",
            group.display()
        )
    })
}

/// A command whose process joins all of `groups`, of different controllers, before it executes `program`.
pub fn command_in(groups: &[PathBuf], program: &Path) -> Command {
    let mut shell = Command::new("sh");
    let join = "for group in $0; do echo $$ > \"$group/cgroup.procs\" || exit 1; done; exec \"$@\"";
    let groups: Vec<_> = groups.iter().map(|group| group.display().to_string()).collect();
    shell.args(["-c", join]).arg(groups.join(" ")).arg(program);
    shell
}
