//! The roles of the processes under test: a manager, an agent on each node, and a trainer for each rank.

use std::{fmt, iter, ops::Range};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) nodes: u32,
    pub(crate) ranks_per_node: u32,
    /// Ranks of the job that have no trainer; the hostile client connects as one of them.
    pub(crate) spare_ranks: u32,
}

impl World {
    /// One node with two ranks, and one rank for a hostile client.
    pub(crate) const ONE_NODE: Self = Self { nodes: 1, ranks_per_node: 2, spare_ranks: 1 };

    /// With several nodes, each has one rank, and all ranks of the job are trained: nodes hold for each other
    /// what all of them read.
    pub(crate) fn of(nodes: u32) -> Self {
        if nodes == 1 {
            return Self::ONE_NODE;
        }
        Self { nodes, ranks_per_node: 1, spare_ranks: 0 }
    }

    pub(crate) fn ranks(self) -> Range<u32> {
        0..self.nodes * self.ranks_per_node
    }

    pub(crate) fn node_of(self, rank: u32) -> u32 {
        rank / self.ranks_per_node
    }

    pub(crate) fn agents(self) -> impl Iterator<Item = Role> {
        (0..self.nodes).map(Role::Agent)
    }

    /// Those that listen.
    pub(crate) fn servers(self) -> impl Iterator<Item = Role> {
        self.agents().chain([Role::Manager])
    }

    pub(crate) fn trainers(self) -> impl Iterator<Item = Role> {
        self.ranks().map(Role::Trainer)
    }

    /// In the order of their starts.
    pub(crate) fn roles(self) -> impl Iterator<Item = Role> {
        iter::once(Role::Manager).chain(self.agents()).chain(self.trainers())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Manager,
    Agent(u32),
    Trainer(u32),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager => write!(f, "manager"),
            Self::Agent(node) => write!(f, "agent{node}"),
            Self::Trainer(rank) => write!(f, "trainer{rank}"),
        }
    }
}
