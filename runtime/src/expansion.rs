//! Lets a training use CXL memory as ordinary memory: pages that do not fit in main memory go there
//! instead of to swap.

use tierfeed_core::{id::NumaNode, tier::Kind};
pub use tierfeed_numa_memory::interleave::Mode;
use tierfeed_numa_memory::interleave::{InterleaveError, MemoryInterleave};
use tierfeed_resource_gatherer::{Inventory, inventory};

use crate::observe::report::ExpansionEntry;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// `preferred-many` or `weighted-interleave`.
    pub policy: &'static str,
    /// The NUMA nodes of main memory.
    pub main_memory: Vec<u32>,
    /// The NUMA nodes of CXL memory, and those that play it.
    pub cxl_memory: Vec<u32>,
    /// Node and pages in each round of the weighted interleave; else empty.
    pub weights: Vec<(u32, u8)>,
    mode: Mode,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpansionError {
    #[error(
        "--expand-memory: this host has no memory behind CXL, but {} NUMA node(s) of main memory; \
         name one of them as tiers.cxl-memory.numa_nodes to let it play CXL memory; \
         `tierfeed tiers probe` says what there is", .main_memory.len()
    )]
    NoCxl { main_memory: Vec<u32> },
    #[error(
        "--expand-memory: tiers.cxl-memory.numa_nodes names every NUMA node of this host; leave one that is \
         main memory"
    )]
    NoMainMemory,
    #[error(
        "--expand-memory weighted: this kernel has no weighted interleave, Linux 6.9 has; \
         take preferred-many"
    )]
    NoWeights,
    #[error("--expand-memory: {0}")]
    Refused(#[from] InterleaveError),
}

impl Expansion {
    /// The policy of this mode on a host. Nodes that the job has `named` as memory behind CXL are none of main
    /// memory.
    pub fn plan(
        mode: Mode,
        inventory: &Inventory,
        named: &[NumaNode],
    ) -> Result<Self, ExpansionError> {
        let is_named = |node: &&inventory::Node| named.contains(&NumaNode(node.id));
        let is_cxl =
            |node: &&inventory::Node| is_named(node) || node.tier_kind() == Some(Kind::CxlMemory);
        let known = inventory.memory_nodes();
        let known = known.filter(|node| is_named(node) || node.tier_kind().is_some());
        let (cxl_memory, main_memory): (Vec<_>, Vec<_>) = known.partition(is_cxl);
        let numbers = |nodes: Vec<&inventory::Node>| nodes.iter().map(|node| node.id).collect();
        let (cxl_memory, main_memory): (Vec<u32>, Vec<u32>) =
            (numbers(cxl_memory), numbers(main_memory));
        if main_memory.is_empty() {
            return Err(ExpansionError::NoMainMemory);
        }
        if cxl_memory.is_empty() {
            return Err(ExpansionError::NoCxl { main_memory });
        }
        let (policy, weights) = match mode {
            Mode::PreferredMany => ("preferred-many", Vec::new()),
            Mode::WeightedInterleave => {
                let known = inventory.placement.interleave_weights.as_ref();
                let known = known.ok_or(ExpansionError::NoWeights)?;
                let is_ours = |node: u32| main_memory.contains(&node) || cxl_memory.contains(&node);
                let weights = known.iter().filter(|weight| is_ours(weight.node));
                let weights = weights.map(|weight| (weight.node, weight.pages)).collect();
                ("weighted-interleave", weights)
            }
        };
        Ok(Self { policy, main_memory, cxl_memory, weights, mode })
    }

    /// Sets the policy on this thread, for the processes that it starts until the guard is dropped.
    ///
    /// # Errors
    ///
    /// [`ExpansionError::Refused`].
    pub fn apply(&self) -> Result<MemoryInterleave, ExpansionError> {
        let nodes: Vec<u32> = match self.mode {
            Mode::PreferredMany => self.main_memory.clone(),
            Mode::WeightedInterleave => {
                let mut all = [self.main_memory.as_slice(), &self.cxl_memory].concat();
                all.sort_unstable();
                all
            }
        };
        let nodes: Vec<NumaNode> = nodes.into_iter().map(NumaNode).collect();
        Ok(MemoryInterleave::take(self.mode, &nodes)?)
    }

