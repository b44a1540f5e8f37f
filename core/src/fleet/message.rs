//! What agents tell the fleet, and what it answers.

use alloc::vec::Vec;

use crate::{
    id::NodeId,
    order::Spec,
    retention::policy,
    tier,
    units::{Bytes, Nanoseconds},
};

/// What a node offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// The kind of place.
    pub kind: tier::Kind,
    /// What this job may use of it.
    pub budget: Bytes,
    /// Whether its speed is imposed rather than real.
    pub origin: Origin,
}

/// Whether a tier is what it says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The hardware that the name promises.
    Real,
    /// Something else that plays it.
    Emulated,
}

/// An agent that wants to take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The number of its node, as its launcher or its user says.
    pub node: NodeId,
    /// The run directory on its host, as a number: the same after a restart.
    pub home: u64,
    /// The process, as a number: another one after a restart.
    pub incarnation: u64,
    /// What the node offers, fastest first.
    pub tiers: Vec<Tier>,
    /// The unit in which its tiers grow and its memory is lent.
    pub chunk: Bytes,
}

/// What an agent works by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The number of the node, which selects its ranks.
    pub node: NodeId,
    /// Counts the processes that worked as this node, from 0.
    pub generation: u32,
    /// Which sample each rank reads when.
    pub order: Spec,
    /// What the node keeps.
    pub policy: policy::Kind,
    /// Batches that each rank has staged ahead.
    pub staged_batches: u32,
    /// The budgets, as registered.
    pub tiers: Vec<Tier>,
}

/// Why an agent cannot take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The number lies outside the world.
    #[error("node {} does not exist; the world has nodes 0 to {}", .node.0, .nodes - 1)]
    NoSuchNode {
        /// As asked.
        node: NodeId,
        /// Nodes of the world.
        nodes: u32,
    },
    /// Another agent works as this node and was heard from lately.
    #[error("node {} is taken by another agent; stop it, or give each agent the number of its node", .node.0)]
    DuplicateNode {
        /// As asked.
        node: NodeId,
    },
    /// The job ends; nobody joins any more.
    #[error("the job is draining; start it again to use more nodes")]
    Draining,
}

/// What an agent tells from time to time. Sums over all its ranks since the job began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Batches handed over.
    pub batches: u64,
    /// Samples handed over.
    pub samples: u64,
    /// Bytes of those samples.
    pub handed_over: Bytes,
    /// Bytes read from the cold store.
    pub cold_read: Bytes,
    /// Bytes read from each tier, as registered.
    pub tier_read: Vec<(tier::Kind, Bytes)>,
    /// Time for which trainers waited for batches, summed over the ranks.
    pub stall: Nanoseconds,
    /// Operations that failed.
    pub faults: u64,
}

/// What a message came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Go on.
    Continue,
    /// Hand out what is promised, write the report, end.
    Drain,
    /// Another process works as this node now: end without a report.
    Superseded,
    /// The fleet does not know this process: register again.
    Unknown,
}

/// What the fleet has to say on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A node was silent for too long. Its trainers read on from the cold store.
    NodeLost {
        /// Which one.
        node: NodeId,
        /// For how long.
        silent: Nanoseconds,
    },
    /// A lost node was heard from again.
    NodeBack {
        /// Which one.
        node: NodeId,
    },
    /// All nodes drained.
    Over,
}
