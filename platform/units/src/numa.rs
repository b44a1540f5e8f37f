//! NUMA nodes, and the placement of memory on them.

use serde::{Deserialize, Serialize};

/// A memory node of a host, as in `/sys/devices/system/node/node<N>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NumaNode(pub u32);

/// The memory to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// The kernel chooses: the host has one NUMA node, or the node does not matter.
    Anywhere,
    /// Memory of this NUMA node, and of no other.
    Numa(NumaNode),
    /// Memory of this NUMA node while it has free pages, else of another.
    Near(NumaNode),
}

impl Locality {
    /// The memory that must have room for it.
    #[must_use]
    pub const fn room(self) -> Self {
        match self {
            Self::Near(_) => Self::Anywhere,
            other => other,
        }
    }

    /// The NUMA node, if there is one.
    #[must_use]
    pub const fn node(self) -> Option<NumaNode> {
        match self {
            Self::Anywhere => None,
            Self::Numa(node) | Self::Near(node) => Some(node),
        }
    }
}
