//! Reads how much memory the control group of this process may still take.
//!
//! A limit may sit at any level above the process, so all levels are asked and the tightest wins.
//! Page cache counts as used but the kernel gives it back before it refuses, so file pages that no
//! process maps are reported beside the usage. Both versions of the interface are read; on hybrid systems the
//! memory controller is in version 1.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use tierfeed_numa_memory::capacity::cgroup::droppable;

use super::mount::Mount;
use crate::sysroot::{ReadError, Sysroot, field, optional, parsed, strict_number};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Version {
    V1,
    V2,
}

/// The level of the hierarchy that has the least memory left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupMemory {
    pub version: Version,
    pub path: PathBuf,
    /// The limit, `None` if no level has one. In version 2 the lower of `memory.max` and `memory.high`.
    pub limit_bytes: Option<u64>,
    /// The usage of that level, page cache included.
    pub usage_bytes: u64,
    /// The part of the usage that the kernel can drop at once.
    pub reclaimable_bytes: u64,
}

impl CgroupMemory {
    /// `None` if there is no limit.
    #[must_use]
    pub fn headroom_bytes(&self) -> Option<u64> {
        let held = self.usage_bytes.saturating_sub(self.reclaimable_bytes);
        self.limit_bytes.map(|limit| limit.saturating_sub(held))
    }
}

/// The group of this process, or `None` where no memory controller is mounted.
///
/// # Errors
///
/// A limit or a usage is no number: to take it for "no limit" would get the process killed.
pub(crate) fn read(
    sysroot: Sysroot<'_>,
    mounts: &[Mount],
) -> Result<Option<CgroupMemory>, ReadError> {
    let mut tightest: Option<CgroupMemory> = None;
    let Some((version, levels)) = memory_levels(sysroot, mounts) else { return Ok(None) };
    for level in levels {
        let Some(level) = read_level(version, level)? else { continue };
        let headroom = |it: &CgroupMemory| it.headroom_bytes().unwrap_or(u64::MAX);
        if tightest.as_ref().is_none_or(|least| headroom(&level) < headroom(least)) {
            tightest = Some(level);
        }
    }
    Ok(tightest)
}

/// The directories of the memory controller, from the process's own group upwards.
fn memory_levels(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Option<(Version, Vec<PathBuf>)> {
    let membership = optional(&sysroot.join("proc/self/cgroup"))?;
    let (version, group) = membership.lines().find_map(v1_group).map_or_else(
        || Some((Version::V2, field(&membership, "0::")?)),
        |group| Some((Version::V1, group)),
    )?;
    let mount = mounts.iter().rev().find(|mount| match version {
        Version::V1 => mount.file_system == "cgroup" && has_option(mount, "memory"),
        Version::V2 => mount.file_system == "cgroup2",
    })?;
    Some((version, levels(sysroot, mount, group)))
}

/// The directory of the process's own group, for the files that only make sense there.
pub(crate) fn own_v2_directory(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Option<PathBuf> {
    let membership = optional(&sysroot.join("proc/self/cgroup"))?;
    let mount = mounts.iter().rev().find(|mount| mount.file_system == "cgroup2")?;
    levels(sysroot, mount, field(&membership, "0::")?).into_iter().next()
}

/// `4:memory:/group`, also when several controllers share the hierarchy.
fn v1_group(line: &str) -> Option<&str> {
    let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
    controllers.split(',').any(|controller| controller == "memory").then_some(group)
}

fn has_option(mount: &Mount, option: &str) -> bool {
    mount.options.split(',').any(|present| present == option)
}

/// The directories from the group up to the mount. In a container the mount starts at the container's
/// group while the membership is told from the host's root, so what they share is cut off; a group
/// that is not visible here at all leaves the mount itself.
fn levels(sysroot: Sysroot<'_>, mount: &Mount, group: &str) -> Vec<PathBuf> {
    let top = sysroot.join(&mount.path);
    let inside = Path::new(group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let leaves = inside.components().any(|part| !matches!(part, Component::Normal(_)));
    let own = if inside.as_os_str().is_empty() || leaves { top.clone() } else { top.join(inside) };
    let own = if own.is_dir() { own } else { top.clone() };
    own.ancestors().take_while(|level| level.starts_with(&top)).map(Path::to_owned).collect()
}

fn read_level(version: Version, path: PathBuf) -> Result<Option<CgroupMemory>, ReadError> {
    let (limits, usage, total) = match version {
        Version::V1 => (&["memory.limit_in_bytes"][..], "memory.usage_in_bytes", "total_"),
        // Above `memory.high` the kernel slows the group down until it gave pages back.
        Version::V2 => (&["memory.max", "memory.high"][..], "memory.current", ""),
    };
    let mut limit_bytes = None;
    for name in limits {
        let limit = parsed(&path.join(name), "a number of bytes, or max", limit)?.flatten();
        limit_bytes = [limit_bytes, limit].into_iter().flatten().min();
    }
    let Some(usage_bytes) = strict_number(&path.join(usage))? else { return Ok(None) };
    Ok(Some(CgroupMemory {
        version,
        limit_bytes,
        usage_bytes,
        reclaimable_bytes: droppable(
            &optional(&path.join("memory.stat")).unwrap_or_default(),
            total,
        ),
        path,
    }))
}

/// `Some(None)` for no limit.
#[expect(clippy::option_option, reason = "no limit and no number are two things")]
fn limit(text: &str) -> Option<Option<u64>> {
    match text {
        "max" => Some(None),
        number => number.parse().ok().map(|limit| Some(limit).filter(|limit| *limit < UNLIMITED)),
    }
}

/// Version 1 writes "no limit" as the largest multiple of the page size that fits 63 bits.
const UNLIMITED: u64 = 1 << 62;
