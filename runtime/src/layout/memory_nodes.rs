//! Which NUMA nodes of a host are main memory for a job, and which it uses as memory behind CXL.
//!
//! 1. Memory behind CXL is what the job names as `tiers.cxl-memory.numa_nodes`, else the nodes without CPUs of
//!    which a device or the firmware says what they are. Others are used only by name, memory of a GPU never.
//! 2. A job that names no tiers of memory, and whose processes may not run on the CPUs of a node, uses the
//!    memory of that node as well: it is remote for all of them.
//! 3. Main memory is every other node with CPUs, so no memory is claimed twice. If none is left, all of them
//!    are main memory, and the tier draws on that.
//! 4. Where several nodes have CPUs, batches are staged in main memory of the nodes on whose CPUs the job's
//!    processes may run. The ranks are spread over these nodes in blocks, as launchers bind them.

use tierfeed_core::{
    id::NumaNode,
    tier::{Kind, Locality},
};
use tierfeed_resource_gatherer::{Inventory, inventory};
use tierfeed_workload_analyzer::job::{Presence, TierRequest};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MemoryNodes {
    /// The tiers of memory behind CXL, in ascending order or as named.
    pub(crate) behind_cxl: Vec<NumaNode>,
    /// Nodes with CPUs that play memory behind CXL although the job does not name them.
    pub(crate) remote: Vec<NumaNode>,
    /// All nodes whose memory is not main memory.
    pub(crate) apart: Vec<NumaNode>,
    /// The nodes for staging; empty where only one node has CPUs.
    pub(crate) staging: Vec<NumaNode>,
}

impl MemoryNodes {
    pub(super) fn of(inventory: &Inventory, tiers: &[TierRequest]) -> Self {
        let request = tiers.iter().find(|tier| tier.kind == Kind::CxlMemory);
        let named = request.map_or(&[][..], |request| &request.numa_nodes);
        let cpuless = nodes(inventory, |node| node.tier_kind() == Some(Kind::CxlMemory));
        let unknown = nodes(inventory, |node| node.tier_kind().is_none());
        let remote = match request {
            Some(request) if request.presence == Presence::IfPresent => {
                without_processes(inventory)
            }
            _ => Vec::new(),
        };
        let behind_cxl = if named.is_empty() {
            let mut all = [cpuless.as_slice(), &remote].concat();
            all.sort_unstable();
            all
        } else {
            named.to_vec()
        };
        let mut apart = [cpuless.as_slice(), &unknown, &behind_cxl].concat();
        apart.sort_unstable();
        apart.dedup();
        let is_main = |node: &inventory::Node| !apart.contains(&NumaNode(node.id));
        if !inventory.memory_nodes().any(is_main) {
            return Self { behind_cxl, apart: unknown, ..Self::default() };
        }
        let staging = staging(inventory, &nodes(inventory, is_main));
        Self { behind_cxl, remote, apart, staging }
    }

    /// Where the files of a RAM disk lie: on the node that is named; where the agent makes it, on the first one
    /// behind CXL. `None` for a path without a node, where the file system decides.
    pub(super) fn of_ram_disk(&self, request: &TierRequest) -> Option<Locality> {
        match (request.numa_nodes.first(), &request.path) {
            (Some(named), _) => Some(Locality::Numa(*named)),
            (None, Some(_)) => None,
            (None, None) => {
                let first = self.behind_cxl.first();
                Some(first.map_or(Locality::Anywhere, |node| Locality::Numa(*node)))
            }
        }
    }

    /// The node on which the batches of each of `ranks` are staged at first; empty without a choice.
    pub(crate) fn of_ranks(&self, ranks: u32) -> Vec<NumaNode> {
        let count = self.staging.len() as u64;
        let of_rank = |rank: u32| {
            let at = u64::from(rank) * count / u64::from(ranks.max(1));
            self.staging.get(usize::try_from(at).ok()?).copied()
        };
        (0..ranks).map_while(of_rank).collect()
    }
}

/// Where the files of the scratch tier of a job lie, as [`MemoryNodes::of_ram_disk`] says.
pub(crate) fn ram_disk_locality(tiers: &[TierRequest], inventory: &Inventory) -> Option<Locality> {
    let request = tiers.iter().find(|tier| tier.kind == Kind::Scratch)?;
    MemoryNodes::of(inventory, tiers).of_ram_disk(request)
}

/// The nodes of main memory on whose CPUs this process may run, where several nodes have CPUs.
fn staging(inventory: &Inventory, main: &[NumaNode]) -> Vec<NumaNode> {
    if inventory.nodes.iter().filter(|node| !node.cpus.is_empty()).count() < 2 {
        return Vec::new();
    }
    let here =
        nodes(inventory, |node| main.contains(&NumaNode(node.id)) && may_run_on(inventory, node));
    if here.is_empty() { main.to_vec() } else { here }
}

