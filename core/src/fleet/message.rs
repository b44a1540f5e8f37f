//! The messages of agents to the fleet, and its answers.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::schedule::{Offer, Schedule};
use crate::{
    budget::Infeasible,
    id::{Epoch, NodeId},
    retention::policy,
    tier,
    units::{Bytes, Nanoseconds},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The number of its node, from its launcher or its user.
    pub node: NodeId,
    /// The run directory on its host, as a number: it stays the same after a restart.
    pub home: u64,
    /// The process, as a number: it changes with a restart.
    pub incarnation: u64,
    pub offer: Offer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub node: NodeId,
    /// Counts the processes that worked as this node, from 0.
    pub generation: u32,
    /// The fingerprint of the order, which each node also computes by itself.
    pub order: u64,
    pub policy: policy::Kind,
    pub schedule: Schedule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    #[error("node {} does not exist; the world has nodes 0 to {}", .node.0, .nodes - 1)]
    NoSuchNode { node: NodeId, nodes: u32 },
    #[error("node {} is taken by another agent; stop it, or give each agent the number of its node", .node.0)]
    DuplicateNode { node: NodeId },
    #[error("the job is draining; start it again to use more nodes")]
    Draining,
}

/// The periodic report of an agent. Numbers are sums over all its ranks since the job began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub batches: u64,
    pub samples: u64,
    pub handed_over: Bytes,
    /// Bytes read from the cold store, page cache included.
    pub cold_read: Bytes,
    /// The part of it that the page cache had.
    pub page_cache_read: Bytes,
    /// Bytes read from each tier that is used, fastest first.
    pub tier_read: Vec<(tier::Kind, Bytes)>,
    /// The bytes that the cache of each of these tiers may hold now.
    pub tier_room: Vec<(tier::Kind, Bytes)>,
    /// Time for which trainers waited for batches, summed over the ranks.
    pub stall: Nanoseconds,
    pub faults: u64,
    pub applied: Vec<Applied>,
    /// `None` in a job without a transform.
    pub transforms: Option<TransformProgress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformProgress {
    /// Workers that take samples now.
    pub workers: u32,
    /// Samples that wait for a worker now.
    pub waiting: u32,
    pub rows: u64,
    /// Samples that could not be made into rows.
    pub rejected: u64,
    /// Workers that were started in the place of others.
    pub replaced: u64,
    /// Processor time spent on samples.
    pub worked: Nanoseconds,
    /// The time since the first trainer came.
    pub trained: Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub generation: u32,
    /// The first epoch in which it was applied.
    pub epoch: Epoch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    Continue,
    /// Hand out the promised batches, write the report, and end.
    Drain,
    /// Another process works as this node now: end without a report.
    Superseded,
    /// The fleet does not know this process: it must register again.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Its trainers continue from the cold store.
    NodeLost {
        node: NodeId,
        silent: Nanoseconds,
    },
    NodeBack {
        node: NodeId,
    },
    Revised {
        node: NodeId,
    },
    Over,
}
