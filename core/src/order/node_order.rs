//! The part of an epoch that the ranks of one node read.

use alloc::vec::Vec;

use super::{EpochOrder, Spec};
use crate::id::{Epoch, NodeId, SampleId, Step};

/// What the ranks of one node read in an epoch: 4 bytes for each of its reads, rank by rank.
#[derive(Debug, Clone)]
pub struct NodeOrder {
    samples: Vec<SampleId>,
    per_rank: u32,
    batch_size: u32,
}

impl NodeOrder {
    pub(super) fn of(order: &EpochOrder, spec: &Spec, epoch: Epoch, node: NodeId) -> Self {
        let per_rank = spec.samples_per_rank_in(epoch);
        let samples = order.of_node(node);
        Self { samples, per_rank, batch_size: spec.batch_size }
    }

    /// The samples of one batch, in the order in which the rank reads them; none beyond the end.
    /// `local_rank` counts the ranks of the node from 0.
    ///
    /// # Panics
    ///
    /// If the node has fewer ranks.
    #[must_use]
    pub fn batch(&self, local_rank: u32, step: Step) -> &[SampleId] {
        let end = self.per_rank as usize;
        let first = (step.0 as usize).saturating_mul(self.batch_size as usize).min(end);
        let last = first.saturating_add(self.batch_size as usize).min(end);
        let start = local_rank as usize * end;
        &self.samples[start + first..start + last]
    }

    /// Every sample that the node reads in the epoch, as often as it reads it, rank by rank.
    #[must_use]
    pub fn samples(&self) -> &[SampleId] {
        &self.samples
    }
}
