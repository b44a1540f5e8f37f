//! Where a job stands, as `tierfeed status` shows it.

use serde::Serialize;
use tierfeed_core::{
    id::NumaNode,
    units::{Bytes, Nanoseconds},
};
use tierfeed_resource_gatherer::available::{Available, DiskSpace};

/// Where a job stands, as `tierfeed status --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobStatus {
    /// The name of the job.
    pub job: String,
    /// Nodes of its world.
    pub nodes: u32,
    /// Whether it was asked to end.
    pub draining: bool,
    /// Batches that the whole job reads.
    pub batches: u64,
    /// The nodes that registered, by number.
    pub joined: Vec<NodeStatus>,
}

/// Where one node stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: u32,
    /// How many processes worked as this node before.
    pub generation: u32,
    /// `alive`, `lost` or `drained`.
    pub state: &'static str,
    /// What it offers.
    pub tiers: Vec<TierStatus>,
    /// Batches handed over.
    pub batches: u64,
    /// Samples of the batches handed over.
    pub samples: u64,
    /// Bytes of the batches handed over.
    pub handed_over_bytes: u64,
    /// Bytes read from the cold store.
    pub cold_read_bytes: u64,
    /// Time for which its trainers waited, summed over ranks.
    pub stall_ns: u64,
    /// Operations that failed.
    pub faults: u64,
    /// Chunks of CXL memory that its workloads hold.
    pub lent_chunks: u32,
    /// What it had left when it told last; `None` if it told nothing yet, or ended.
    pub available: Option<AvailableStatus>,
}

/// One tier of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TierStatus {
    /// Its kind.
    pub name: &'static str,
    /// What the job may use of it.
    pub budget_bytes: u64,
    /// Whether its speed is imposed.
    pub emulated: bool,
    /// Bytes read from it.
    pub read_bytes: u64,
}

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
    /// What a node told `age` ago.
    #[must_use]
    pub fn of(available: &Available, age: Nanoseconds) -> Self {
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
