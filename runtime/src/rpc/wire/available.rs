//! Converts the free resources of nodes to and from messages.

use tierfeed_core::{
    id::NumaNode,
    units::{Bytes, Nanoseconds},
};
use tierfeed_resource_gatherer::available::{Available, DiskSpace, Load, Pressure, Waiting};

use super::{WireError, pb};

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
