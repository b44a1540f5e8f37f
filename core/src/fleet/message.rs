//! The messages of agents to the fleet, and its answers.

use alloc::{format, string::String, vec::Vec};

use super::schedule::{Offer, Schedule};
use crate::{
    id::{Epoch, NodeId},
    retention::{form::Form, policy},
    tier,
    units::{Bytes, Nanoseconds},
};

/// An agent that wants to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The number of its node, from its launcher or its user.
    pub node: NodeId,
    /// The run directory on its host, as a number: the same after a restart.
    pub home: u64,
    /// The process, as a number: another one after a restart.
    pub incarnation: u64,
    /// What the node found.
    pub offer: Offer,
}

/// What an agent works by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The number of the node, which selects its ranks.
    pub node: NodeId,
    /// Counts the processes that worked as this node, from 0.
    pub generation: u32,
    /// The fingerprint of the order, which each node computes by itself.
    pub order: u64,
    /// What the node keeps.
    pub policy: policy::Kind,
    /// Its tiers, depths and windows.
    pub schedule: Schedule,
}

/// Why there is no schedule for what a node found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "tiers.main-memory: {budget}{} cannot hold a batch of {batch} for each of {ranks} ranks; \
     give it at least {}{}",
    beside(*.beyond, *.ranks),
    Bytes(.batch.0.saturating_sub(.beyond.0).saturating_mul(u64::from(*.ranks))),
    for_form(*.form)
)]
pub struct Infeasible {
    /// The budget of main memory.
    pub budget: Bytes,
    /// What other memory tiers have for each rank.
    pub beyond: Bytes,
    /// The length of a large batch in staging.
    pub batch: Bytes,
    /// The number of ranks of the node.
    pub ranks: u32,
    /// The form of samples that the batch has room for beside the stored one.
    pub form: Form,
}

/// Why a batch takes more room than its stored samples and rows, as the end of a sentence.
fn for_form(form: Form) -> &'static str {
    match form {
        Form::Stored => "",
        Form::Prepared => {
            ", or take transform.cache: stored: tiers hold prepared samples, as the job file says or the first \
             node of the job chose, and a batch has room for these too"
        }
    }
}

/// The memory of other tiers, as words of a sentence.
fn beside(beyond: Bytes, ranks: u32) -> String {
    match beyond.0.saturating_mul(ranks.into()) {
        0 => String::new(),
        all => format!(" and {} of other memory tiers", Bytes(all)),
    }
}

/// Why an agent cannot take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Main memory holds no batch.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    /// The number lies outside the world.
    #[error("node {} does not exist; the world has nodes 0 to {}", .node.0, .nodes - 1)]
    NoSuchNode {
        /// The number that the agent asked for.
        node: NodeId,
        /// Nodes of the world.
        nodes: u32,
    },
    /// Another agent works as this node and was heard from lately.
    #[error("node {} is taken by another agent; stop it, or give each agent the number of its node", .node.0)]
    DuplicateNode {
        /// The number that the agent asked for.
        node: NodeId,
    },
    /// The job is ending; no node can join.
    #[error("the job is draining; start it again to use more nodes")]
    Draining,
}

/// The periodic report of an agent. Sums over all its ranks since the job began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of batches handed over.
    pub batches: u64,
    /// Number of samples handed over.
    pub samples: u64,
    /// Bytes of those samples.
    pub handed_over: Bytes,
    /// Bytes read from the cold store, page cache included.
    pub cold_read: Bytes,
    /// The part of it that the page cache had.
    pub page_cache_read: Bytes,
    /// Bytes read from each tier that is used, fastest first.
    pub tier_read: Vec<(tier::Kind, Bytes)>,
    /// What the cache of each of these tiers may hold now.
    pub tier_room: Vec<(tier::Kind, Bytes)>,
    /// Time for which trainers waited for batches, summed over the ranks.
    pub stall: Nanoseconds,
    /// Number of operations that failed.
    pub faults: u64,
    /// The generations of its schedule that it applied.
    pub applied: Vec<Applied>,
    /// What was made of samples; `None` in a job without a transform.
    pub transforms: Option<TransformProgress>,
}

/// What the workers of a node made of samples, and what they have before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransformProgress {
    /// Workers that take samples now.
    pub workers: u32,
    /// Samples that wait for one now.
    pub waiting: u32,
    /// Samples that became rows.
    pub rows: u64,
    /// Samples that did not.
    pub rejected: u64,
    /// Workers that were started in the place of others.
    pub replaced: u64,
    /// The time of processors that samples took.
    pub worked: Nanoseconds,
    /// The time since the first trainer came.
    pub trained: Nanoseconds,
}

/// A generation of a schedule that a node applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The generation.
    pub generation: u32,
    /// The first epoch in which it was applied.
    pub epoch: Epoch,
}

/// The reply to a progress report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The agent continues its work.
    Continue,
    /// Hand out the promised batches, write the report, and end.
    Drain,
    /// Another process works as this node now: end without a report.
    Superseded,
    /// The fleet does not know this process: it must register again.
    Unknown,
}

/// An event that the fleet reports unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A node was silent for too long. Its trainers continue from the cold store.
    NodeLost {
        /// Number of the node.
        node: NodeId,
        /// Duration of the silence.
        silent: Nanoseconds,
    },
    /// A lost node sent a message again.
    NodeBack {
        /// Number of the node.
        node: NodeId,
    },
    /// A node got the next generation of its schedule.
    Revised {
        /// Number of the node.
        node: NodeId,
    },
    /// All nodes have drained.
    Over,
}
