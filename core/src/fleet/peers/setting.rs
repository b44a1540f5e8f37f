//! The input of a plan with peers, checked before the plan is made.

use alloc::{sync::Arc, vec::Vec};

use super::copies::{AHEAD_MAX, BYTES_PER_EPOCH, BYTES_PER_SAMPLE, NODES_MAX, TIERS_MAX};
use crate::{order::Spec, units::Bytes};

/// The input of a plan with peers.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The order of the job.
    pub order: Spec,
    /// The length of every sample.
    pub sizes: Arc<[Bytes]>,
    /// What each tier may hold, by node, fastest first.
    pub capacities: Vec<Vec<Bytes>>,
    /// Epochs beyond the current one that the plan looks into: 2 bytes a sample for each.
    pub ahead: u32,
    /// Steps that are decided together: those whose samples lie in staging at once.
    pub round_steps: u32,
}

/// Why a plan with peers is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// More nodes than a copy can record.
    #[error("{nodes} nodes; a plan with peers has at most {NODES_MAX}")]
    TooManyNodes {
        /// Nodes of the job.
        nodes: u32,
    },
    /// More tiers than a copy can record.
    #[error("{tiers} tiers on a node; a plan with peers has at most {TIERS_MAX}")]
    TooManyTiers {
        /// Tiers of the node.
        tiers: usize,
    },
    /// The numbers of nodes and of capacities differ.
    #[error("capacities of {given} nodes for a world of {nodes}")]
    OtherNodes {
        /// Nodes that have capacities.
        given: usize,
        /// Nodes of the job.
        nodes: u32,
    },
    /// The numbers of samples and of lengths differ.
    #[error("{given} lengths for {samples} samples")]
    OtherSamples {
        /// Number of samples with a length.
        given: usize,
        /// Samples of the order.
        samples: u32,
    },
    /// A look-ahead of no epoch, or of more than can be recorded.
    #[error("{ahead} epochs to look ahead; it must be between 1 and {AHEAD_MAX}")]
    Ahead {
        /// Epochs of look-ahead in the setting.
        ahead: u32,
    },
}

impl Setting {
    /// Epochs to look ahead: three times the number of nodes shows nearly every next read; at least
    /// one, and as many as a plan for that many samples can hold within `memory`.
    #[must_use]
    pub fn ahead_within(memory: Bytes, order: &Spec) -> u32 {
        let for_each = memory.0 / u64::from(order.all_samples().max(1));
        let affordable = for_each.saturating_sub(BYTES_PER_SAMPLE) / BYTES_PER_EPOCH;
        let wanted = order.world.nodes.saturating_mul(3).min(AHEAD_MAX);
        u32::try_from(affordable).unwrap_or(AHEAD_MAX).clamp(1, wanted)
    }

    pub(super) fn validate(&self) -> Result<(), SettingError> {
        let (nodes, samples) = (self.order.world.nodes, self.order.all_samples());
        if nodes as usize > NODES_MAX {
            return Err(SettingError::TooManyNodes { nodes });
        }
        if self.capacities.len() != nodes as usize {
            return Err(SettingError::OtherNodes { given: self.capacities.len(), nodes });
        }
        let tiers = self.capacities.iter().map(Vec::len).max().unwrap_or(0);
        if tiers > TIERS_MAX {
            return Err(SettingError::TooManyTiers { tiers });
        }
        if self.sizes.len() != samples as usize {
            return Err(SettingError::OtherSamples { given: self.sizes.len(), samples });
        }
        if !(1..=AHEAD_MAX).contains(&self.ahead) {
            return Err(SettingError::Ahead { ahead: self.ahead });
        }
        Ok(())
    }
}