/// The memory nodes with CPUs on none of which this process may run.
fn without_processes(inventory: &Inventory) -> Vec<NumaNode> {
    if !inventory.nodes.iter().any(|node| may_run_on(inventory, node)) {
        return Vec::new();
    }
    nodes(inventory, |node| !node.cpus.is_empty() && !may_run_on(inventory, node))
}

pub(super) fn may_run_on(inventory: &Inventory, node: &inventory::Node) -> bool {
    node.cpus.iter().any(|cpu| inventory.allowed.has_cpu(*cpu))
}

fn nodes(inventory: &Inventory, is_one: impl Fn(&inventory::Node) -> bool) -> Vec<NumaNode> {
    inventory.memory_nodes().filter(|node| is_one(node)).map(|node| NumaNode(node.id)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tierfeed_resource_gatherer::inventory::{Allowed, node::MemoryKind};
    use tierfeed_workload_analyzer::Job;

    use super::*;

    const DRAM: MemoryKind = MemoryKind::Dram;
    const CXL: MemoryKind = MemoryKind::Cxl;

    /// Two CPUs on each node of main memory; the process may run on the CPUs `allowed`.
    fn host(kinds: &[MemoryKind], allowed: Option<&[u32]>) -> Inventory {
        let node = |(id, kind): (u32, &MemoryKind)| inventory::Node {
            id,
            kind: *kind,
            cpus: if *kind == DRAM { vec![2 * id, 2 * id + 1] } else { Vec::new() },
            memory_total_bytes: 1 << 30,
            ..inventory::Node::default()
        };
        Inventory {
            nodes: (0..).zip(kinds).map(node).collect(),
            allowed: Allowed { nodes: None, cpus: allowed.map(<[u32]>::to_vec) },
            ..Inventory::default()
        }
    }

    fn roles(inventory: &Inventory, tiers: &str) -> MemoryNodes {
        let text = format!(
            "name: job\ndataset: {{ source: file:///data, format: image-folder }}\n\
             order: {{ shuffle: sequential, epochs: 1 }}\nbatch_size: 4\n{tiers}"
        );
        MemoryNodes::of(inventory, &Job::parse(&text, Path::new("job.yaml")).unwrap().tiers)
    }

    fn numbers(nodes: &[NumaNode]) -> Vec<u32> {
        nodes.iter().map(|node| node.0).collect()
    }

    #[test]
    fn one_node_has_no_roles() {
        assert_eq!(roles(&host(&[DRAM], None), ""), MemoryNodes::default());
        let with_device = roles(&host(&[DRAM, CXL], None), "");
        assert_eq!(numbers(&with_device.behind_cxl), [1]);
        assert_eq!(numbers(&with_device.staging), [0; 0], "it can be nowhere else");
    }

    #[test]
    fn a_neighbour_is_main_memory_unless_it_is_named_or_no_process_may_run_there() {
        let named = "tiers: { cxl-memory: { numa_nodes: [1] } }";
        let both = roles(&host(&[DRAM, DRAM, CXL], None), "");
        assert_eq!((numbers(&both.behind_cxl), numbers(&both.staging)), (vec![2], vec![0, 1]));
        let one = roles(&host(&[DRAM, DRAM, CXL], None), named);
        assert_eq!((numbers(&one.behind_cxl), numbers(&one.apart)), (vec![1], vec![1, 2]));
        assert_eq!((numbers(&one.staging), numbers(&one.remote)), (vec![0], vec![]));
        let bound = host(&[DRAM, DRAM, CXL], Some(&[2, 3]));
        let remote = roles(&bound, "");
        assert_eq!((numbers(&remote.behind_cxl), numbers(&remote.remote)), (vec![0, 2], vec![0]));
        assert_eq!(numbers(&remote.staging), [1]);
        let listed = roles(&bound, "tiers: { main-memory: {} }");
        assert_eq!((numbers(&listed.remote), numbers(&listed.apart)), (vec![], vec![2]));
        assert_eq!(numbers(&listed.staging), [1], "batches are staged where trainers run");
    }

    #[test]
    fn some_node_is_always_main_memory() {
        let all =
            roles(&host(&[DRAM, DRAM], None), "tiers: { cxl-memory: { numa_nodes: [0, 1] } }");
        assert_eq!((numbers(&all.behind_cxl), numbers(&all.apart)), (vec![0, 1], vec![]));
        let unknown = host(&[DRAM, DRAM], Some(&[99]));
        assert_eq!(roles(&unknown, "").remote, []);
    }

    #[test]
    fn ranks_are_spread_in_blocks() {
        let both = roles(&host(&[DRAM, DRAM], None), "");
        assert_eq!(numbers(&both.of_ranks(4)), [0, 0, 1, 1]);
        assert_eq!(numbers(&both.of_ranks(3)), [0, 0, 1]);
        assert_eq!(numbers(&both.of_ranks(1)), [0]);
        assert_eq!(roles(&host(&[DRAM], None), "").of_ranks(2), []);
    }
}
