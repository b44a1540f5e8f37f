//! The NUMA node near which the batches of each rank are staged, on a host on which several nodes have CPUs.
//!
//! The arenas of the ranks are opened before their trainers are there, so the first choice follows the
//! launchers: rank by rank the node of its GPU if all GPUs of the node tell theirs, else the ranks in blocks
//! over the nodes on whose CPUs the agent may run. When a trainer connects, its own process decides: the node
//! on whose CPUs alone it may run, else the node of its GPU. Its arena moves there before it has the first
//! batch. A process that tells neither changes nothing.

use std::collections::BTreeMap;

use tierfeed_core::{
    id::{NodeId, NumaNode, Rank},
    order::World,
    tier::Locality,
};
use tierfeed_numa_memory::Placement;
use tierfeed_resource_gatherer::{Sysroot, training_process};

use crate::{layout::Node, observe::report::RankPlacementEntry};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Because {
    Spread,
    /// The GPU that ranks of this number use.
    LikelyGpu,
    Cpus,
    Gpu,
}

impl Because {
    const fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::LikelyGpu => "likely-gpu",
            Self::Cpus => "cpus-of-trainer",
            Self::Gpu => "gpu-of-trainer",
        }
    }
}

/// The NUMA node of the staging memory of each rank; empty on a host with one node that has CPUs.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    ranks: BTreeMap<Rank, (NumaNode, Because)>,
}

impl Sockets {
    /// The first choice, before any trainer is there.
    pub(super) fn new(node: &Node, world: World, id: NodeId) -> Self {
        Self::from_gpus(node, world, id, &training_process::gpu_nodes(Sysroot::live()))
    }

    fn from_gpus(node: &Node, world: World, id: NodeId, gpus: &[Option<u32>]) -> Self {
        let spread = node.memory_nodes().of_ranks(world.ranks_per_node);
        let of_gpu = |gpu: &Option<u32>| gpu.map(NumaNode).filter(|it| node.is_main_memory(*it));
        let gpus = gpus.iter().take(spread.len()).map(of_gpu).collect::<Option<Vec<_>>>();
        let first = match gpus {
            Some(gpus) if gpus.len() == spread.len() => {
                gpus.into_iter().map(|node| (node, Because::LikelyGpu)).collect()
            }
            _ => spread.into_iter().map(|node| (node, Because::Spread)).collect::<Vec<_>>(),
        };
        Self { ranks: world.ranks_of(id).zip(first).collect() }
    }

    pub(super) fn localities(&self) -> BTreeMap<Rank, Locality> {
        self.ranks.iter().map(|(rank, (node, _))| (*rank, Locality::Near(*node))).collect()
    }

    /// Looks where the trainer of a rank runs. Returns its node if the arena of the rank lies elsewhere.
    pub(super) fn trainer_came(
        &mut self,
        sysroot: Sysroot<'_>,
        node: &Node,
        rank: Rank,
        process: u32,
    ) -> Option<NumaNode> {
        let (now, because) = self.ranks.get_mut(&rank)?;
        let cpus = training_process::cpus_of(sysroot, process)?;
        let of_cpus = node.main_memory_of_cpus(&cpus).map(|node| (node, Because::Cpus));
        let of_gpu = || {
            let gpu = NumaNode(training_process::gpu_node_of(sysroot, process)?);
            node.is_main_memory(gpu).then_some((gpu, Because::Gpu))
        };
        let (found, why) = of_cpus.or_else(of_gpu)?;
        *because = why;
        (std::mem::replace(now, found) != found).then_some(found)
    }

    pub(super) fn entries(
        &self,
        placements: &BTreeMap<Rank, Placement>,
    ) -> Vec<RankPlacementEntry> {
        let entry = |(rank, (node, because)): (&Rank, &(NumaNode, Because))| RankPlacementEntry {
            rank: rank.0,
            numa_node: node.0,
            because: because.name(),
            on_node_percent: placements.get(rank).and_then(on_node_percent),
        };
        self.ranks.iter().map(entry).collect()
    }
}

