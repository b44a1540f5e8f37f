//! Processes in a control group.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::leftovers::own_name;

/// A name for a group that no other group of this process has.
pub fn unused_name(kind: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("{}-{kind}-{}", own_name(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// A command whose process joins the control group at `group` before it executes `program`.
pub fn command_in(group: &Path, program: &Path) -> Command {
    command_in_all(&[group], program)
}

/// A command whose process joins all of `groups`, of different controllers, before it executes `program`.
pub fn command_in_all(groups: &[&Path], program: &Path) -> Command {
    let mut shell = Command::new("sh");
    let join = "for group in $0; do echo $$ > \"$group/cgroup.procs\" || exit 1; done; exec \"$@\"";
    let groups: Vec<_> = groups.iter().map(|group| group.display().to_string()).collect();
    shell.args(["-c", join]).arg(groups.join(" ")).arg(program);
    shell
}
