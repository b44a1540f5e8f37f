//! The memory and disks of this host that a job can ask for.

use std::{
    collections::BTreeMap,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use tierfeed_core::{
    budget::{Free, Pool},
    id::NumaNode,
    tier::Locality,
    units::Bytes,
};
use tierfeed_numa_memory::capacity::{kept_free, kept_of_group};
use tierfeed_resource_gatherer::{
    Available, Inventory, ReadError, Sysroot, Watch,
    inventory::{
        self,
        mount::{self, Medium, Mount},
    },
};
use tierfeed_workload_analyzer::{Job, job::TierRequest};

use super::{
    LayoutError,
    memory_nodes::{MemoryNodes, may_run_on},
};

/// The pool of all memory of the host: main memory, emulated CXL memory, RAM disks.
pub(crate) const MEMORY: Pool = Pool(0);

/// The first pool of a file system; smaller numbers are memory and NUMA nodes.
const FIRST_DISK: u32 = 1 << 16;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    #[error(transparent)]
    Kernel(#[from] ReadError),
    #[error("{}: {source}; the directory of a tier, or its parent, must exist", .path.display())]
    Directory { path: PathBuf, source: io::Error },
}

/// The file system of a directory that a tier may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub path: PathBuf,
    pub device: u64,
    /// Its name in `/proc/mounts`.
    pub file_system: String,
    pub is_ram_disk: bool,
    pub free: Bytes,
}

/// `tmpfs` and `ramfs` as `statfs(2)` tells them. In the table of mounts the first memory of a booting host,
/// which may stay its root, has a name of its own.
///
/// # Source
///
/// `include/uapi/linux/magic.h` of Linux.
const RAM_DISKS: [FsType; 2] = [TMPFS_MAGIC, FsType(0x8584_58f6)];

impl Disk {
    /// Reads the file system of a directory, or of its parent if the directory does not exist yet.
    ///
    /// # Errors
    ///
    /// [`NodeError::Directory`] if neither exists.
    fn read(path: &Path, mounts: &[Mount]) -> Result<Self, NodeError> {
        let failed = |source| NodeError::Directory { path: path.to_owned(), source };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let there = if path.exists() { path } else { parent.unwrap_or(Path::new(".")) };
        let device = there.metadata().map_err(failed)?.dev();
        let status = statfs(there).map_err(|errno| failed(errno.into()))?;
        let block = u64::try_from(status.block_size()).unwrap_or(0);
        let real = there.canonicalize().map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            device,
            file_system: file_system_of(mount::holding(mounts, &real)),
            is_ram_disk: RAM_DISKS.contains(&status.filesystem_type()),
            free: Bytes(status.blocks_available().saturating_mul(block)),
        })
    }
}

pub(super) fn file_system_of(mount: Option<&Mount>) -> String {
    mount.map_or_else(|| "an unknown file system".to_owned(), |it| it.file_system.clone())
}

#[derive(Debug, Clone)]
pub struct Node {
    // Boxed, because every state of the agent's future holds a node.
    inventory: Box<Inventory>,
    memory_nodes: MemoryNodes,
    /// Where the agent makes its RAM disk.
    ram_disk: PathBuf,
    /// Its room if it is a directory of a RAM disk that is there; `None` if memory alone limits it.
    ram_disk_room: Option<Bytes>,
    disks: Vec<Disk>,
    /// Free bytes at the start.
    pools: BTreeMap<Pool, Free>,
    /// The last known memory limit of the control group or the batch system.
    group_limit: Option<Bytes>,
    /// Whether the node is known by a report only; then no path of it is one of this host.
    is_reported: bool,
}

impl Node {
    /// Reads this host and the directories that `job` names. `memory` is what a batch system gave the job on
    /// this host.
    pub fn read(job: &Job, memory: Option<Bytes>) -> Result<Self, NodeError> {
        let sysroot = Sysroot(Path::new("/"));
        let inventory = Inventory::read(sysroot)?;
        let watch = Watch::new(sysroot)?.within(memory);
        let (available, limit) = (watch.read()?, watch.group_limit()?);
        let paths = job.tiers.iter().filter_map(|tier| tier.path.as_deref());
        let disks = paths.map(|path| Disk::read(path, &inventory.mounts));
        let disks = disks.collect::<Result<_, _>>()?;
        Ok(Self::limited(inventory, &available, disks, &job.tiers, limit))
    }

