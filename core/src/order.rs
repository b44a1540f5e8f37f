//! Which sample each rank reads at each step of each epoch.
//!
//! A pure function of dataset size, seed, epoch, world and the position where the run starts, equal
//! bit for bit to the framework's own sampler. For [`Shuffle::Published`] the order is the one that
//! the trainer sent.
//!
//! 1. An epoch is one sequence over all ranks, and the ranks take turns: what all ranks read in
//!    whole steps is a prefix of it, in any world. So a run can resume at any [`Position`] with
//!    another world, and every sample of the epoch is still read.
//! 2. All ranks read equally many samples of an epoch. Only the end of an epoch is padded or
//!    truncated for that.

mod epoch_order;
mod error;
mod further;
mod node_order;
mod shuffle;

pub mod block;
pub mod mosaic;
pub mod tf;
pub mod torch;

mod index_shuffle;
pub mod mt19937;
mod pcg64;
mod philox;
mod swaps;
mod torch_release;

pub use epoch_order::EpochOrder;
pub use error::SpecError;
pub use further::{FurtherDataset, FurtherDatasets, Section};
pub use node_order::NodeOrder;
pub use shuffle::Shuffle;

use core::hash::{Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

use crate::{
    fnv1a::Fnv1a,
    id::{BatchId, Epoch, NodeId, Rank, Step},
};

pub const FURTHER_MAX: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    pub nodes: u32,
    pub ranks_per_node: u32,
}

impl World {
    #[must_use]
    pub const fn ranks(self) -> u32 {
        self.nodes * self.ranks_per_node
    }

    /// The ranks of one host: consecutive, as `torchrun` and Slurm number them.
    pub fn ranks_of(self, node: NodeId) -> impl Iterator<Item = Rank> + use<> {
        let first = node.0 * self.ranks_per_node;
        (first..first + self.ranks_per_node).map(Rank)
    }
}

/// The progress of a job, valid in any world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The pass that is not finished.
    pub epoch: Epoch,
    /// Samples of the epoch that were read, summed over all ranks.
    pub samples: u32,
}

impl Position {
    pub const START: Self = Self { epoch: Epoch(0), samples: 0 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub samples: u32,
    pub shuffle: Shuffle,
    pub seed: u64,
    pub epochs: u32,
    /// The sampler's `drop_last`: truncate to a multiple of the world instead of padding to one.
    pub drop_last: bool,
    /// Samples per rank and step. The last batch of an epoch may be shorter.
    pub batch_size: u32,
    pub world: World,
    /// The position where the job starts to read. An earlier run, perhaps in another world, read the
    /// samples before it.
    pub start: Position,
    /// Datasets that are read at the end of epochs.
    #[serde(default, skip_serializing_if = "FurtherDatasets::is_empty")]
    pub further: FurtherDatasets,
}

impl Spec {
    /// A hash of all that fixes the order: two nodes with equal hashes read in the same order.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Fnv1a::default();
        self.hash(&mut hasher);
        hasher.finish()
    }

