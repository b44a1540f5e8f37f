//! Processes in a control group.

use std::{path::Path, process::Command};

/// A command whose process joins the control group at `group` before it executes `program`.
pub fn command_in(group: &Path, program: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(group.join("cgroup.procs"));
    shell.arg(program);
    shell
}