    #[must_use]
    pub fn new(
        inventory: Inventory,
        available: &Available,
        disks: Vec<Disk>,
        tiers: &[TierRequest],
    ) -> Self {
        let limit = inventory.cgroup.as_ref().and_then(|group| group.limit_bytes).map(Bytes);
        Self::limited(inventory, available, disks, tiers, limit)
    }

    fn limited(
        inventory: Inventory,
        available: &Available,
        disks: Vec<Disk>,
        tiers: &[TierRequest],
        group_limit: Option<Bytes>,
    ) -> Self {
        let pools = BTreeMap::new();
        let memory_nodes = MemoryNodes::of(&inventory, tiers);
        let inventory = Box::new(inventory);
        let ram_disk = PathBuf::from("scratch");
        let mut host = Self {
            inventory,
            memory_nodes,
            ram_disk,
            ram_disk_room: None,
            disks,
            pools,
            group_limit,
            is_reported: false,
        };
        host.pools = host.memory_free(available);
        // The limit of a control group counts the memory of all nodes.
        let most = available.cgroup.unwrap_or(Bytes(u64::MAX));
        host.pools.values_mut().for_each(|free| free.bytes = free.bytes.min(most));
        for disk in host.disks.clone() {
            if !disk.is_ram_disk {
                let free = Free { bytes: disk.free, kept: Bytes(0) };
                host.pools.insert(host.pool_of_disk(&disk), free);
            }
        }
        host
    }

    pub(super) fn known_by_report(self) -> Self {
        Self { is_reported: true, ..self }
    }

    pub(crate) fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The agent makes its RAM disk at `path`; `room` is what that can take if it is a directory of a RAM
    /// disk that is there.
    #[must_use]
    pub(crate) fn with_ram_disk(self, path: PathBuf, room: Option<Bytes>) -> Self {
        Self { ram_disk: path, ram_disk_room: room, ..self }
    }

    pub(crate) fn ram_disk(&self) -> &Path {
        &self.ram_disk
    }

    pub(super) fn ram_disk_room(&self) -> Option<Bytes> {
        self.ram_disk_room
    }

    #[must_use]
    pub fn host(&self) -> &str {
        &self.inventory.host
    }

    #[must_use]
    pub fn pools(&self) -> &BTreeMap<Pool, Free> {
        &self.pools
    }

    /// Free bytes of the memory pools: main memory without the nodes that are apart from it, and each NUMA
    /// node.
    pub(crate) fn memory_free(&self, available: &Available) -> BTreeMap<Pool, Free> {
        let host = self.main_memory_of(available);
        let main = available.cgroup.map_or(host, |cgroup| host.min(cgroup));
        let mut pools = BTreeMap::new();
        pools.insert(MEMORY, self.less_kept(MEMORY, main, self.inventory.memory.total_bytes));
        for node in self.inventory.memory_nodes() {
            let free = available.bytes_on(NumaNode(node.id));
            let pool = pool_of_numa(NumaNode(node.id));
            pools.insert(pool, self.less_kept(pool, free, node.memory_total_bytes));
        }
        pools
    }

    /// The available memory of the host without that of the nodes that are apart. Theirs is what is free
    /// there, and a part of the page cache: the kernel does not tell on which nodes that lies, so it is
    /// divided over the nodes with CPUs by their memory.
    fn main_memory_of(&self, available: &Available) -> Bytes {
        let is_apart = |numa: &NumaNode| self.memory_nodes.apart.contains(numa);
        let free = |all: bool| {
            let nodes = available.nodes_free.iter().filter(|it| all || is_apart(&it.numa_node));
            nodes.map(|it| it.free.0).fold(0, u64::saturating_add)
        };
        let total = |all: bool| {
            let nodes = self.inventory.memory_nodes().filter(|node| !node.cpus.is_empty());
            let nodes = nodes.filter(|node| all || is_apart(&NumaNode(node.id)));
            nodes.map(|node| u128::from(node.memory_total_bytes)).sum::<u128>()
        };
        let cached = available.host.0.saturating_sub(free(true));
        let cached_apart = u128::from(cached) * total(false) / total(true).max(1);
        let apart = free(false).saturating_add(u64::try_from(cached_apart).unwrap_or(u64::MAX));
        Bytes(available.host.0.saturating_sub(apart))
    }

