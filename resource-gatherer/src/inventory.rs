//! Reads what a node has: memory, CPUs, caches, mounts, limits. Measures nothing.
//!
//! Sysfs and procfs are enough. With the feature `hwloc`, and on the machine that the process runs
//! on, hwloc fills what they leave open; it never overrules them, because both read the same firmware
//! tables and a fixture of sysfs must give what the machine gave.
//!
//! The only node of a host has all its memory, also where its own `meminfo` says less: guests whose memory
//! grows with its use were seen to account for 25 GB on the host and 9 GB on the node.

pub mod allowed;
pub mod attributes;
mod block;
pub mod boot;
pub mod cache;
pub mod cgroup;
pub mod cxl;
pub mod dax;
pub(crate) mod gpu_memory;
#[cfg(feature = "hwloc")]
mod hwloc;
pub mod meminfo;
pub mod mount;
pub mod node;
pub(crate) mod number_list;
pub mod placement;
pub mod processor;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::number_list::parse as numbers;
pub use self::{
    allowed::Allowed, attributes::Rated, boot::Boot, cache::Cache, cgroup::CgroupMemory, cxl::Cxl,
    dax::DaxDevice, meminfo::Memory, mount::Mount, node::Node, placement::Placement,
    processor::Processor,
};
use crate::sysroot::{ReadError, Sysroot, optional};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inventory {
    pub host: String,
    /// `None` in reports of versions that did not note it.
    #[serde(default)]
    pub boot: Option<Boot>,
    pub memory: Memory,
    /// In ascending order; at least one.
    pub nodes: Vec<Node>,
    pub processor: Processor,
    /// Data caches, each once.
    pub caches: Vec<Cache>,
    pub cxl: Cxl,
    /// By name.
    pub dax: Vec<DaxDevice>,
    pub placement: Placement,
    pub mounts: Vec<Mount>,
    pub allowed: Allowed,
    pub cgroup: Option<CgroupMemory>,
    pub hwloc: bool,
}

impl Inventory {
    /// # Errors
    ///
    /// A file that every Linux provides is missing, or a file does not say what the kernel documents.
    /// What a kernel may lack is `None` or empty instead.
    pub fn read(sysroot: Sysroot<'_>) -> Result<Self, ReadError> {
        let memory = meminfo::read(sysroot)?;
        let dax = dax::read_all(sysroot)?;
        let mut nodes = node::read_all(sysroot, &dax)?;
        if nodes.is_empty() {
            nodes.push(whole_host(sysroot, memory)?);
        }
        if let [only] = &mut nodes[..] {
            only.memory_total_bytes = only.memory_total_bytes.max(memory.total_bytes);
            only.memory_free_bytes = only.memory_free_bytes.max(memory.free_bytes);
        }
        let mounts = mount::read_all(sysroot)?;
        let inventory = Self {
            host: host_name(sysroot),
            boot: boot::read(sysroot),
            memory,
            nodes,
            processor: processor::read(sysroot)?,
            caches: cache::read_all(sysroot),
            cxl: cxl::read(sysroot, &dax)?,
            dax,
            placement: placement::read(sysroot)?,
            allowed: allowed::read(sysroot, &mounts)?,
            cgroup: cgroup::read(sysroot, &mounts)?,
            mounts,
            hwloc: false,
        };
        #[cfg(feature = "hwloc")]
        let inventory = if sysroot.is_live() { hwloc::complete(inventory) } else { inventory };
        Ok(inventory)
    }

    /// The nodes that this process may take memory from: those that it is allowed, without memory of GPUs.
    pub fn memory_nodes(&self) -> impl Iterator<Item = &Node> {
        let allowed = |node: &&Node| self.allowed.has_node(node.id) && !node.is_gpu();
        self.nodes.iter().filter(|node| node.memory_total_bytes > 0).filter(allowed)
    }

    /// The node with CPUs from which `target` is reached best: itself, else what the firmware names,
    /// else the nearest by the readers' own distances; the lower number where these tie.
    #[must_use]
    pub fn best_initiator(&self, target: &Node) -> Option<&Node> {
        self.best_initiator_of(target, |_| true)
    }

    /// As [`Self::best_initiator`], of the nodes that are `eligible`.
    pub fn best_initiator_of(
        &self,
        target: &Node,
        eligible: impl Fn(&Node) -> bool,
    ) -> Option<&Node> {
        let with_cpus = || self.nodes.iter().filter(|node| !node.cpus.is_empty() && eligible(node));
        let named = |node: &&Node| {
            target.rated.as_ref().is_some_and(|rated| rated.initiators.contains(&node.id))
        };
        with_cpus().find(|node| node.id == target.id).or_else(|| with_cpus().find(named)).or_else(
            || with_cpus().min_by_key(|node| node.distance_to(target.id).unwrap_or(u8::MAX)),
        )
    }

    /// The sizes of the last-level caches of the CPUs of `node`.
    pub(crate) fn last_level_caches(&self, node: &Node) -> impl Iterator<Item = u64> {
        let is_local = |cache: &&Cache| cache.cpus.iter().any(|cpu| node.cpus.contains(cpu));
        let local = self.caches.iter().filter(is_local);
        let level = local.clone().map(|cache| cache.level).max();
        local.filter(move |cache| Some(cache.level) == level).map(|cache| cache.size_bytes)
    }

    /// The sum of the last-level caches of the CPUs of `node`.
    #[must_use]
    pub fn last_level_cache_bytes(&self, node: &Node) -> u64 {
        self.last_level_caches(node).fold(0, u64::saturating_add)
    }
}

/// Empty where the kernel tells none.
#[must_use]
pub fn host_name(sysroot: Sysroot<'_>) -> String {
    optional(&sysroot.join("proc/sys/kernel/hostname")).unwrap_or_default()
}

/// A kernel without NUMA: one node that has everything.
fn whole_host(sysroot: Sysroot<'_>, memory: Memory) -> Result<Node, ReadError> {
    Ok(Node {
        cpus: processor::online(&sysroot.join("sys/devices/system/cpu"))?,
        memory_total_bytes: memory.total_bytes,
        memory_free_bytes: memory.free_bytes,
        ..Node::default()
    })
}
