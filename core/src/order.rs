//! Which sample each rank reads at each step of each epoch.
//!
//! A pure function of dataset size, seed, epoch and world, equal bit for bit to the framework's own
//! sampler; or, for [`Shuffle::Published`], what the trainer handed over.

mod mt19937;
mod torch;

use alloc::{vec, vec::Vec};

use crate::id::{BatchId, Epoch, NodeId, Rank, SampleId, Step};

/// How the dataset is permuted for an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shuffle {
    /// Dataset order, dealt to the ranks in turn.
    Sequential,
    /// `torch.utils.data.DistributedSampler` with `shuffle=True` after `set_epoch(epoch)`.
    TorchDistributed,
    /// The trainer's own sampler, handed over before each epoch.
    Published,
}

impl Shuffle {
    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::TorchDistributed => "torch-distributed",
            Self::Published => "published",
        }
    }
}

/// The processes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    /// Hosts.
    pub nodes: u32,
    /// Training processes on each host.
    pub ranks_per_node: u32,
}

impl World {
    /// Training processes of the whole job.
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

/// Everything that fixes the order of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Samples in the dataset.
    pub samples: u32,
    /// How an epoch is permuted.
    pub shuffle: Shuffle,
    /// The seed of the permutation.
    pub seed: u64,
    /// Passes over the dataset.
    pub epochs: u32,
    /// The sampler's `drop_last`: truncate to a multiple of the world instead of padding to one.
    pub drop_last: bool,
    /// Samples per rank and step. The last batch of an epoch may be shorter.
    pub batch_size: u32,
    /// The processes that share an epoch.
    pub world: World,
}

/// Why a [`Spec`] describes no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A dataset, batch, world or run of size zero.
    #[error("{field} is 0; it must be at least 1")]
    Zero {
        /// The field that is zero.
        field: &'static str,
    },
    /// The 32-bit algorithm of `torch.randperm` ends here.
    #[error("{samples} samples; torch-distributed is exact up to {max}")]
    TooManySamples {
        /// As given.
        samples: u32,
        /// The largest dataset whose order is known.
        max: u32,
    },
    /// `drop_last` leaves nothing: fewer samples than ranks.
    #[error("{samples} samples for {ranks} ranks: drop_last leaves none")]
    NothingLeft {
        /// As given.
        samples: u32,
        /// Processes in the world.
        ranks: u32,
    },
}

impl Spec {
    /// Checks that the order exists.
    ///
    /// # Errors
    ///
    /// As [`SpecError`] tells.
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
        let max = torch::SAMPLES_MAX;
        if self.shuffle == Shuffle::TorchDistributed && self.samples > max {
            return Err(SpecError::TooManySamples { samples: self.samples, max });
        }
        if self.samples_per_rank() == 0 {
            let ranks = self.world.ranks();
            return Err(SpecError::NothingLeft { samples: self.samples, ranks });
        }
        Ok(())
    }

    /// Samples that each rank reads in an epoch; the same for all ranks.
    ///
    /// # Source
    ///
    /// `DistributedSampler.num_samples` of PyTorch.
    #[must_use]
    pub fn samples_per_rank(&self) -> u32 {
        if self.drop_last {
            self.samples / self.world.ranks()
        } else {
            self.samples.div_ceil(self.world.ranks())
        }
    }

    /// Batches that each rank reads in an epoch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u32 {
        self.samples_per_rank().div_ceil(self.batch_size)
    }

    /// Whether `batch` exists in this order.
    #[must_use]
    pub fn contains(&self, batch: BatchId) -> bool {
        batch.epoch.0 < self.epochs
            && batch.step.0 < self.steps_per_epoch()
            && batch.rank.0 < self.world.ranks()
    }

    /// The batch that the same rank reads next, over the end of an epoch too.
    #[must_use]
    pub fn after(&self, batch: BatchId) -> Option<BatchId> {
        let next = if batch.step.0 + 1 < self.steps_per_epoch() {
            BatchId { step: Step(batch.step.0 + 1), ..batch }
        } else {
            BatchId { epoch: Epoch(batch.epoch.0 + 1), step: Step(0), ..batch }
        };
        self.contains(next).then_some(next)
    }

    /// The first batch of the same rank in the epoch after that of `batch`.
    #[must_use]
    pub fn next_epoch(&self, batch: BatchId) -> Option<BatchId> {
        let next = BatchId { epoch: Epoch(batch.epoch.0 + 1), step: Step(0), ..batch };
        self.contains(next).then_some(next)
    }

    /// How many batches of a rank lie from `batch` up to `later`, where `None` is the end of the run;
    /// 0 if `later` comes first.
    #[must_use]
    pub fn batches_between(&self, batch: BatchId, later: Option<BatchId>) -> u64 {
        let steps = u64::from(self.steps_per_epoch());
        let position = |it: BatchId| u64::from(it.epoch.0) * steps + u64::from(it.step.0);
        let later = later.map_or(u64::from(self.epochs) * steps, position);
        later.saturating_sub(position(batch))
    }

    /// The permutation of one epoch, or `None` if only the trainer knows it.
    #[must_use]
    pub fn epoch(&self, epoch: Epoch) -> Option<EpochOrder> {
        let permutation = match self.shuffle {
            Shuffle::Sequential => (0..self.samples).collect(),
            Shuffle::TorchDistributed => {
                torch::randperm(self.samples, self.seed.wrapping_add(u64::from(epoch.0)))
            }
            Shuffle::Published => return None,
        };
        Some(EpochOrder { permutation, spec: *self })
    }
}

/// One epoch of a computed order: 4 bytes a sample, shared by all ranks.
#[derive(Debug, Clone)]
pub struct EpochOrder {
    permutation: Vec<u32>,
    spec: Spec,
}

impl EpochOrder {
    /// The samples of one batch, in the order in which the rank reads them.
    ///
    /// # Source
    ///
    /// PyTorch's `DistributedSampler.__iter__`: the permutation, padded by repeating itself or
    /// truncated, of which rank `r` of `w` reads every `w`-th from `r`.
    pub fn batch(&self, rank: Rank, step: Step) -> impl Iterator<Item = SampleId> + '_ {
        let per_rank = self.spec.samples_per_rank();
        let first = step.0 * self.spec.batch_size;
        let last = first.saturating_add(self.spec.batch_size).min(per_rank);
        (first..last).map(move |position| SampleId(self.at(rank, position)))
    }

    /// For each sample, the step at which a rank of `node` reads it, or `None` if none does.
    ///
    /// A sample that padding repeats is listed at its first use.
    #[must_use]
    pub fn steps(&self, node: NodeId) -> Vec<Option<Step>> {
        let ranks = self.spec.world.ranks();
        let used = u64::from(self.spec.samples_per_rank()) * u64::from(ranks);
        let mut steps = vec![None; self.permutation.len()];
        for (place, sample) in (0_u32..).zip(&self.permutation) {
            let is_here = place % ranks / self.spec.world.ranks_per_node == node.0;
            if is_here && u64::from(place) < used {
                steps[*sample as usize] = Some(Step(place / ranks / self.spec.batch_size));
            }
        }
        steps
    }

    fn at(&self, rank: Rank, position: u32) -> u32 {
        let place = u64::from(position) * u64::from(self.spec.world.ranks()) + u64::from(rank.0);
        let len = self.permutation.len() as u64;
        let index = usize::try_from(place % len).expect("an index below a length fits");
        self.permutation[index]
    }
}

#[cfg(test)]
mod tests;
