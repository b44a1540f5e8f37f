//! The future of one node: what its ranks read, a few epochs at a time.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. [`Horizon::next_use`] is the first read of the sample on this node after the given one, in the
//!    order (epoch, step, rank), if an epoch that is held has it.
//! 2. At most [`Horizon::epochs_max`] epochs are held.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::cell::OnceCell;

use crate::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step},
    order::{NodeOrder, Shuffle, Spec},
};

/// A read of a sample on a node; ordered as ranks in lock-step read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// In which epoch.
    pub epoch: Epoch,
    /// The position among the reads of the node in it, as if every batch were full.
    pub place: u32,
}

/// When a sample is read next on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextUse {
    /// Then.
    At(Use),
    /// In none of the epochs that can be looked into; perhaps in a later one.
    Later,
    /// Not again in this job.
    Never,
}

/// What became of an order that a trainer handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    /// It holds from now on, or did already.
    New,
    /// It holds from now on instead of another one.
    Changed,
    /// It cannot be an order of this job.
    Impossible,
}

/// The orders of the epochs in use, and of some that follow.
#[derive(Debug)]
pub struct Horizon {
    spec: Spec,
    node: NodeId,
    ahead: u32,
    computed: BTreeMap<Epoch, NodeOrder>,
    published: BTreeMap<(Rank, Epoch), Vec<SampleId>>,
    places: BTreeMap<Epoch, OnceCell<Places>>,
}