    pub fn validate(&self) -> Result<(), SpecError> {
        let fields = [
            ("dataset", self.samples),
            ("batch_size", self.batch_size),
            ("epochs", self.epochs),
            ("world.nodes", self.world.nodes),
            ("world.ranks_per_node", self.world.ranks_per_node),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, value)| *value == 0) {
            return Err(SpecError::Zero { field });
        }
        let World { nodes, ranks_per_node } = self.world;
        if nodes.checked_mul(ranks_per_node).is_none() {
            return Err(SpecError::TooManyRanks { nodes, ranks_per_node });
        }
        self.shuffle.validate(self)?;
        self.validate_further()?;
        if self.samples_per_rank() == 0 {
            let ranks = self.world.ranks();
            return Err(SpecError::NothingLeft { samples: self.samples, ranks });
        }
        let Position { epoch, samples } = self.start;
        if epoch.0 >= self.epochs || u64::from(samples) >= self.shuffle.epoch_samples(self.samples)
        {
            return Err(SpecError::StartOutside { start: self.start, epochs: self.epochs });
        }
        // Only a resumed epoch can be too short, so a run with nothing left to read ends in it.
        let (epoch, last) = (self.start.epoch, self.epochs - 1);
        if epoch.0 == last && self.steps_in(epoch) == 0 {
            return Err(SpecError::StartOutside { start: self.start, epochs: self.epochs });
        }
        Ok(())
    }

    /// Samples of the first dataset that each rank reads in a whole epoch; the same for all ranks.
    ///
    /// # Source
    ///
    /// `DistributedSampler.num_samples` of PyTorch.
    #[must_use]
    pub fn samples_per_rank(&self) -> u32 {
        self.dealt_to_each(self.shuffle.epoch_samples(self.samples))
    }

    /// Samples of the first dataset that each rank reads in `epoch`: fewer in the epoch where the job
    /// starts, none before it.
    #[must_use]
    pub fn samples_per_rank_in(&self, epoch: Epoch) -> u32 {
        if epoch < self.start.epoch || epoch.0 >= self.epochs {
            return 0;
        }
        let whole = self.shuffle.epoch_samples(self.samples);
        self.dealt_to_each(whole - u64::from(self.first_place(epoch)))
    }

    /// Batches that each rank reads in a whole epoch in which every dataset is due.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u32 {
        self.samples_per_rank().div_ceil(self.batch_size).saturating_add(self.further_steps())
    }

    /// Batches that each rank reads in `epoch`: fewer in the epoch where the job starts, none
    /// before it.
    #[must_use]
    pub fn steps_in(&self, epoch: Epoch) -> u32 {
        self.first_steps_in(epoch).saturating_add(self.further_steps_in(epoch))
    }

    /// Only those of the first dataset.
    fn first_steps_in(&self, epoch: Epoch) -> u32 {
        self.samples_per_rank_in(epoch).div_ceil(self.batch_size)
    }

    #[must_use]
    pub fn first(&self, rank: Rank) -> BatchId {
        // If the ranks drop the end of the epoch, the first epoch may have nothing left for them.
        let is_over = self.steps_in(self.start.epoch) == 0;
        BatchId { epoch: Epoch(self.start.epoch.0 + u32::from(is_over)), step: Step(0), rank }
    }

    /// The position of the job when every rank has read `steps` batches of `epoch`: another run may start
    /// there, with any world and batch size. Once all batches of the training set are read, that is the
    /// start of the next epoch, even if further datasets have batches left in this one.
    #[must_use]
    pub fn position_after(&self, epoch: Epoch, steps: u32) -> Position {
        if steps >= self.first_steps_in(epoch) {
            return Position { epoch: Epoch(epoch.0 + 1), samples: 0 };
        }
        // Whole steps of all ranks without the last one: fewer samples than the epoch has.
        let samples = self.first_place(epoch) + steps * self.batch_size * self.world.ranks();
        Position { epoch, samples }
    }

    #[must_use]
    pub fn contains(&self, batch: BatchId) -> bool {
        batch.epoch.0 < self.epochs
            && batch.step.0 < self.steps_in(batch.epoch)
            && batch.rank.0 < self.world.ranks()
    }

    /// The batch that the same rank reads next, also across the end of an epoch.
    #[must_use]
    pub fn after(&self, batch: BatchId) -> Option<BatchId> {
        if batch.step.0 + 1 < self.steps_in(batch.epoch) {
            let next = BatchId { step: Step(batch.step.0 + 1), ..batch };
            return self.contains(next).then_some(next);
        }
        self.next_epoch(batch)
    }

    #[must_use]
    pub fn next_epoch(&self, batch: BatchId) -> Option<BatchId> {
        let next = BatchId { epoch: Epoch(batch.epoch.0 + 1), step: Step(0), ..batch };
        self.contains(next).then_some(next)
    }

    /// The number of batches of a rank from `batch` up to `later`, where `None` is the end of the run; 0 if
    /// `later` precedes `batch`.
    #[must_use]
    pub fn batches_between(&self, batch: BatchId, later: Option<BatchId>) -> u64 {
        let position = |it: BatchId| self.batches_before(it.epoch) + u64::from(it.step.0);
        let later = later.map_or_else(|| self.batches_per_rank(), position);
        later.saturating_sub(position(batch))
    }

    /// Batches that each rank reads in the whole run.
    #[must_use]
    pub fn batches_per_rank(&self) -> u64 {
        self.batches_before(Epoch(self.epochs))
    }

    /// `None` if only the trainer knows the order.
    #[must_use]
    pub fn epoch(&self, epoch: Epoch) -> Option<EpochOrder> {
        EpochOrder::of(self, epoch)
    }

    /// `None` if only the trainer knows the order.
    #[must_use]
    pub fn epoch_of(&self, node: NodeId, epoch: Epoch) -> Option<NodeOrder> {
        Some(self.epoch(epoch)?.of_node(node))
    }

    /// Batches that each rank reads before `epoch`.
    fn batches_before(&self, epoch: Epoch) -> u64 {
        let Some(whole) = epoch.0.checked_sub(self.start.epoch.0 + 1) else { return 0 };
        u64::from(self.first_steps_in(self.start.epoch))
            + u64::from(whole) * u64::from(self.samples_per_rank().div_ceil(self.batch_size))
            + self.further_batches_before(epoch)
    }

    fn first_place(&self, epoch: Epoch) -> u32 {
        if epoch == self.start.epoch {
            self.start.samples - self.start.samples % self.shuffle.start_step(self.world)
        } else {
            0
        }
    }

    /// Samples that each rank gets when `samples` are dealt to all ranks.
    fn dealt_to_each(&self, samples: u64) -> u32 {
        let ranks = u64::from(self.world.ranks());
        let each = if self.drop_last { samples / ranks } else { samples.div_ceil(ranks) };
        u32::try_from(each).expect("an epoch is counted in 32 bits")
    }
}

#[cfg(test)]
mod tests;
