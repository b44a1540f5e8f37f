//! The part of an epoch that the ranks of one node read.

use alloc::vec::Vec;

use crate::id::{SampleId, Step};

/// The reads of the ranks of one node in an epoch: 4 bytes for each read, rank by rank.
#[derive(Debug, Clone)]
pub struct NodeOrder {
    samples: Vec<SampleId>,
    per_rank: usize,
    sections: Vec<NodeSection>,
}

/// The place of the reads of one dataset among all that a rank reads in the epoch.
#[derive(Debug, Clone)]
pub(super) struct NodeSection {
    pub(super) first_step: Step,
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) batch_size: usize,
}

impl NodeOrder {
    pub(super) fn new(samples: Vec<SampleId>, per_rank: usize, sections: Vec<NodeSection>) -> Self {
        Self { samples, per_rank, sections }
    }

    /// In reading order; empty beyond the end. `local_rank` counts the ranks of the node from 0.
    ///
    /// # Panics
    ///
    /// If the node has fewer ranks.
    #[must_use]
    pub fn batch(&self, local_rank: u32, step: Step) -> &[SampleId] {
        let section = self.sections.iter().rev().find(|section| section.first_step <= step);
        let Some(NodeSection { first_step, first, end, batch_size }) = section else { return &[] };
        let before = ((step.0 - first_step.0) as usize).saturating_mul(*batch_size);
        let first = first.saturating_add(before).min(*end);
        let last = first.saturating_add(*batch_size).min(*end);
        let start = local_rank as usize * self.per_rank;
        &self.samples[start + first..start + last]
    }

    /// Each sample as often as the node reads it, rank by rank.
    #[must_use]
    pub fn samples(&self) -> &[SampleId] {
        &self.samples
    }
}
