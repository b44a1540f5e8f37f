//! Tells how much memory may be taken right now, cheaply enough to be asked all the time.
//!
//! Buffers shrink by this before the node swaps. Three things can be short and all count: the memory
//! of the host, the limit of the control group, and the time that tasks already wait for memory (PSI).

pub mod pressure;

use std::path::PathBuf;

use tierfeed_core::{id::NumaNode, units::Bytes};

use crate::{
    inventory::{cgroup, meminfo, mount, node},
    sysroot::{ReadError, Sysroot, numbered_entries},
};

/// A snapshot of what is left.
#[derive(Debug, Clone, PartialEq)]
pub struct Available {
    /// What a new program could take on the host without swapping.
    pub host: Bytes,
    /// What the control group still allows, `None` without a limit.
    pub cgroup: Option<Bytes>,
    /// What no one uses, by node, in ascending order; page cache does not count as free here.
    pub nodes_free: Vec<(NumaNode, Bytes)>,
    /// The share of the last ten seconds, in per cent, in which some task waited for memory; `None`
    /// on a kernel without PSI.
    pub pressure_percent: Option<f64>,
}

/// Takes snapshots; finds the files once.
#[derive(Debug, Clone)]
pub struct Watch {
    root: PathBuf,
    mounts: Vec<mount::Mount>,
    node_ids: Vec<u32>,
}

impl Available {
    /// What may be taken anywhere: the tighter of host and control group.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.cgroup.map_or(self.host, |cgroup| self.host.min(cgroup))
    }

    /// What may be taken on `node`; nothing on a node that is not there.
    #[must_use]
    pub fn bytes_on(&self, node: NumaNode) -> Bytes {
        let free = self.nodes_free.iter().find(|(id, _)| *id == node);
        let free = free.map_or(Bytes(0), |(_, free)| *free);
        self.cgroup.map_or(free, |cgroup| free.min(cgroup))
    }
}

impl Watch {
    /// Finds out where to look in the tree below `sysroot`.
    ///
    /// # Errors
    ///
    /// The mounts of the process cannot be read.
    pub fn new(sysroot: Sysroot<'_>) -> Result<Self, ReadError> {
        Ok(Self {
            root: sysroot.0.to_owned(),
            mounts: mount::lines(sysroot)?,
            node_ids: numbered_entries(&sysroot.join("sys/devices/system/node"), "node"),
        })
    }

    /// What is left now. Reads a handful of small files.
    ///
    /// # Errors
    ///
    /// The kernel's report of its memory cannot be read.
    pub fn read(&self) -> Result<Available, ReadError> {
        let sysroot = Sysroot(&self.root);
        let cgroup = cgroup::read(sysroot, &self.mounts)?.and_then(|group| group.headroom_bytes());
        let memory = meminfo::read(sysroot)?;
        let free = self.node_ids.iter().map(|&id| Ok((NumaNode(id), node::free(sysroot, id)?)));
        let mut nodes_free: Vec<(NumaNode, Bytes)> = free.collect::<Result<_, ReadError>>()?;
        if let [(_, free)] = &mut nodes_free[..] {
            // See `inventory` for why the only node has what the host has.
            *free = Bytes(memory.free_bytes).max(*free);
        }
        Ok(Available {
            host: Bytes(memory.available_bytes),
            cgroup: cgroup.map(Bytes),
            nodes_free,
            pressure_percent: pressure::memory(sysroot, &self.mounts),
        })
    }
}

#[cfg(test)]
mod tests;