    /// Advice on the kernel's weights, if they are all equal.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let is_even = self.weights.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let is_weighted = self.mode == Mode::WeightedInterleave;
        (is_weighted && is_even).then(|| {
            "all nodes have the same weight, so the slowest sets the pace; write pages per round, in \
             proportion to `tierfeed tiers show`, to \
             /sys/kernel/mm/mempolicy/weighted_interleave/nodeN"
                .to_owned()
        })
    }
}

impl From<Expansion> for ExpansionEntry {
    fn from(expansion: Expansion) -> Self {
        let Expansion { policy, main_memory, cxl_memory, weights, mode: _ } = expansion;
        Self { policy, main_memory, cxl_memory, weights }
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_resource_gatherer::inventory::{Node, node::MemoryKind, placement::Weight};

    use super::*;

    fn host(kinds: &[MemoryKind]) -> Inventory {
        let node = |(id, kind): (u32, &MemoryKind)| Node {
            id,
            kind: *kind,
            memory_total_bytes: 1 << 30,
            ..Node::default()
        };
        Inventory { nodes: (0..).zip(kinds).map(node).collect(), ..Inventory::default() }
    }

    const DRAM: MemoryKind = MemoryKind::Dram;
    const CXL: MemoryKind = MemoryKind::Cxl;

    #[test]
    fn main_memory_comes_first_unless_weights_are_wanted() {
        let mut host = host(&[DRAM, DRAM, CXL]);
        let expansion = Expansion::plan(Mode::PreferredMany, &host, &[]).unwrap();
        assert_eq!(expansion.mode, Mode::PreferredMany);
        assert_eq!((expansion.main_memory, expansion.cxl_memory), (vec![0, 1], vec![2]));
        let error = Expansion::plan(Mode::WeightedInterleave, &host, &[]).unwrap_err();
        assert!(matches!(error, ExpansionError::NoWeights));
        let weights = [(0, 5), (1, 5), (2, 2), (9, 1)];
        let weights = weights.map(|(node, pages)| Weight { node, pages }).to_vec();
        host.placement.interleave_weights = Some(weights);
        let expansion = Expansion::plan(Mode::WeightedInterleave, &host, &[]).unwrap();
        assert_eq!(expansion.weights, [(0, 5), (1, 5), (2, 2)]);
        assert_eq!(expansion.advice(), None);
    }

    #[test]
    fn a_neighbour_that_is_named_plays_cxl_memory() {
        let host = host(&[DRAM, DRAM, CXL]);
        let plan = |named: &[u32]| {
            let named: Vec<_> = named.iter().map(|node| NumaNode(*node)).collect();
            Expansion::plan(Mode::PreferredMany, &host, &named)
        };
        let expansion = plan(&[1]).unwrap();
        assert_eq!((expansion.main_memory, expansion.cxl_memory), (vec![0], vec![1, 2]));
        assert!(matches!(plan(&[0, 1]), Err(ExpansionError::NoMainMemory)));
    }

    #[test]
    fn memory_of_a_gpu_expands_nothing_and_unknown_memory_only_by_name() {
        let host = host(&[DRAM, MemoryKind::Gpu, MemoryKind::CpuLess]);
        let plan = |named: &[u32]| {
            let named: Vec<_> = named.iter().map(|node| NumaNode(*node)).collect();
            Expansion::plan(Mode::PreferredMany, &host, &named)
        };
        for named in [&[][..], &[1]] {
            let error = plan(named).unwrap_err();
            assert!(
                matches!(&error, ExpansionError::NoCxl { main_memory } if *main_memory == [0]),
                "{error:?}"
            );
        }
        let expansion = plan(&[2]).unwrap();
        assert_eq!((expansion.main_memory, expansion.cxl_memory), (vec![0], vec![2]));
    }

    #[test]
    fn equal_weights_are_worth_a_word() {
        let mut host = host(&[DRAM, CXL]);
        let weights = [0, 1].map(|node| Weight { node, pages: 1 }).to_vec();
        host.placement.interleave_weights = Some(weights);
        let weighted = Expansion::plan(Mode::WeightedInterleave, &host, &[]).unwrap();
        assert!(weighted.advice().unwrap().contains("weighted_interleave/nodeN"));
        assert_eq!(Expansion::plan(Mode::PreferredMany, &host, &[]).unwrap().advice(), None);
    }

    #[test]
    fn a_host_without_cxl_memory_says_what_it_has() {
        let error =
            Expansion::plan(Mode::PreferredMany, &host(&[DRAM]), &[]).unwrap_err().to_string();
        assert!(error.contains("no memory behind CXL, but 1 NUMA node(s)"), "{error}");
    }
}