    pub(crate) fn follow_limit(&mut self, limit: Option<Bytes>) {
        self.group_limit = limit;
    }

    /// The share that must stay free is one of all memory, or of the control group's limit if that is less.
    /// If other processes had filled the node when the job started, it is a share of what was free then.
    fn less_kept(&self, pool: Pool, free: Bytes, total: u64) -> Free {
        let limit = self.group_limit.filter(|limit| limit.0 < total);
        let at_first = self.pools.get(&pool).map_or(free, |at_first| at_first.bytes);
        let kept = limit.map_or_else(|| kept_free(Bytes(total), free.max(at_first)), kept_of_group);
        Free { bytes: free, kept }
    }

    /// All memory of a NUMA node, or of the host.
    pub(crate) fn memory_at(&self, locality: Locality) -> Bytes {
        match locality {
            Locality::Anywhere | Locality::Near(_) => Bytes(self.inventory.memory.total_bytes),
            Locality::Numa(numa) => {
                let nodes = self.inventory.nodes.iter().filter(|node| node.id == numa.0);
                Bytes(nodes.map(|node| node.memory_total_bytes).sum())
            }
        }
    }

    /// Main memory that is free, of all NUMA nodes together.
    #[must_use]
    pub fn host_memory(&self) -> Bytes {
        self.pools.get(&MEMORY).map_or(Bytes(0), |free| free.bytes)
    }

    /// Whether a pool is memory of the host rather than a disk.
    #[must_use]
    pub fn is_memory(&self, pool: Pool) -> bool {
        pool.0 < FIRST_DISK
    }

    /// Bytes that the file system of a directory can still take, independent of its pool.
    pub(super) fn room_at(&self, path: &Path) -> Option<Bytes> {
        self.disks.iter().find(|disk| disk.path == path).map(|disk| disk.free)
    }

    /// The file system of a directory, which the job need not name.
    fn disk(&self, path: &Path) -> Result<Disk, NodeError> {
        let known = self.disks.iter().find(|disk| disk.path == path).cloned();
        known.map_or_else(|| Disk::read(path, &self.inventory.mounts), Ok)
    }

    /// Refuses a directory that is not on a RAM disk.
    pub(super) fn require_ram_disk(&self, path: &Path) -> Result<(), LayoutError> {
        let disk = self.disk(path)?;
        if disk.is_ram_disk {
            return Ok(());
        }
        Err(LayoutError::NotARamDisk { path: disk.path, file_system: disk.file_system })
    }

    pub(super) fn pool_of(&self, path: &Path) -> Result<Pool, NodeError> {
        self.disk(path).map(|disk| self.pool_of_disk(&disk))
    }

    /// Whether two directories lie on one disk; `false` on a RAM disk.
    pub(super) fn is_one_disk(&self, tier: &Path, other: &Path) -> bool {
        if self.is_reported {
            return is_one_disk(&self.inventory.mounts, tier, other);
        }
        let (Ok(disk), Ok(other)) = (self.disk(tier), self.disk(other)) else { return false };
        let is_same = disk.device == other.device
            || whole_disk(disk.device).is_some_and(|it| Some(it) == whole_disk(other.device));
        is_same && !disk.is_ram_disk
    }

    pub(crate) fn memory_nodes(&self) -> &MemoryNodes {
        &self.memory_nodes
    }

    /// The NUMA nodes without CPUs that are not used, because nothing says what their memory is.
    pub(crate) fn unknown_nodes(&self) -> Vec<NumaNode> {
        let unknown = self.inventory.memory_nodes().filter(|node| node.tier_kind().is_none());
        let unknown = unknown.map(|node| NumaNode(node.id));
        unknown.filter(|node| !self.memory_nodes.behind_cxl.contains(node)).collect()
    }

    /// Whether a NUMA node has CPUs and main memory of the job.
    pub(crate) fn is_main_memory(&self, numa: NumaNode) -> bool {
        let mut nodes = self.inventory.memory_nodes();
        let is_apart = self.memory_nodes.apart.contains(&numa);
        !is_apart && nodes.any(|node| node.id == numa.0 && !node.cpus.is_empty())
    }