fn on_node_percent(placement: &Placement) -> Option<u64> {
    match placement {
        Placement::Preferred { pages_sampled, pages_on_node, .. } => {
            Some((pages_on_node * 100 / (*pages_sampled).max(1)) as u64)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;
    use tierfeed_core::units::Bytes;
    use tierfeed_resource_gatherer::{
        Available, Inventory,
        inventory::{self, node::MemoryKind},
    };

    use super::*;

    const WORLD: World = World { nodes: 2, ranks_per_node: 2 };

    /// Two sockets with two CPUs each, and a memory node without CPUs.
    fn host() -> Node {
        let node = |id: u32, kind, cpus: Vec<u32>| inventory::Node {
            id,
            kind,
            cpus,
            memory_total_bytes: 1 << 30,
            ..inventory::Node::default()
        };
        let (dram, cxl) = (MemoryKind::Dram, MemoryKind::Cxl);
        let nodes =
            vec![node(0, dram, vec![0, 1]), node(1, dram, vec![2, 3]), node(2, cxl, Vec::new())];
        let available = Available {
            host: Bytes(1 << 30),
            cgroup: None,
            nodes_free: Vec::new(),
            pressure: None,
            load: None,
            disks: Vec::new(),
        };
        Node::new(Inventory { nodes, ..Inventory::default() }, &available, Vec::new(), &[])
    }

    fn chosen(sockets: &Sockets) -> Vec<(u32, u32, &'static str)> {
        let entries = sockets.entries(&BTreeMap::new());
        entries.iter().map(|entry| (entry.rank, entry.numa_node, entry.because)).collect()
    }

    #[test]
    fn ranks_are_spread_unless_the_gpus_tell() {
        let sockets = |gpus: &[_]| Sockets::from_gpus(&host(), WORLD, NodeId(1), gpus);
        assert_eq!(chosen(&sockets(&[])), [(2, 0, "spread"), (3, 1, "spread")]);
        assert_eq!(chosen(&sockets(&[Some(1)])), [(2, 0, "spread"), (3, 1, "spread")]);
        let gpus = [Some(1), Some(0), None];
        assert_eq!(chosen(&sockets(&gpus)), [(2, 1, "likely-gpu"), (3, 0, "likely-gpu")]);
        assert_eq!(chosen(&sockets(&[Some(1), Some(2)]))[0].2, "spread", "no CPU is on node 2");
    }

    #[test]
    fn a_trainer_that_runs_elsewhere_takes_its_staging_along() {
        let machine = TempDir::new().unwrap();
        let process = |number: u32, cpus: &str| {
            let directory = machine.path().join(format!("proc/{number}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("status"), format!("Cpus_allowed_list:\t{cpus}\n")).unwrap();
        };
        let mut sockets = Sockets::from_gpus(&host(), WORLD, NodeId(0), &[]);
        let mut came = |number, cpus: &str| {
            process(number, cpus);
            sockets.trainer_came(Sysroot(machine.path()), &host(), Rank(0), number)
        };
        assert_eq!(came(7, "0-3"), None, "it may run on both");
        assert_eq!(came(8, "2"), Some(NumaNode(1)));
        assert_eq!(came(9, "2-3"), None, "it lies there already");
        assert_eq!(came(10, "0"), Some(NumaNode(0)));
        assert_eq!(chosen(&sockets)[0], (0, 0, "cpus-of-trainer"));
        let gone = sockets.trainer_came(Sysroot(machine.path()), &host(), Rank(0), 99);
        assert_eq!(gone, None);
    }

    #[test]
    fn on_one_socket_there_is_nothing_to_choose() {
        let mut sockets = Sockets::default();
        assert_eq!(sockets.localities(), BTreeMap::new());
        assert_eq!(sockets.trainer_came(Sysroot::live(), &host(), Rank(0), 1), None);
    }
}