/// Where in an epoch each sample is read.
#[derive(Debug)]
struct Places {
    /// By sample; [`NOWHERE`] if the node does not read it.
    first: Vec<u32>,
    /// From a place to the next one with the same sample.
    again: BTreeMap<u32, u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Horizon {
    /// The future of `node`, which shows an epoch and `ahead` more.
    #[must_use]
    pub fn new(spec: Spec, node: NodeId, ahead: u32) -> Self {
        let (computed, published, places) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { spec, node, ahead, computed, published, places }
    }

    /// The order of the job.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The node whose future this is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Epochs that are held at once: a rank may be one epoch ahead of another.
    #[must_use]
    pub fn epochs_max(&self) -> usize {
        self.ahead as usize + 2
    }

    /// Makes sure that `epoch` and those which are looked into from it are there.
    pub fn prepare(&mut self, epoch: Epoch) {
        let last = Epoch(epoch.0.saturating_add(self.ahead).min(self.spec.epochs - 1));
        for epoch in (epoch.0..=last.0).map(Epoch) {
            if !self.computed.contains_key(&epoch)
                && let Some(order) = self.spec.epoch_of(self.node, epoch)
            {
                self.computed.insert(epoch, order);
                self.places.insert(epoch, OnceCell::new());
            }
        }
        while self.computed.len() > self.epochs_max() {
            let (first, last) = (self.computed.first_key_value(), self.computed.last_key_value());
            let is_behind = first.zip(last).is_some_and(|((first, _), (last, _))| {
                epoch.0.saturating_sub(first.0) > 1 || epoch.0.abs_diff(last.0) <= self.ahead
            });
            let dropped =
                if is_behind { self.computed.pop_first() } else { self.computed.pop_last() };
            dropped.map(|(epoch, _)| self.places.remove(&epoch));
        }
    }

    /// Takes the order that a trainer of this node handed over, if it can be one: every sample exists,
    /// and the epoch is not longer than the job says. Of each rank the last few epochs are kept.
    pub fn publish(&mut self, rank: Rank, epoch: Epoch, samples: Vec<SampleId>) -> Publication {
        let fits = self.spec.shuffle == Shuffle::Published
            && self.spec.world.ranks_of(self.node).any(|other| other == rank)
            && epoch.0 < self.spec.epochs
            && samples.len() <= self.spec.samples_per_rank_in(epoch) as usize
            && samples.iter().all(|sample| sample.0 < self.spec.samples);
        if !fits {
            return Publication::Impossible;
        }
        let is_other = self.published.get(&(rank, epoch)).is_some_and(|known| *known != samples);
        self.published.insert((rank, epoch), samples);
        self.places.insert(epoch, OnceCell::new());
        let of_rank = (rank, Epoch(0))..=(rank, Epoch(u32::MAX));
        if self.published.range(of_rank.clone()).count() > self.epochs_max() {
            let oldest = self.published.range(of_rank).next().map(|(key, _)| *key);
            oldest.map(|key| self.published.remove(&key));
        }
        while self.places.len() > self.epochs_max() {
            self.places.pop_first();
        }
        if is_other { Publication::Changed } else { Publication::New }
    }

    /// The samples of a batch, or `None` if the order of its epoch is not known yet.
    #[must_use]
    pub fn batch(&self, batch: BatchId) -> Option<&[SampleId]> {
        if self.spec.shuffle == Shuffle::Published {
            let samples = self.published.get(&(batch.rank, batch.epoch))?;
            let size = self.spec.batch_size as usize;
            return Some(samples.chunks(size).nth(batch.step.0 as usize).unwrap_or_default());
        }
        let local_rank = self.local(batch.rank)?;
        self.computed.get(&batch.epoch).map(|order| order.batch(local_rank, batch.step))
    }

    /// What the node reads in an epoch, if the job fixes it and the epoch is held.
    #[must_use]
    pub fn epoch(&self, epoch: Epoch) -> Option<&NodeOrder> {
        self.computed.get(&epoch)
    }

    /// The read of the sample at `index` of a batch.
    #[must_use]
    pub fn read_of(&self, batch: BatchId, index: usize) -> Use {
        let ranks = u64::from(self.spec.world.ranks_per_node);
        let local = u64::from(self.local(batch.rank).unwrap_or(0));
        let batches = u64::from(batch.step.0) * ranks + local;
        let place = batches * u64::from(self.spec.batch_size) + index as u64;
        Use { epoch: batch.epoch, place: u32::try_from(place).unwrap_or(NOWHERE - 1) }
    }

    /// Steps from a read to a later one, over the ends of epochs.
    #[must_use]
    pub fn steps_between(&self, from: Use, to: Use) -> u32 {
        let per_step = self.spec.batch_size.saturating_mul(self.spec.world.ranks_per_node).max(1);
        let step = |it: Use| u64::from(it.place / per_step);
        let epochs: u64 = (from.epoch.0..to.epoch.0)
            .map(|epoch| u64::from(self.spec.steps_in(Epoch(epoch))))
            .sum();
        u32::try_from((epochs + step(to)).saturating_sub(step(from))).unwrap_or(u32::MAX)
    }

    /// When `sample` is read after `now`.
    #[must_use]
    pub fn next_use(&self, sample: SampleId, now: Use) -> NextUse {
        let last = now.epoch.0.saturating_add(self.ahead).min(self.spec.epochs - 1);
        for epoch in (now.epoch.0..=last).map(Epoch) {
            let Some(places) = self.places.get(&epoch) else { continue };
            let places = places.get_or_init(|| self.places_of(epoch));
            let after = (epoch == now.epoch).then_some(now.place);
            if let Some(place) = places.after(sample, after) {
                return NextUse::At(Use { epoch, place });
            }
        }
        let is_all_known = self.spec.shuffle != Shuffle::Published && last + 1 == self.spec.epochs;
        let is_over = now.epoch.0 + 1 >= self.spec.epochs;
        if is_all_known || is_over { NextUse::Never } else { NextUse::Later }
    }

    fn local(&self, rank: Rank) -> Option<u32> {
        let ranks = self.spec.world.ranks_per_node;
        rank.0.checked_sub(self.node.0 * ranks).filter(|local| *local < ranks)
    }

    fn places_of(&self, epoch: Epoch) -> Places {
        let mut first = vec![NOWHERE; self.spec.samples as usize];
        let mut again = BTreeMap::new();
        for step in (0..self.spec.steps_in(epoch)).rev().map(Step) {
            let ranks = self.spec.world.ranks_of(self.node).collect::<Vec<_>>();
            for rank in ranks.into_iter().rev() {
                let batch = BatchId { epoch, step, rank };
                let samples = self.batch(batch).unwrap_or_default();
                for (index, sample) in samples.iter().enumerate().rev() {
                    let place = self.read_of(batch, index).place;
                    let later = core::mem::replace(&mut first[sample.0 as usize], place);
                    if later != NOWHERE {
                        again.insert(place, later);
                    }
                }
            }
        }
        Places { first, again }
    }
}

impl Places {
    /// The first place of a sample that lies behind `after`.
    fn after(&self, sample: SampleId, after: Option<u32>) -> Option<u32> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::order::{Position, World};

