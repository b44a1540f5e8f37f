//! What nodes have left, there and back, and as `tierfeed status` shows it.

use serde::Serialize;
use tierfeed_core::{
    id::NumaNode,
    units::{Bytes, Nanoseconds},
};
use tierfeed_resource_gatherer::available::{Available, DiskSpace, Load, Pressure, Waiting};

use super::{WireError, pb};

/// What a node had left when it told last.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AvailableStatus {
    /// How long ago that was.
    pub age_ns: u64,
    /// What a new program could take on the host without swapping.
    pub host_bytes: u64,
    /// What the control group of the agent still allows, `None` without a limit.
    pub cgroup_bytes: Option<u64>,
    /// What no one uses, by NUMA node.
    pub numa_nodes: Vec<NumaStatus>,
    /// How long tasks waited for memory, `None` on a kernel without PSI.
    pub pressure: Option<PressureStatus>,
    /// How many tasks want a CPU.
    pub load: Option<LoadStatus>,
    /// The directories of tiers.
    pub directories: Vec<DirectoryStatus>,
}

/// What no one uses on a NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NumaStatus {
    /// Its number.
    pub numa_node: u32,
    /// Page cache does not count as free.
    pub free_bytes: u64,
}

/// How long tasks waited for memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PressureStatus {
    /// Share of the last ten seconds in which some task waited.
    pub some_percent: f64,
    /// All time in which some task waited.
    pub some_ns: u64,
    /// Share of the last ten seconds in which all tasks waited.
    pub full_percent: f64,
    /// All time in which all tasks waited.
    pub full_ns: u64,
}

/// How many tasks want a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadStatus {
    /// Averaged over the last minute.
    pub one_minute: f64,
    /// At that moment.
    pub runnable_tasks: u32,
}

/// The room below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirectoryStatus {
    /// The directory.
    pub path: String,
    /// What may still be written.
    pub free_bytes: u64,
    /// All that the file system holds.
    pub total_bytes: u64,
}

impl AvailableStatus {
    pub(super) fn of(available: &Available, age: Nanoseconds) -> Self {
        let numa = |&(node, free): &(NumaNode, Bytes)| NumaStatus {
            numa_node: node.0,
            free_bytes: free.0,
        };
        let directory = |disk: &DiskSpace| DirectoryStatus {
            path: disk.path.to_string_lossy().into_owned(),
            free_bytes: disk.free.0,
            total_bytes: disk.total.0,
        };
        Self {
            age_ns: age.0,
            host_bytes: available.host.0,
            cgroup_bytes: available.cgroup.map(|bytes| bytes.0),
            numa_nodes: available.nodes_free.iter().map(numa).collect(),
            pressure: available.pressure.map(|pressure| PressureStatus {
                some_percent: pressure.some.percent,
                some_ns: pressure.some.total.0,
                full_percent: pressure.full.percent,
                full_ns: pressure.full.total.0,
            }),
            load: available.load.map(|load| LoadStatus {
                one_minute: load.one_minute,
                runnable_tasks: load.runnable,
            }),
            directories: available.disks.iter().map(directory).collect(),
        }
    }
}

impl From<&Available> for pb::Available {
    fn from(available: &Available) -> Self {
        let free =
            |&(node, bytes): &(NumaNode, Bytes)| pb::NodeFree { numa_node: node.0, bytes: bytes.0 };
        let room = |disk: &DiskSpace| pb::DirectoryRoom {
            path: disk.path.to_string_lossy().into_owned(),
            free_bytes: disk.free.0,
            total_bytes: disk.total.0,
        };
        Self {
            host_bytes: available.host.0,
            cgroup_bytes: available.cgroup.map(|bytes| bytes.0),
            nodes_free: available.nodes_free.iter().map(free).collect(),
            pressure: available.pressure.map(|pressure| pb::Pressure {
                some_percent: pressure.some.percent,
                some_ns: pressure.some.total.0,
                full_percent: pressure.full.percent,
                full_ns: pressure.full.total.0,
            }),
            load: available.load.map(|load| pb::Load {
                one_minute: load.one_minute,
                runnable_tasks: load.runnable,
            }),
            directories: available.disks.iter().map(room).collect(),
        }
    }
}

impl TryFrom<pb::Available> for Available {
    type Error = WireError;

    fn try_from(available: pb::Available) -> Result<Self, WireError> {
        let room = |room: pb::DirectoryRoom| DiskSpace {
            path: room.path.into(),
            free: Bytes(room.free_bytes),
            total: Bytes(room.total_bytes),
        };
        let free = |free: pb::NodeFree| (NumaNode(free.numa_node), Bytes(free.bytes));
        Ok(Self {
            host: Bytes(available.host_bytes),
            cgroup: available.cgroup_bytes.map(Bytes),
            nodes_free: available.nodes_free.into_iter().map(free).collect(),
            pressure: available.pressure.map(pressure).transpose()?,
            load: available.load.map(load).transpose()?,
            disks: available.directories.into_iter().map(room).collect(),
        })
    }
}

fn pressure(pressure: pb::Pressure) -> Result<Pressure, WireError> {
    let waiting = |percent: f64, total| {
        let value = || percent.to_string();
        let is_share = (0.0..=100.0).contains(&percent);
        is_share
            .then_some(Waiting { percent, total: Nanoseconds(total) })
            .ok_or_else(|| WireError::Unknown { field: "pressure", value: value() })
    };
    Ok(Pressure {
        some: waiting(pressure.some_percent, pressure.some_ns)?,
        full: waiting(pressure.full_percent, pressure.full_ns)?,
    })
}

fn load(load: pb::Load) -> Result<Load, WireError> {
    let one_minute = load.one_minute;
    if !one_minute.is_finite() || one_minute < 0.0 {
        return Err(WireError::Unknown { field: "load", value: one_minute.to_string() });
    }
    Ok(Load { one_minute, runnable: load.runnable_tasks })
}
