//! Checks the order: each shuffle has its own keys and refuses those of others.

use tierfeed_core::{
    id::Epoch,
    order::{
        Position, Shuffle, World,
        block::Block,
        mosaic::{Algorithm, Mosaic},
        tf, torch,
    },
};

use super::Check;
use crate::{
    job::{JobError, KeyConflict, file::OrderFile},
    yaml::scalar::Whole,
};

/// The default of `epochs`: more than a training reads.
const EPOCHS: u32 = 1_000;

/// The defaults of `StreamingDataset` for `shuffle_seed`, `num_canonical_nodes` and `shuffle_block_size`.
///
/// # Source
///
/// `streaming/base/dataset.py` of version 0.13.
const STREAMING_SEED: u64 = 9_176;
const STREAMING_CANONICAL_NODES: u32 = 64;
const STREAMING_BLOCK_TOTAL: u32 = 4_000_000;
const STREAMING_BLOCK_MIN: u32 = 1 << 18;

pub(super) struct Order {
    pub(super) shuffle: Shuffle,
    pub(super) seed: u64,
    pub(super) epochs: u32,
    pub(super) drop_last: bool,
    pub(super) start: Position,
}

impl Check<'_> {
    pub(super) fn order(&self, order: &OrderFile, world: World) -> Result<Order, JobError> {
        self.refuse_foreign_keys(order)?;
        let shuffle = self.shuffle(order, world)?;
        let epochs = order.epochs.map_or(EPOCHS, |it| it.0);
        Ok(Order {
            shuffle,
            seed: self.seed(order, shuffle)?,
            epochs,
            drop_last: order.drop_last.unwrap_or(false),
            start: self.start(order, epochs)?,
        })
    }

    fn shuffle(&self, order: &OrderFile, world: World) -> Result<Shuffle, JobError> {
        let version = order.version.map(|it| it.0);
        Ok(match order.shuffle.0.0 {
            "sequential" => Shuffle::Sequential,
            "torch-distributed" => Shuffle::TorchDistributed { version },
            "torch-random" => Shuffle::TorchRandom(torch::Random {
                generator: order.generator.map_or(torch::Generator::Default, |it| it.0),
                workers: match order.persistent_workers {
                    Some(true) => torch::Workers::Persistent,
                    _ => torch::Workers::PerEpoch,
                },
                version,
            }),
            "tf-shuffle" => Shuffle::TfShuffle(tf::Buffered {
                buffer: self.needed(order, "buffer", order.buffer)?.0,
                global_seed: order.global_seed.map_or(tf::DEFAULT_GRAPH_SEED, |seed| seed.0),
                reshuffle: match order.reshuffle {
                    Some(false) => tf::Reshuffle::Never,
                    _ => tf::Reshuffle::EachIteration,
                },
            }),
            "tf-index" => {
                let second = match order.second_seed {
                    None => tf::SecondSeed::Epoch,
                    Some(seed) => tf::SecondSeed::Fixed(seed.0),
                };
                Shuffle::TfIndex(tf::Index { second })
            }
            "mosaic" => Shuffle::Mosaic(self.mosaic(order, world)?),
            "grain" => Shuffle::Grain,
            "block" => Shuffle::Block(Block {
                shard: self.needed(order, "shard_samples", order.shard_samples)?.0,
                window: self.needed(order, "window", order.window)?.0,
            }),
            _ => Shuffle::Published,
        })
    }

    /// The order of Streaming, with its defaults.
    fn mosaic(&self, order: &OrderFile, world: World) -> Result<Mosaic, JobError> {
        let algorithm = order.algorithm.map_or(Algorithm::Py1e, |it| it.0);
        let canonical_nodes = match (order.canonical_nodes, algorithm) {
            (Some(count), _) => count.0,
            (None, Algorithm::Py1s | Algorithm::Py2s) => STREAMING_CANONICAL_NODES * world.nodes,
            (None, _) => world.nodes,
        };
        let block = match order.shuffle_block {
            Some(size) => size.0,
            None => (STREAMING_BLOCK_TOTAL / canonical_nodes).max(STREAMING_BLOCK_MIN),
        };
        let shard = self.needed(order, "shard_samples", order.shard_samples)?.0;
        Ok(Mosaic { algorithm, shard, canonical_nodes, block })
    }

    fn seed(&self, order: &OrderFile, shuffle: Shuffle) -> Result<u64, JobError> {
        match (shuffle, order.seed) {
            (Shuffle::TorchRandom(_) | Shuffle::TfShuffle(_), seed) => {
                Ok(self.needed(order, "seed", seed)?.0)
            }
            (Shuffle::TfIndex(_) | Shuffle::Grain, seed) => {
                // The framework uses 32 bits of it.
                let seed = self.needed(order, "seed", seed)?;
                Ok(self.whole(&["order", "seed"], seed, 0..=u32::MAX)?.into())
            }
            (Shuffle::Mosaic(_), None) => Ok(STREAMING_SEED),
            (_, seed) => Ok(seed.map_or(0, |seed| seed.0)),
        }
    }

    fn start(&self, order: &OrderFile, epochs: u32) -> Result<Position, JobError> {
        let Some(start) = &order.start else { return Ok(Position::START) };
        let epoch = start.epoch.unwrap_or(Whole(0));
        let epoch = self.whole(&["order", "start", "epoch"], epoch, 0..=epochs - 1)?;
        Ok(Position { epoch: Epoch(epoch), samples: start.samples.map_or(0, |it| it.0) })
    }

    fn needed<T>(
        &self,
        order: &OrderFile,
        key: &'static str,
        value: Option<T>,
    ) -> Result<T, JobError> {
        let what = match key {
            "seed" => "what the framework is given as seed",
            "buffer" => "the `buffer_size` of `Dataset.shuffle`",
            "window" => "how many samples are mixed",
            _ => "how many samples lie together",
        };
        let conflict = KeyConflict::NeededByShuffle { shuffle: order.shuffle.0.0, key, what };
        value.ok_or_else(|| self.conflict(&["order"], conflict))
    }

    /// Refuses a key that the shuffle does not use, because its author expects an effect.
    fn refuse_foreign_keys(&self, order: &OrderFile) -> Result<(), JobError> {
        let shuffle = order.shuffle.0.0;
        let is_foreign = |shuffles: &str| shuffles.split(", ").all(|owner| owner != shuffle);
        let keys = [
            ("version", order.version.is_some(), "torch-distributed, torch-random"),
            ("generator", order.generator.is_some(), "torch-random"),
            ("persistent_workers", order.persistent_workers.is_some(), "torch-random"),
            ("buffer", order.buffer.is_some(), "tf-shuffle"),
            ("global_seed", order.global_seed.is_some(), "tf-shuffle"),
            ("reshuffle", order.reshuffle.is_some(), "tf-shuffle"),
            ("second_seed", order.second_seed.is_some(), "tf-index"),
            ("algorithm", order.algorithm.is_some(), "mosaic"),
            ("canonical_nodes", order.canonical_nodes.is_some(), "mosaic"),
            ("shuffle_block", order.shuffle_block.is_some(), "mosaic"),
            ("shard_samples", order.shard_samples.is_some(), "mosaic, block"),
            ("window", order.window.is_some(), "block"),
        ];
        let foreign =
            keys.into_iter().find(|(_, is_there, owners)| *is_there && is_foreign(owners));
        match foreign {
            Some((key, _, shuffles)) => {
                Err(self.conflict(&["order", key], KeyConflict::OfOtherShuffle { shuffles }))
            }
            None => Ok(()),
        }
    }
}
