//! Reads how much more memory the control groups of this process allow.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tierfeed_units::Bytes;

/// The least headroom of all groups from this process's own up to the root, if each keeps `kept` of
/// its limit free; `None` without limit.
///
/// File pages that the group can drop at once count as free. Shared memory counts as used from its
/// first touch, so chunks are part of it.
pub(crate) fn headroom(sysroot: &Path, kept: fn(Bytes) -> Bytes) -> Option<Bytes> {
    let groups = fs::read_to_string(sysroot.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| headroom_of_line(sysroot, line, kept)).min()
}

/// The names of the files that a version of control groups uses.
struct Files {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    droppable: &'static str,
}

const VERSION_1: Files = Files {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    droppable: "total_inactive_file",
};
const VERSION_2: Files = Files {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    droppable: "inactive_file",
};

/// Reads a line such as `4:memory:/slurm/job_7` (version 1) or `0::/user.slice` (version 2).
fn headroom_of_line(sysroot: &Path, line: &str, kept: fn(Bytes) -> Bytes) -> Option<Bytes> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let files = match controllers {
        "" => VERSION_2,
        names if names.split(',').any(|it| it == "memory") => VERSION_1,
        _ => return None,
    };
    let mount = sysroot.join(files.mount);
    let group = mount.join(path.trim_start_matches('/'));
    let up_to_mount = group.ancestors().take_while(|it| it.starts_with(&mount));
    up_to_mount.filter_map(|directory| headroom_of(directory, &files, kept)).min()
}

fn headroom_of(directory: &Path, files: &Files, kept: fn(Bytes) -> Bytes) -> Option<Bytes> {
    // `max` is no number and means no limit.
    let limit = number_in(&directory.join(files.limit))?;
    let usage = number_in(&directory.join(files.usage))?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let droppable = stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == files.droppable).then(|| value.trim().parse::<u64>().ok())?
    });
    let held = usage.saturating_sub(droppable.unwrap_or(0));
    Some(Bytes(limit.saturating_sub(held).saturating_sub(kept(Bytes(limit)).0)))
}

fn number_in(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