    fn spec(samples: u32, world: World, epochs: u32) -> Spec {
        Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 5,
            epochs,
            drop_last: false,
            batch_size: 3,
            world,
            start: Position::START,
        }
    }

    /// All reads of a node in turn.
    fn reads(spec: Spec, node: NodeId) -> Vec<(Use, SampleId)> {
        let mut horizon = Horizon::new(spec, node, 0);
        let mut reads = Vec::new();
        for epoch in (0..spec.epochs).map(Epoch) {
            horizon.prepare(epoch);
            for step in (0..spec.steps_in(epoch)).map(Step) {
                for rank in spec.world.ranks_of(node) {
                    let batch = BatchId { epoch, step, rank };
                    let samples = horizon.batch(batch).unwrap().iter().enumerate();
                    reads.extend(samples.map(|(index, it)| (horizon.read_of(batch, index), *it)));
                }
            }
        }
        reads
    }

    proptest! {
        #[test]
        fn the_next_use_is_the_next_read(
            samples in 1_u32..40, nodes in 1_u32..4, ranks_per_node in 1_u32..4, ahead in 0_u32..3,
        ) {
            let world = World { nodes, ranks_per_node };
            let spec = spec(samples, world, 4);
            let reads = reads(spec, NodeId(nodes - 1));
            prop_assert!(reads.is_sorted_by(|(a, _), (b, _)| a < b));
            let mut horizon = Horizon::new(spec, NodeId(nodes - 1), ahead);
            for (at, (now, sample)) in reads.iter().enumerate() {
                horizon.prepare(now.epoch);
                prop_assert!(horizon.computed.len() <= horizon.epochs_max(), "invariant 2");
                let next = reads[at + 1..].iter().find(|(_, other)| other == sample);
                let last = Epoch(now.epoch.0 + ahead);
                let expected = match next {
                    Some((next, _)) if next.epoch <= last => NextUse::At(*next),
                    _ if last.0 + 1 >= spec.epochs => NextUse::Never,
                    _ => NextUse::Later,
                };
                prop_assert_eq!(horizon.next_use(*sample, *now), expected, "invariant 1");
            }
        }
    }

    #[test]
    fn a_published_epoch_may_repeat_samples() {
        let world = World { nodes: 1, ranks_per_node: 1 };
        let spec = Spec { shuffle: Shuffle::Published, ..spec(6, world, 2) };
        let mut horizon = Horizon::new(spec, NodeId(0), 1);
        let samples = [1, 4, 1, 1, 0].map(SampleId).to_vec();
        assert_eq!(horizon.publish(Rank(0), Epoch(0), samples.clone()), Publication::New);
        let at = |place| Use { epoch: Epoch(0), place };
        let next = |sample, place| horizon.next_use(SampleId(sample), at(place));
        assert_eq!(next(1, 0), NextUse::At(at(2)));
        assert_eq!(next(1, 2), NextUse::At(at(3)));
        assert_eq!(next(1, 3), NextUse::Later, "epoch 1 is not published yet");
        assert_eq!(horizon.publish(Rank(0), Epoch(0), vec![SampleId(2)]), Publication::Changed);
        let wrong = vec![SampleId(6)];
        assert_eq!(horizon.publish(Rank(0), Epoch(1), wrong), Publication::Impossible);
    }

    #[test]
    fn steps_are_counted_over_the_end_of_an_epoch() {
        let world = World { nodes: 1, ranks_per_node: 2 };
        let spec = spec(20, world, 3);
        let horizon = Horizon::new(spec, NodeId(0), 1);
        let at = |epoch, place| Use { epoch: Epoch(epoch), place };
        assert_eq!(spec.steps_in(Epoch(0)), 4);
        assert_eq!(horizon.steps_between(at(0, 0), at(0, 5)), 0);
        assert_eq!(horizon.steps_between(at(0, 0), at(0, 6)), 1);
        assert_eq!(horizon.steps_between(at(0, 18), at(1, 6)), 2);
    }
}
