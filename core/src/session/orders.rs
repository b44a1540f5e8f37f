//! The order of the job as one node's session looks at it: a few epochs at a time.

use alloc::{collections::BTreeMap, vec::Vec};
use core::cell::OnceCell;

use crate::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step},
    order::{EpochOrder, Shuffle, Spec},
    policy::Outlook,
};

/// The epochs that are held at once: a rank may be staged into the next epoch while another still
/// finishes the one before, and next uses lie one epoch further.
const EPOCHS_HELD: usize = 3;

/// The orders of the epochs in use.
#[derive(Debug)]
pub(super) struct Orders {
    spec: Spec,
    node: NodeId,
    computed: BTreeMap<Epoch, Computed>,
    published: BTreeMap<(Rank, Epoch), Vec<SampleId>>,
}

/// What became of an order that a trainer handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publication {
    /// It holds from now on, or did already.
    New,
    /// It holds from now on instead of another one.
    Changed,
    /// It cannot be an order of this job.
    Impossible,
}

#[derive(Debug)]
struct Computed {
    order: EpochOrder,
    /// For each sample the step that reads it, made when first asked for.
    steps: OnceCell<Vec<Option<Step>>>,
}

impl Orders {
    pub(super) fn new(spec: Spec, node: NodeId) -> Self {
        Self { spec, node, computed: BTreeMap::new(), published: BTreeMap::new() }
    }

    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Makes sure that `epoch` and, for next uses, the one after it can be looked into.
    pub(super) fn prepare(&mut self, epoch: Epoch) {
        for epoch in [epoch, Epoch(epoch.0 + 1)] {
            if epoch.0 >= self.spec.epochs || self.computed.contains_key(&epoch) {
                continue;
            }
            if let Some(order) = self.spec.epoch(epoch) {
                self.computed.insert(epoch, Computed { order, steps: OnceCell::new() });
            }
        }
        while self.computed.len() > EPOCHS_HELD {
            let (first, last) = (self.computed.first_key_value(), self.computed.last_key_value());
            let oldest_is_farther = first.zip(last).is_some_and(|((first, _), (last, _))| {
                epoch.0.abs_diff(first.0) >= epoch.0.abs_diff(last.0)
            });
            if oldest_is_farther {
                self.computed.pop_first()
            } else {
                self.computed.pop_last()
            };
        }
    }

    /// Takes the order that a trainer of this node handed over, if it can be one: every sample exists,
    /// and the epoch is not longer than the job says. Of each rank the last few epochs are kept.
    pub(super) fn publish(
        &mut self,
        rank: Rank,
        epoch: Epoch,
        samples: Vec<SampleId>,
    ) -> Publication {
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
        let of_rank = (rank, Epoch(0))..=(rank, Epoch(u32::MAX));
        if self.published.range(of_rank.clone()).count() > EPOCHS_HELD {
            let oldest = self.published.range(of_rank).next().map(|(key, _)| *key);
            oldest.map(|key| self.published.remove(&key));
        }
        if is_other { Publication::Changed } else { Publication::New }
    }

    /// The samples of a batch, or `None` if the order of its epoch is not known yet.
    pub(super) fn batch(&self, batch: BatchId) -> Option<Vec<SampleId>> {
        if self.spec.shuffle == Shuffle::Published {
            let samples = self.published.get(&(batch.rank, batch.epoch))?;
            let size = self.spec.batch_size as usize;
            let batch = samples.chunks(size).nth(batch.step.0 as usize);
            return Some(batch.unwrap_or_default().to_vec());
        }
        let computed = self.computed.get(&batch.epoch)?;
        Some(computed.order.batch(batch.rank, batch.step).collect())
    }

    /// The future as seen from a step of an epoch.
    pub(super) fn seen_from(&self, epoch: Epoch, step: Step) -> SeenFrom<'_> {
        SeenFrom { orders: self, epoch, step }
    }

    fn step_of(&self, epoch: Epoch, sample: SampleId) -> Option<Step> {
        let computed = self.computed.get(&epoch)?;
        let steps = computed.steps.get_or_init(|| computed.order.steps(self.node));
        steps.get(sample.0 as usize).copied().flatten()
    }
}

/// The future of every sample, counted from one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenFrom<'a> {
    orders: &'a Orders,
    epoch: Epoch,
    step: Step,
}

impl Outlook for SeenFrom<'_> {
    fn next_use(&self, sample: SampleId) -> Option<u32> {
        let later_now = self.orders.step_of(self.epoch, sample).filter(|step| *step > self.step);
        if let Some(step) = later_now {
            return Some(step.0 - self.step.0);
        }
        if !self.is_used_again(sample) {
            return None;
        }
        let epoch_steps = self.orders.spec.steps_in(self.epoch);
        let next = self.orders.step_of(Epoch(self.epoch.0 + 1), sample);
        // For orders that only the trainer knows, and on other nodes' samples: an epoch away.
        let next = next.map_or(self.step.0, |step| step.0);
        Some(epoch_steps - self.step.0 + next)
    }

    /// Exact on one node, but for samples that `drop_last` leaves out of every later epoch; on several
    /// nodes another one may read the sample next.
    fn is_used_again(&self, _: SampleId) -> bool {
        self.epoch.0 + 1 < self.orders.spec.epochs
    }
}
