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

/// The numbers of nodes are kept in 16 bits, and the last one stands for no node.
pub const NODES_MAX: u32 = 65_535;

#[derive(Debug, Clone)]
pub struct Setting {
    pub order: Spec,
    pub sizes: Arc<[Bytes]>,
    /// Of each node, fastest first.
    pub tiers: Vec<Tier>,
    /// Batches that are staged ahead for each rank.
    pub depth: NonZeroU32,
    pub links: Links,
    /// The time that a training step computes, without loading.
    pub step_time: Nanoseconds,
    /// The pauses of the training between steps, in which it reads nothing.
    pub pause: Option<Pause>,
    /// `None` if samples are handed out as they are.
    pub transforming: Option<Transforming>,
    /// The time that the agents read before the training begins.
    pub head_start: Nanoseconds,
    pub changes: Vec<Change>,
}

#[derive(Debug, Clone)]
pub struct Transforming {
    /// The form in which nodes hold samples; [`Setting::sizes`] are the lengths in it.
    pub cached: Form,
    pub stored: Arc<[Bytes]>,
    pub threads: NonZeroU32,
    pub costs: TransformCosts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// Other nodes read nothing from a disk.
    pub kind: Kind,
    /// The room for retained samples.
    pub room: Bytes,
    /// Of all accesses together.
    pub speed: Speed,
}

/// A bandwidth of zero means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Links {
    /// The cold store as each node reads it.
    pub cold: Speed,
    /// The most reads of the cold store that a node has in flight; `None` for no limit.
    pub cold_threads: Option<NonZeroU32>,
    /// The time by which the cold store may be ahead of its rate towards a node after it was idle.
    pub cold_burst: Nanoseconds,
    /// The rate of the cold store for all nodes together.
    pub store: BytesPerSecond,
    /// The network of each node, in each direction.
    pub network: Speed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub node: NodeId,
    pub epoch: Epoch,
    /// The change happens when this step would begin.
    pub step: Step,
    pub kind: ChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The agent is gone, with all that its tiers held. The trainers go on, and read everything from the
    /// cold store when they need it.
    Lost,
    /// An agent is there again, with empty tiers.
    Back,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    #[error("{nodes} nodes; at most {NODES_MAX} are simulated together")]
    TooManyNodes { nodes: u32 },
    #[error("the job has one node; it takes two to share what they hold")]
    OneNode,
    #[error("{given} lengths for {samples} samples")]
    OtherSamples { given: usize, samples: u32 },
    #[error("node {node}: the job has {nodes} nodes, numbered from 0 to {}", .nodes - 1)]
    NoSuchNode { node: u32, nodes: u32 },
    #[error("node {node} in epoch {epoch}: the run has the epochs {first} to {last}")]
    NoSuchEpoch { node: u32, epoch: u32, first: u32, last: u32 },
    #[error(
        "node {node} at step {step} of epoch {epoch}: that epoch has the steps 0 to {}", .steps - 1
    )]
    NoSuchStep { node: u32, epoch: u32, step: u32, steps: u32 },
    #[error("node {node} in epoch {epoch}: {}", .kind.contradiction())]
    Contradiction { node: u32, epoch: u32, kind: ChangeKind },
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
    /// Returns the changes in the order in which they happen.
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
