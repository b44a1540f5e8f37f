//! The input of a simulation of all nodes, checked before it begins.

use alloc::{sync::Arc, vec::Vec};
use core::num::NonZeroU32;

use super::super::{Pause, TransformCosts};
use crate::{
    id::{Epoch, NodeId, Step},
    order::Spec,
    retention::form::Form,
    tier::{Kind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// The numbers of nodes are kept in 16 bits, and the last of them stands for none.
pub const NODES_MAX: u32 = 65_535;

/// The input of a simulation of all nodes, which are alike.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The order of the job.
    pub order: Spec,
    /// The length of every sample.
    pub sizes: Arc<[Bytes]>,
    /// The tiers of each node, fastest first.
    pub tiers: Vec<Tier>,
    /// Batches that are staged ahead of each rank.
    pub depth: NonZeroU32,
    /// What limits the reads beside the tiers.
    pub links: Links,
    /// What a training step computes, loading excluded.
    pub step_time: Nanoseconds,
    /// What the training does between steps now and then, reading nothing.
    pub pause: Option<Pause>,
    /// What becomes of samples before they are handed out; `None` for nothing.
    pub transforming: Option<Transforming>,
    /// How long the agents read before the training begins.
    pub head_start: Nanoseconds,
    /// Nodes that are lost and come back.
    pub changes: Vec<Change>,
}

/// How each node transforms samples.
#[derive(Debug, Clone)]
pub struct Transforming {
    /// The form in which nodes hold samples: [`Setting::sizes`] are the lengths in it.
    pub cached: Form,
    /// The length of every sample in the cold store.
    pub stored: Arc<[Bytes]>,
    /// Samples that a node transforms at a time.
    pub threads: NonZeroU32,
    /// What they cost.
    pub costs: TransformCosts,
}

/// A tier of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// The kind of the tier; other nodes read nothing from a disk.
    pub kind: Kind,
    /// What it retains.
    pub room: Bytes,
    /// Its speed for all accesses together.
    pub speed: Speed,
}

/// What limits the reads of the nodes beside their tiers. A bandwidth of zero means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Links {
    /// The cold store as each node reads it.
    pub cold: Speed,
    /// The reads of the cold store that a node has in flight at most; `None` for no limit.
    pub cold_threads: Option<NonZeroU32>,
    /// How far the cold store may be ahead of its rate towards a node after it was idle.
    pub cold_burst: Nanoseconds,
    /// What the cold store gives to all nodes together.
    pub store: BytesPerSecond,
    /// The network of each node, in each direction.
    pub network: Speed,
}

/// A node that is lost, or comes back with empty tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The number of the node.
    pub node: NodeId,
    /// The epoch in which it happens.
    pub epoch: Epoch,
    /// It happens when this step would begin.
    pub step: Step,
    /// What happens.
    pub kind: ChangeKind,
}

/// What happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Its agent is gone, and what its tiers held. Its trainers go on, and read everything from the cold store
    /// when they need it.
    Lost,
    /// An agent is there again, with empty tiers.
    Back,
}

/// Why all nodes cannot be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// More nodes than a holder can be recorded of.
    #[error("{nodes} nodes; at most {NODES_MAX} are simulated together")]
    TooManyNodes {
        /// Nodes of the job.
        nodes: u32,
    },
    /// A node shares with others, and there are none.
    #[error("the job has one node; it takes two to share what they hold")]
    OneNode,
    /// The numbers of samples and of lengths differ.
    #[error("{given} lengths for {samples} samples")]
    OtherSamples {
        /// Number of samples with a length.
        given: usize,
        /// Samples of the order.
        samples: u32,
    },
    /// A change of a node that the job does not have.
    #[error("node {node}: the job has {nodes} nodes, numbered from 0 to {}", .nodes - 1)]
    NoSuchNode {
        /// The number that was given.
        node: u32,
        /// Nodes of the job.
        nodes: u32,
    },
    /// A change in an epoch that is not part of the run.
    #[error("node {node} in epoch {epoch}: the run has the epochs {first} to {last}")]
    NoSuchEpoch {
        /// The node.
        node: u32,
        /// The epoch that was given.
        epoch: u32,
        /// The first epoch of the run.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// A change at a step beyond its epoch.
    #[error(
        "node {node} at step {step} of epoch {epoch}: that epoch has the steps 0 to {}", .steps - 1
    )]
    NoSuchStep {
        /// The node.
        node: u32,
        /// The epoch.
        epoch: u32,
        /// The step that was given.
        step: u32,
        /// Steps of the epoch.
        steps: u32,
    },
    /// A node is lost that is gone, or comes back that is there.
    #[error("node {node} in epoch {epoch}: {}", .kind.contradiction())]
    Contradiction {
        /// The node.
        node: u32,
        /// The epoch.
        epoch: u32,
        /// What cannot happen.
        kind: ChangeKind,
    },
}

impl ChangeKind {
    const fn contradiction(self) -> &'static str {
        match self {
            Self::Lost => "it is lost already; it must come back before it is lost again",
            Self::Back => "it is there; it must be lost before it comes back",
        }
    }
}

impl Setting {
    /// The changes in the order in which they happen, if they can.
    pub(super) fn validated(&self) -> Result<Vec<Change>, SettingError> {
        let (nodes, samples) = (self.order.world.nodes, self.order.all_samples());
        match nodes {
            0 | 1 => return Err(SettingError::OneNode),
            2..=NODES_MAX => {}
            _ => return Err(SettingError::TooManyNodes { nodes }),
        }
        let stored = self.transforming.as_ref().map(|it| it.stored.len());
        for given in [Some(self.sizes.len()), stored].into_iter().flatten() {
            if given != samples as usize {
                return Err(SettingError::OtherSamples { given, samples });
            }
        }
        let mut changes = self.changes.clone();
        changes.sort_by_key(|change| (change.epoch, change.step));
        for (at, change) in changes.iter().enumerate() {
            self.validate(change)?;
            let before = changes[..at].iter().rev().find(|it| it.node == change.node);
            let is_gone = before.is_some_and(|it| it.kind == ChangeKind::Lost);
            if is_gone != (change.kind == ChangeKind::Back) {
                let Change { node: NodeId(node), epoch: Epoch(epoch), kind, .. } = *change;
                return Err(SettingError::Contradiction { node, epoch, kind });
            }
        }
        Ok(changes)
    }

    fn validate(&self, change: &Change) -> Result<(), SettingError> {
        let Change { node: NodeId(node), epoch, step: Step(step), .. } = *change;
        let (nodes, steps) = (self.order.world.nodes, self.order.steps_in(epoch));
        if node >= nodes {
            return Err(SettingError::NoSuchNode { node, nodes });
        }
        if steps == 0 {
            let (first, last) = (self.order.start.epoch.0, self.order.epochs - 1);
            return Err(SettingError::NoSuchEpoch { node, epoch: epoch.0, first, last });
        }
        if step >= steps {
            return Err(SettingError::NoSuchStep { node, epoch: epoch.0, step, steps });
        }
        Ok(())
    }
}
