//! The orders that tierfeed knows, by name.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{
    Spec, SpecError, World, block::Block, index_shuffle::IndexShuffle, mosaic::Mosaic, tf, torch,
};
use crate::id::Epoch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shuffle {
    Sequential,
    /// `torch.utils.data.DistributedSampler` with `shuffle=True` after `set_epoch(epoch)`.
    TorchDistributed {
        /// `None` where it makes no difference: below [`torch::WIDE_SAMPLES`].
        version: Option<torch::Version>,
    },
    /// PyTorch's `DataLoader(shuffle=True)` in a single process.
    TorchRandom(torch::Random),
    /// The buffered shuffle, `tf.data.Dataset.shuffle`.
    TfShuffle(tf::Buffered),
    /// Random access by `tf.random.experimental.index_shuffle`.
    TfIndex(tf::Index),
    /// `StreamingDataset(shuffle=True)` of MosaicML Streaming.
    Mosaic(Mosaic),
    /// Global shuffle by `grain.MapDataset.shuffle(seed)`.
    Grain,
    /// Shards in a random order, and their samples mixed within a window.
    Block(Block),
    /// The order that the trainer's own sampler publishes before each epoch.
    Published,
}

impl Shuffle {
    /// `DistributedSampler` on a dataset for which all releases have the same order.
    pub const TORCH_DISTRIBUTED: Self = Self::TorchDistributed { version: None };

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::TorchDistributed { .. } => "torch-distributed",
            Self::TorchRandom(_) => "torch-random",
            Self::TfShuffle(_) => "tf-shuffle",
            Self::TfIndex(_) => "tf-index",
            Self::Mosaic(_) => "mosaic",
            Self::Grain => "grain",
            Self::Block(_) => "block",
            Self::Published => "published",
        }
    }

    pub(super) fn validate(self, spec: &Spec) -> Result<(), SpecError> {
        let fields = match self {
            Self::TfShuffle(buffered) => [("order.buffer", buffered.buffer), ("", 1)],
            Self::Mosaic(it) => {
                [("order.shard_samples", it.shard), ("order.canonical_nodes", it.canonical_nodes)]
            }
            Self::Block(it) => [("order.shard_samples", it.shard), ("order.window", it.window)],
            _ => [("", 1); 2],
        };
        if let Some((field, _)) = fields.into_iter().find(|(_, value)| *value == 0) {
            return Err(SpecError::Zero { field });
        }
        match self {
            Self::TorchDistributed { version } => torch::validate_version(spec.samples, version),
            Self::TorchRandom(random) => random.validate(spec),
            Self::Mosaic(mosaic) => mosaic.validate(spec),
            _ => Ok(()),
        }
    }

    /// Samples that all ranks read in an epoch, before its end is padded or truncated.
    pub(super) fn epoch_samples(self, samples: u32) -> u64 {
        match self {
            Self::Mosaic(mosaic) => mosaic.len(samples),
            _ => u64::from(samples),
        }
    }

    /// A job can start at multiples of this count. Streaming resumes where every node has read
    /// equally many samples, and reads up to one sample per node again for that.
    pub(super) fn start_step(self, world: World) -> u32 {
        match self {
            Self::Mosaic(_) => world.nodes,
            _ => 1,
        }
    }

    /// The sequence of an epoch over all ranks, with room for `spare` more samples; `None` if only the
    /// trainer knows it.
    pub(super) fn sequence(self, spec: &Spec, epoch: Epoch, spare: usize) -> Option<Vec<u32>> {
        let Spec { samples, seed, .. } = *spec;
        let collected = |shuffle: IndexShuffle| {
            let place = |at| u32::try_from(shuffle.of(at)).expect("at most the last sample");
            fill(samples, spare, (0..u64::from(samples)).map(place))
        };
        let shuffled = |shuffle: &mut dyn FnMut(&mut [u32])| {
            let mut items = fill(samples, spare, 0..samples);
            shuffle(&mut items);
            items
        };
        Some(match self {
            Self::Sequential => fill(samples, spare, 0..samples),
            Self::TorchDistributed { version } => shuffled(&mut |items| {
                torch::shuffle_distributed(items, seed.wrapping_add(u64::from(epoch.0)), version);
            }),
            Self::TorchRandom(it) => shuffled(&mut |items| it.shuffle(items, seed, epoch.0)),
            Self::TfShuffle(it) => shuffled(&mut |items| it.shuffle(items, seed, epoch.0)),
            Self::TfIndex(index) => collected(index.shuffle(samples, seed, epoch.0)),
            Self::Grain => collected(IndexShuffle::of_grain(samples, seed, epoch.0)),
            Self::Mosaic(mosaic) => mosaic.order(samples, seed, epoch.0, spare),
            Self::Block(block) => block.order(samples, seed, epoch.0, spare),
            Self::Published => return None,
        })
    }
}

fn fill(samples: u32, spare: usize, sequence: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut items = Vec::with_capacity(samples as usize + spare);
    items.extend(sequence);
    items
}
