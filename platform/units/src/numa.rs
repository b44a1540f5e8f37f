//! NUMA nodes, and the placement of memory on them.

/// A memory node of a host, as in `/sys/devices/system/node/node<N>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaNode(pub u32);

/// The memory to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// The kernel chooses: the host has one NUMA node, or the node does not matter.
    Anywhere,
    /// Memory of this NUMA node.
    Numa(NumaNode),
}
