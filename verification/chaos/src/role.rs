//! The roles of the processes under test: a manager, an agent on each node, and a trainer for each rank.

/// The nodes and ranks of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) nodes: u32,
    /// Ranks of a node that are trained.
    pub(crate) ranks_per_node: u32,
    /// Ranks of the job that have no trainer; the hostile client connects as one of them.
    pub(crate) spare_ranks: u32,
}

impl World {
    /// One node with two ranks, and one rank for a hostile client.
    pub(crate) const ONE_NODE: Self = Self { nodes: 1, ranks_per_node: 2, spare_ranks: 1 };

    /// So many nodes. Where there are several, each has one rank, and all ranks of the job are trained: nodes
    /// hold for each other what all of them read.
    pub(crate) fn of(nodes: u32) -> Self {
        if nodes == 1 {
            return Self::ONE_NODE;
        }
        Self { nodes, ranks_per_node: 1, spare_ranks: 0 }
    }

    pub(crate) fn nodes(self) -> std::ops::Range<u32> {
        0..self.nodes
    }

    /// The ranks that are trained.
    pub(crate) fn ranks(self) -> std::ops::Range<u32> {
        0..self.nodes * self.ranks_per_node
    }

    pub(crate) fn node_of(self, rank: u32) -> u32 {
        rank / self.ranks_per_node
    }

    pub(crate) fn roles(self) -> impl Iterator<Item = Role> {
        let agents = self.nodes().map(Role::Agent);
        std::iter::once(Role::Manager).chain(agents).chain(self.ranks().map(Role::Trainer))
    }
}

/// What a process under test does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Manager,
    /// Of this node.
    Agent(u32),
    /// Of this rank.
    Trainer(u32),
}

impl Role {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Manager => "manager".to_owned(),
            Self::Agent(node) => format!("agent{node}"),
            Self::Trainer(rank) => format!("trainer{rank}"),
        }
    }
}
