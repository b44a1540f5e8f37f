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

use tierfeed_core::{id::NumaNode, units::Bytes};

pub use self::{
    disk::DiskSpace,
    load::Load,
    pressure::{Pressure, Waiting},
};
use crate::{
    inventory::{cgroup, gpu_memory, meminfo, mount, node},
    sysroot::{ReadError, Sysroot, numbered_entries},
};

/// A snapshot of what is left.
#[derive(Debug, Clone, PartialEq)]
pub struct Available {
    /// What a new program could take on the host without swapping, memory of GPUs apart.
    pub host: Bytes,
    /// What the control group or the batch system still allows, `None` without a limit.
    pub cgroup: Option<Bytes>,
    /// What is free, by node, in ascending order; page cache does not count as free here.
    pub nodes_free: Vec<(NumaNode, Bytes)>,
    /// How long tasks waited for memory, `None` on a kernel without PSI.
    pub pressure: Option<Pressure>,
    /// How many tasks want a CPU, `None` where the kernel does not tell.
    pub load: Option<Load>,
    /// The room of directories. [`Watch::read`] leaves it empty: a file system that does not answer must not
    /// hide what memory is left, so each is asked apart ([`DiskSpace::read`]).
    pub disks: Vec<DiskSpace>,
}

/// Takes snapshots; finds the files once.
#[derive(Debug, Clone)]
pub struct Watch {
    root: PathBuf,
    mounts: Vec<mount::Mount>,
    node_ids: Vec<u32>,
    /// Nodes with memory of GPUs, which is no memory of the host.
    gpu_nodes: Vec<u32>,
    /// What the batch system gave the job on this host.
    job_limit: Option<Bytes>,
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
        let gpu_nodes = gpu_memory::nodes(sysroot);
        let mut node_ids = numbered_entries(&sysroot.join("sys/devices/system/node"), "node");
        node_ids.retain(|id| !gpu_nodes.contains(id));
        let (root, mounts) = (sysroot.0.to_owned(), mount::lines(sysroot)?);
        Ok(Self { root, mounts, node_ids, gpu_nodes, job_limit: None })
    }

    /// The same for a job that its batch system gave so much memory on this host, whether or not a control
    /// group holds it to that.
    #[must_use]
    pub fn within(self, job_limit: Option<Bytes>) -> Self {
        Self { job_limit, ..self }
    }

    /// The limit of the control group that has the least left, or that of the batch system if it is less; `None`
    /// without either. It may be changed at any time.
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

    /// What is left of memory now.
    ///
    /// # Errors
    ///
    /// The kernel's report of its memory, or of a limit, cannot be read.
    pub fn read(&self) -> Result<Available, ReadError> {
        self.read_with(&self.job_processes())
    }

    /// The same with [`Self::job_processes`] of a moment ago: what they hold is read anew, others of the job are
    /// not looked for.
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
        let free = self.node_ids.iter().map(|&id| Ok((NumaNode(id), node::free(sysroot, id)?)));
        let mut nodes_free: Vec<(NumaNode, Bytes)> = free.collect::<Result<_, ReadError>>()?;
        if let [(_, free)] = &mut nodes_free[..] {
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
