//! Reads how much memory the control group of this process may still take.
//!
//! A limit may sit at any level above the process, so all levels are asked and the tightest wins.
//! Page cache counts as used but the kernel gives it back before it refuses, so inactive file pages
//! are reported beside the usage. Both versions of the interface are read; on hybrid systems the
//! memory controller is in version 1.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::mount::Mount;
use crate::sysroot::{Sysroot, optional, optional_number};

/// The generation of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Version {
    /// `memory.limit_in_bytes`.
    V1,
    /// `memory.max`.
    V2,
}

/// The level of the hierarchy that has the least memory left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupMemory {
    /// Which interface it is.
    pub version: Version,
    /// The directory of the level.
    pub path: PathBuf,
    /// The limit, `None` if no level has one.
    pub limit_bytes: Option<u64>,
    /// What is used at that level, page cache included.
    pub usage_bytes: u64,
    /// The part of the usage that the kernel can drop at once.
    pub reclaimable_bytes: u64,
}

impl CgroupMemory {
    /// What may still be taken, `None` if there is no limit.
    #[must_use]
    pub fn headroom_bytes(&self) -> Option<u64> {
        let held = self.usage_bytes.saturating_sub(self.reclaimable_bytes);
        self.limit_bytes.map(|limit| limit.saturating_sub(held))
    }
}

/// The group of this process, or `None` where no memory controller is mounted.
pub(crate) fn read(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Option<CgroupMemory> {
    let membership = optional(&sysroot.join("proc/self/cgroup"))?;
    let (version, group) = membership.lines().find_map(v1_group).map_or_else(
        || Some((Version::V2, membership.lines().find_map(|line| line.strip_prefix("0::"))?)),
        |group| Some((Version::V1, group)),
    )?;
    let mount = mounts.iter().rev().find(|mount| match version {
        Version::V1 => mount.file_system == "cgroup" && has_option(mount, "memory"),
        Version::V2 => mount.file_system == "cgroup2",
    })?;
    levels(sysroot, mount, group)
        .into_iter()
        .filter_map(|level| read_level(version, level))
        .min_by_key(|level| level.headroom_bytes().unwrap_or(u64::MAX))
}

/// The directory of the process's own group, for the files that only make sense there.
pub(crate) fn own_v2_directory(sysroot: Sysroot<'_>, mounts: &[Mount]) -> Option<PathBuf> {
    let membership = optional(&sysroot.join("proc/self/cgroup"))?;
    let group = membership.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    let mount = mounts.iter().rev().find(|mount| mount.file_system == "cgroup2")?;
    levels(sysroot, mount, &group).into_iter().next()
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
    let own = if inside.as_os_str().is_empty() { top.clone() } else { top.join(inside) };
    let own = if own.is_dir() { own } else { top.clone() };
    own.ancestors().take_while(|level| level.starts_with(&top)).map(Path::to_owned).collect()
}

fn read_level(version: Version, path: PathBuf) -> Option<CgroupMemory> {
    let (limit, usage, inactive) = match version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        Version::V2 => ("memory.max", "memory.current", "inactive_file"),
    };
    Some(CgroupMemory {
        version,
        limit_bytes: optional_number(&path.join(limit)).filter(|limit| *limit < UNLIMITED),
        usage_bytes: optional_number(&path.join(usage))?,
        reclaimable_bytes: statistic(&path.join("memory.stat"), inactive),
        path,
    })
}

/// Version 1 writes "no limit" as the largest multiple of the page size that fits 63 bits.
const UNLIMITED: u64 = 1 << 62;

fn statistic(path: &Path, key: &str) -> u64 {
    let text = optional(path).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
        .unwrap_or(0)
}
