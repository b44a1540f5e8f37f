//! A node that is not this host: the machine of a probe report.
//!
//! What the kernel tells an agent at its start, the report told when it was made: which memory there is, how
//! much of it was free, and what lay on which file system.

use std::path::{Path, PathBuf};

use tierfeed_core::{id::NumaNode, units::Bytes};
use tierfeed_resource_gatherer::{
    Available, Report,
    available::NodeFree,
    inventory::{
        CgroupMemory,
        mount::{Medium, holding},
    },
};
use tierfeed_workload_analyzer::Job;

use super::{Disk, Node, node::file_system_of};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportedError {
    #[error(
        "inventory.nodes lists no NUMA node with memory, so nothing can be planned; \
         make the report anew with `tierfeed tiers probe`"
    )]
    NoMemory,
    #[error(
        "no tier has the path {}, so it is not known what is free there; \
         make the report anew with `tierfeed tiers probe --{kind} {}`", .path.display(), .path.display()
    )]
    NotProbed { kind: &'static str, path: PathBuf },
    #[error(
        "tiers[{index}].free_bytes is missing for {}; \
         make the report anew with `tierfeed tiers probe`", .path.display()
    )]
    NoRoom { index: usize, path: PathBuf },
}

impl Node {
    /// The machine of a report, with the directories that `job` names.
    pub fn reported(report: &Report, job: &Job) -> Result<Self, ReportedError> {
        let inventory = report.inventory.clone();
        if inventory.memory_nodes().next().is_none() {
            return Err(ReportedError::NoMemory);
        }
        let free = |node: &tierfeed_resource_gatherer::inventory::Node| NodeFree {
            numa_node: NumaNode(node.id),
            free: Bytes(node.memory_free_bytes),
        };
        let available = Available {
            host: Bytes(inventory.memory.available_bytes),
            cgroup: inventory.cgroup.as_ref().and_then(CgroupMemory::headroom_bytes).map(Bytes),
            nodes_free: inventory.nodes.iter().filter(|node| !node.is_gpu()).map(free).collect(),
            pressure: None,
            load: None,
            disks: Vec::new(),
        };
        let tiers = job.tiers.iter();
        let with_path = tiers.filter_map(|tier| Some((tier.kind.name(), tier.path.as_deref()?)));
        let disks = with_path.map(|(kind, path)| disk(report, kind, path));
        let disks = disks.collect::<Result<_, _>>()?;
        Ok(Self::new(inventory, &available, disks, &job.tiers).known_by_report())
    }
}

/// The file system of a directory. What was measured in another directory of the same mount counts too.
fn disk(report: &Report, kind: &'static str, path: &Path) -> Result<Disk, ReportedError> {
    let mounts = &report.inventory.mounts;
    let mount = holding(mounts, path);
    let tiers = || report.tiers.iter().enumerate();
    let of_path = tiers().find(|(_, tier)| tier.path.as_deref() == Some(path));
    let on_mount = || {
        let is_there = |of: &PathBuf| mount.is_some() && holding(mounts, of) == mount;
        tiers().find(|(_, tier)| tier.path.as_ref().is_some_and(is_there))
    };
    let (index, tier) = of_path
        .or_else(on_mount)
        .ok_or_else(|| ReportedError::NotProbed { kind, path: path.to_owned() })?;
    let free =
        tier.free_bytes.ok_or_else(|| ReportedError::NoRoom { index, path: path.to_owned() });
    Ok(Disk {
        path: path.to_owned(),
        device: mounts.iter().position(|it| Some(it) == mount).map_or(u64::MAX, |at| at as u64),
        file_system: file_system_of(mount),
        is_ram_disk: mount.is_some_and(|it| it.medium == Medium::Memory),
        free: Bytes(free?),
    })
}
