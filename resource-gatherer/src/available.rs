//! Tells how much memory may be taken right now, and how busy the node is, cheaply enough to be asked
//! all the time.
//!
//! Buffers shrink by this before the node swaps. Several things can be short and all count: the memory of
//! the host, the limit of the control group or of the batch system, and the time that tasks already wait for
//! memory (PSI).
//! A snapshot reads about fifteen files of `/proc` and `/sys`. With one node, two directories and a
//! control group three levels deep its median was 173 us, on two virtual CPUs with a load of 11.

pub mod disk;
mod job_memory;
pub mod load;
pub mod pressure;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tierfeed_core::{id::NumaNode, units::Bytes};

pub use self::{disk::DiskSpace, load::Load, pressure::Pressure};
use crate::{
    inventory::{cgroup, gpu_memory, meminfo, mount, node},
    sysroot::{ReadError, Sysroot, numbered_entries},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Available {
    /// Memory that a new program could take on the host without swapping; memory of GPUs does not count.
    #[serde(rename = "host_bytes")]
    pub host: Bytes,
    /// Memory that the control group or the batch system still allows; `None` without a limit.
    #[serde(rename = "cgroup_bytes")]
    pub cgroup: Option<Bytes>,
    /// Free memory by node, in ascending order; page cache does not count as free.
    #[serde(rename = "numa_nodes")]
    pub nodes_free: Vec<NodeFree>,
    /// `None` on a kernel without PSI.
    pub pressure: Option<Pressure>,
    pub load: Option<Load>,
    /// The room of directories. [`Watch::read`] leaves it empty: a file system that does not answer must not
    /// hide what memory is left, so each is asked apart ([`DiskSpace::read`]).
    #[serde(rename = "directories")]
    pub disks: Vec<DiskSpace>,
}

/// Free memory of a NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFree {
    pub numa_node: NumaNode,
    #[serde(rename = "free_bytes")]
    pub free: Bytes,
}

/// Takes snapshots; finds the files once.
#[derive(Debug, Clone)]
pub struct Watch {
    root: PathBuf,
    mounts: Vec<mount::Mount>,
    node_ids: Vec<u32>,
    /// Nodes with memory of GPUs, which is no memory of the host.
    gpu_nodes: Vec<u32>,
    job_limit: Option<Bytes>,
}

impl Available {
    /// The smaller of what the host and the control group still allow.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.cgroup.map_or(self.host, |cgroup| self.host.min(cgroup))
    }

    /// Memory that may still be taken on `node`; 0 for a node that is not there.
    #[must_use]
    pub fn bytes_on(&self, node: NumaNode) -> Bytes {
        let known = self.nodes_free.iter().find(|it| it.numa_node == node);
        let free = known.map_or(Bytes(0), |it| it.free);
        self.cgroup.map_or(free, |cgroup| free.min(cgroup))
    }
}

impl Watch {
    /// # Errors
    ///
    /// The mounts of the process cannot be read.
    pub fn new(sysroot: Sysroot<'_>) -> Result<Self, ReadError> {
        let gpu_nodes = gpu_memory::nodes(sysroot);
        let mut node_ids = numbered_entries(&sysroot.join("sys/devices/system/node"), "node");
        node_ids.retain(|id| !gpu_nodes.contains(id));
        let (root, mounts) = (sysroot.0.to_owned(), mount::lines(sysroot)?);
        Ok(Self { root, mounts, node_ids, gpu_nodes, job_limit: None })
    }

    /// Sets the memory that the batch system gave the job on this host, whether or not a control group
    /// enforces it.
    #[must_use]
    pub fn within(self, job_limit: Option<Bytes>) -> Self {
        Self { job_limit, ..self }
    }

    /// The limit of the control group that has the least left, or that of the batch system if it is less;
    /// `None` without either. It may change at any time.
    ///
    /// # Errors
    ///
    /// A limit is no number.
    pub fn group_limit(&self) -> Result<Option<Bytes>, ReadError> {
        let group = cgroup::read(Sysroot(&self.root), &self.mounts)?;
        let limit = group.and_then(|group| group.limit_bytes).map(Bytes);
        Ok(limit.into_iter().chain(self.job_limit).min())
    }

    /// The processes whose memory counts against what the batch system gave the job; none without a batch system.
    /// This reads a file for each process of the host.
    #[must_use]
    pub fn job_processes(&self) -> Vec<u32> {
        self.job_limit.map_or_else(Vec::new, |_| job_memory::members(Sysroot(&self.root)))
    }

    /// # Errors
    ///
    /// The kernel's report of its memory, or of a limit, cannot be read.
    pub fn read(&self) -> Result<Available, ReadError> {
        self.read_with(&self.job_processes())
    }

    /// Like [`Self::read`], with an earlier result of [`Self::job_processes`]: the memory of these processes
    /// is read anew, and new processes of the job are not looked for.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_with(&self, job_processes: &[u32]) -> Result<Available, ReadError> {
        let sysroot = Sysroot(&self.root);
        let cgroup = cgroup::read(sysroot, &self.mounts)?.and_then(|group| group.headroom_bytes());
        let left = |limit| job_memory::left_of(limit, job_processes, sysroot);
        let of_job = self.job_limit.map(left);
        let memory = meminfo::read_without(sysroot, &self.gpu_nodes)?;
        let free = self
            .node_ids
            .iter()
            .map(|&id| Ok(NodeFree { numa_node: NumaNode(id), free: node::free(sysroot, id)? }));
        let mut nodes_free: Vec<_> = free.collect::<Result<_, ReadError>>()?;
        if let [NodeFree { free, .. }] = &mut nodes_free[..] {
            // See `inventory` for why the only node has what the host has.
            *free = Bytes(memory.free_bytes).max(*free);
        }
        Ok(Available {
            host: Bytes(memory.available_bytes),
            cgroup: cgroup.map(Bytes).into_iter().chain(of_job).min(),
            nodes_free,
            pressure: pressure::memory(sysroot, &self.mounts),
            load: load::read(sysroot),
            disks: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