    /// The NUMA node of main memory that has all of these CPUs.
    pub(crate) fn main_memory_of_cpus(&self, cpus: &[u32]) -> Option<NumaNode> {
        let has_all = |node: &&inventory::Node| cpus.iter().all(|cpu| node.cpus.contains(cpu));
        let node = self.inventory.nodes.iter().filter(|_| !cpus.is_empty()).find(has_all)?;
        Some(NumaNode(node.id)).filter(|node| self.is_main_memory(*node))
    }

    pub(super) fn has(&self, numa: NumaNode) -> bool {
        self.inventory.memory_nodes().any(|node| node.id == numa.0)
    }

    pub(super) fn is_gpu(&self, numa: NumaNode) -> bool {
        self.inventory.nodes.iter().any(|node| node.id == numa.0 && node.is_gpu())
    }

    pub(super) fn is_cpuless(&self, numa: NumaNode) -> bool {
        self.inventory.nodes.iter().any(|node| node.id == numa.0 && node.cpus.is_empty())
    }

    pub(super) fn numa_names(&self) -> String {
        let names: Vec<_> = self.inventory.memory_nodes().map(|node| node.id.to_string()).collect();
        names.join(", ")
    }

    /// The CPUs of the job that are nearest to a NUMA node: those of a node that plays memory behind CXL
    /// belong to others.
    pub(super) fn cpus_near(&self, numa: NumaNode) -> Vec<usize> {
        let inventory = &self.inventory;
        let target = inventory.nodes.iter().find(|node| node.id == numa.0);
        let nearest = target.and_then(|target| {
            inventory.best_initiator_of(target, |node| {
                let is_apart = self.memory_nodes.apart.contains(&NumaNode(node.id));
                !is_apart && may_run_on(inventory, node)
            })
        });
        let cpus = nearest.map(|node| node.cpus.as_slice()).unwrap_or_default();
        let allowed = cpus.iter().filter(|cpu| inventory.allowed.has_cpu(**cpu));
        allowed.map(|cpu| *cpu as usize).collect()
    }

    /// File systems are numbered by their first directory; RAM disks take host memory.
    fn pool_of_disk(&self, disk: &Disk) -> Pool {
        if disk.is_ram_disk {
            return MEMORY;
        }
        let first = self.disks.iter().position(|other| other.device == disk.device);
        Pool(FIRST_DISK + u32::try_from(first.unwrap_or(self.disks.len())).unwrap_or(0))
    }

    /// The pool that a tier on a NUMA node draws on: main memory, unless the node is apart from it.
    pub(super) fn pool_on(&self, numa: NumaNode) -> Pool {
        if self.memory_nodes.apart.contains(&numa) { pool_of_numa(numa) } else { MEMORY }
    }
}

/// Whether two directories lie on one device that is no RAM disk, by the mounts of a host.
pub(super) fn is_one_disk(mounts: &[Mount], one: &Path, other: &Path) -> bool {
    let on = |path| mount::holding(mounts, path);
    on(one)
        .zip(on(other))
        .is_some_and(|(one, other)| one.device == other.device && one.medium != Medium::Memory)
}

/// The disk of a partition, or the device itself; `None` where the kernel shows none.
fn whole_disk(device: u64) -> Option<PathBuf> {
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let entry = Path::new("/sys/dev/block").join(format!("{major}:{minor}")).canonicalize().ok()?;
    let is_partition = entry.join("partition").exists();
    if is_partition { entry.parent().map(Path::to_owned) } else { Some(entry) }
}

/// The pool of what is free on a NUMA node alone.
pub(crate) fn pool_of_numa(numa: NumaNode) -> Pool {
    Pool(1 + numa.0.min(FIRST_DISK - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ram_disk_is_one_by_whatever_name_it_is_mounted() {
        let shared_memory = Path::new("/dev/shm");
        let disk = Disk::read(shared_memory, &[]).unwrap();
        assert!(disk.is_ram_disk, "{disk:?}");
        assert!(!Disk::read(Path::new("/proc"), &[]).unwrap().is_ram_disk);
    }
}
