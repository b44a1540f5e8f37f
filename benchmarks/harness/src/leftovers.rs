//! The leftovers of an experiment when it is killed: processes, mounts, loop devices, control groups, files.
//!
//! A [`Watch`] is a process that lives as long as the experiment, in a process group of its own, so that Ctrl-C does
//! not reach it. When the experiment ends, however it ends, it removes what is still there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{clock::pause, failure::Failure, programs::Programs};

/// The places where control groups are mounted: one of version 2, or each controller of version 1.
const GROUPS: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/blkio"];

const RAM_DISK: &str = "/dev/shm";

/// Attempts until processes are gone and mounts are idle, and the pause after each.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// The name of the folders and control groups that this process makes.
pub fn own_name() -> String {
    name_of(std::process::id())
}

fn name_of(process: u32) -> String {
    format!("tierfeed-bench-{process}")
}

/// The process that removes what this one leaves.
#[derive(Debug)]
pub struct Watch {
    child: Child,
}

impl Watch {
    /// Starts it for files below `folder` and on the RAM disk: `tierfeed-bench remove-leftovers --process PID FOLDER...`,
    /// which ends with its input.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] if `tierfeed` was not built, [`Failure::Work`] if it does not start.
    pub fn start(folder: &Path) -> Result<Self, Failure> {
        let program = Programs::find()?.own;
        let mut command = Command::new(&program);
        command.args(["remove-leftovers", "--process", &std::process::id().to_string()]);
        // As mounts and loop devices have them.
        for folder in [folder, Path::new(RAM_DISK)] {
            command.arg(folder.canonicalize().with_context(|| folder.display().to_string())?);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().with_context(|| program.display().to_string())?;
        Ok(Self { child })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Removes what the experiment of `process`, which is gone, left in control groups and below `folders`. What cannot be
/// removed stays.
pub fn remove(process: u32, folders: &[PathBuf]) {
    let name = name_of(process);
    let groups = GROUPS.iter().flat_map(|mount| below(mount.as_ref(), &name));
    let groups: Vec<PathBuf> = groups.flat_map(with_groups_below).collect();
    let folders: Vec<PathBuf> = folders.iter().flat_map(|folder| below(folder, &name)).collect();
    for _ in 0..ATTEMPTS {
        let processes: Vec<i32> = groups.iter().flat_map(|group| processes_in(group)).collect();
        for pid in &processes {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        let mounts: Vec<PathBuf> = folders.iter().flat_map(|folder| mounts_below(folder)).collect();
        for mount in mounts.iter().rev() {
            let _ = Command::new("umount").arg(mount).stderr(Stdio::null()).status();
        }
        if processes.is_empty() && mounts.is_empty() {
            break;
        }
        pause(PAUSE);
    }
    for folder in folders {
        detach_devices(&folder);
        let _ = fs::remove_dir_all(folder);
    }
    for group in groups {
        let _ = fs::remove_dir(group);
    }
}

/// Entries of `parent` with this name, alone or followed by a dash and more.
fn below(parent: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_meant = |entry: &str| {
        entry.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let meant = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_meant));
    meant.map(|entry| entry.path()).collect()
}

/// A control group and those below it, the innermost first.
fn with_groups_below(group: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(&group).into_iter().flatten().flatten();
    let inner = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let mut groups: Vec<PathBuf> = inner.flat_map(with_groups_below).collect();
    groups.push(group);
    groups
}

fn processes_in(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// In the order in which they were mounted.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    places.filter(|place| place.starts_with(folder)).collect()
}

/// Frees the loop devices of images below `folder`.
fn detach_devices(folder: &Path) {
    let listed =
        Command::new("losetup").args(["--noheadings", "--output", "NAME,BACK-FILE"]).output();
    let Ok(listed) = listed else { return };
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let Some((device, image)) = line.trim().split_once(char::is_whitespace) else { continue };
        if Path::new(image.trim()).starts_with(folder) {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_process_that_is_gone_are_removed_and_those_of_others_stay() {
        let parent = std::env::temp_dir().join(format!("{}-leftovers-test", own_name()));
        let folders =
            ["tierfeed-bench-9", "tierfeed-bench-9-scratch", "tierfeed-bench-99", "other"];
        for folder in folders {
            fs::create_dir_all(parent.join(folder).join("inner")).unwrap();
        }
        remove(9, std::slice::from_ref(&parent));
        let left = folders.map(|folder| parent.join(folder).exists());
        fs::remove_dir_all(&parent).unwrap();
        assert_eq!(left, [false, false, true, true]);
    }

    #[test]
    fn groups_within_a_group_are_removed_before_it() {
        let parent = std::env::temp_dir().join(format!("{}-groups-test", own_name()));
        fs::create_dir_all(parent.join("inner/innermost")).unwrap();
        let groups = with_groups_below(parent.clone());
        fs::remove_dir_all(&parent).unwrap();
        let all = ["inner/innermost", "inner"].map(|it| parent.join(it));
        assert_eq!(groups, [all.as_slice(), &[parent]].concat());
    }
}
