//! The positions in an epoch at which each sample is read.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use crate::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step},
    order::Spec,
};

const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Positions {
    /// First position by sample; [`NOWHERE`] if the node does not read it.
    first: Vec<u32>,
    /// From a position to the next one with the same sample.
    again: BTreeMap<u32, u32>,
}

impl Positions {
    /// `samples_of` returns the samples of a batch.
    pub(super) fn of<'a>(
        spec: &Spec,
        node: NodeId,
        epoch: Epoch,
        samples_of: &dyn Fn(BatchId) -> &'a [SampleId],
    ) -> Self {
        let mut first = vec![NOWHERE; spec.all_samples() as usize];
        let mut again = BTreeMap::new();
        let ranks = spec.world.ranks_of(node).collect::<Vec<_>>();
        for step in (0..spec.steps_in(epoch)).rev().map(Step) {
            for rank in ranks.iter().rev().copied() {
                let batch = BatchId { epoch, step, rank };
                for (index, sample) in samples_of(batch).iter().enumerate().rev() {
                    let place = place_of(spec, node, batch, index);
                    let later = core::mem::replace(&mut first[sample.0 as usize], place);
                    if later != NOWHERE {
                        again.insert(place, later);
                    }
                }
            }
        }
        Self { first, again }
    }

    pub(super) fn after(&self, sample: SampleId, after: Option<u32>) -> Option<u32> {
        let mut place = *self.first.get(sample.0 as usize)?;
        if place == NOWHERE {
            return None;
        }
        while after.is_some_and(|after| place <= after) {
            place = *self.again.get(&place)?;
        }
        Some(place)
    }
}

/// The position among the node's reads, as if every batch were full.
pub(super) fn place_of(spec: &Spec, node: NodeId, batch: BatchId, index: usize) -> u32 {
    let ranks = u64::from(spec.world.ranks_per_node);
    let local = u64::from(local(spec, node, batch.rank).unwrap_or(0));
    let batches = u64::from(batch.step.0) * ranks + local;
    let place = batches * u64::from(spec.batch_size_max()) + index as u64;
    u32::try_from(place).unwrap_or(NOWHERE - 1)
}

pub(super) fn local(spec: &Spec, node: NodeId, rank: Rank) -> Option<u32> {
    let ranks = spec.world.ranks_per_node;
    rank.0.checked_sub(node.0 * ranks).filter(|local| *local < ranks)
}
