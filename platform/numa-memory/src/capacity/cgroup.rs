//! Reads how much more memory the control groups of this process allow.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tierfeed_units::Bytes;

/// The least headroom of all groups from this process's own up to the root, if each keeps `kept` of
/// its limit free; `None` without limit.
///
/// File pages that no process maps count as free, because the group can drop them. Shared memory
/// counts as used from its first touch, so chunks are part of it.
pub(crate) fn headroom(sysroot: &Path, kept: fn(Bytes) -> Bytes) -> Option<Bytes> {
    let groups = fs::read_to_string(sysroot.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| headroom_of_line(sysroot, line, kept)).min()
}

/// The names of the files that a version of control groups uses.
struct Files {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The prefix of the figures that include the groups below.
    total: &'static str,
}

const VERSION_1: Files = Files {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    total: "total_",
};
const VERSION_2: Files =
    Files { mount: "sys/fs/cgroup", limit: "memory.max", usage: "memory.current", total: "" };

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
    let held = usage.saturating_sub(droppable(&stat, files.total));
    Some(Bytes(limit.saturating_sub(held).saturating_sub(kept(Bytes(limit)).0)))
}

/// Bytes of file pages that no process maps, from `memory.stat`.
///
/// Files that are read often are active, and yet page cache. What is mapped of them, such as programs, is
/// not separated there from mapped shared memory, of which no more can be mapped than there is.
#[must_use]
pub fn droppable(stat: &str, prefix: &str) -> u64 {
    let figure = |name: &str| {
        let value = stat.lines().find_map(|line| {
            line.strip_prefix(prefix)?.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok()
        });
        value.unwrap_or(0_u64)
    };
    let mapped = figure(if prefix.is_empty() { "file_mapped" } else { "mapped_file" });
    let programs = mapped.saturating_sub(figure("shmem"));
    figure("inactive_file").saturating_add(figure("active_file").saturating_sub(programs))
}

fn number_in(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
