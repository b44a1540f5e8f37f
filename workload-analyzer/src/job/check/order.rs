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

use super::{Check, EPOCHS_MAX};
use crate::{
    job::{JobError, KeyConflict, Reason},
    job_file::{OrderFile, Text, Whole},
};

/// The default of `epochs`: more than a training reads.
const EPOCHS: u32 = 1_000;

const SHUFFLES: [&str; 9] = [
    "sequential",
    "torch-distributed",
    "torch-random",
    "tf-shuffle",
    "tf-index",
    "mosaic",
    "grain",
    "block",
    "published",
];
const SHUFFLES_IN_WORDS: &str = "sequential, torch-distributed, torch-random, tf-shuffle, tf-index, \
                                 mosaic, grain, block, published";

/// The defaults of `StreamingDataset` for `shuffle_seed`, `num_canonical_nodes` and `shuffle_block_size`.
///
/// # Source
///
/// `streaming/base/dataset.py` of version 0.13.
const STREAMING_SEED: u64 = 9_176;
const STREAMING_CANONICAL_NODES: u32 = 64;
const STREAMING_BLOCK_TOTAL: u32 = 4_000_000;
const STREAMING_BLOCK_MIN: u32 = 1 << 18;
const STREAMING_BLOCK_MAX: u32 = 1 << 31;

pub(super) struct Order {
    pub(super) shuffle: Shuffle,
    pub(super) seed: u64,
    pub(super) epochs: u32,
    pub(super) drop_last: bool,
    pub(super) start: Position,
}

impl Check<'_> {
    pub(super) fn order(&self, order: &OrderFile, world: World) -> Result<Order, JobError> {
        if !SHUFFLES.contains(&order.shuffle.0.as_str()) {
            let reason = Reason::NotOneOf { allowed: SHUFFLES_IN_WORDS };
            return Err(self.invalid(&["order", "shuffle"], &order.shuffle.0, reason));
        }
        self.refuse_foreign_keys(order)?;
        let shuffle = self.shuffle(order, world)?;
        let epochs = match order.epochs {
            Some(typed) => self.whole(&["order", "epochs"], typed, 1..=EPOCHS_MAX)?,
            None => EPOCHS,
        };
        Ok(Order {
            shuffle,
            seed: self.seed(order, shuffle)?,
            epochs,
            drop_last: order.drop_last.unwrap_or(false),
            start: self.start(order, epochs)?,
        })
    }

    fn shuffle(&self, order: &OrderFile, world: World) -> Result<Shuffle, JobError> {
        let whole = |key, typed| self.whole(&["order", key], typed, 1..=u32::MAX);
        Ok(match order.shuffle.0.as_str() {
            "sequential" => Shuffle::Sequential,
            "torch-distributed" => Shuffle::TorchDistributed { version: self.version(order)? },
            "torch-random" => Shuffle::TorchRandom(torch::Random {
                generator: self.generator(order.generator.as_ref())?,
                workers: match order.persistent_workers {
                    Some(true) => torch::Workers::Persistent,
                    _ => torch::Workers::PerEpoch,
                },
                version: self.version(order)?,
            }),
            "tf-shuffle" => {
                let buffer = self.needed(order, "buffer", order.buffer)?;
                Shuffle::TfShuffle(tf::Buffered {
                    buffer: whole("buffer", buffer)?,
                    global_seed: order.global_seed.map_or(tf::DEFAULT_GRAPH_SEED, |seed| seed.0),
                    reshuffle: match order.reshuffle {
                        Some(false) => tf::Reshuffle::Never,
                        _ => tf::Reshuffle::EachIteration,
                    },
                })
            }
            "tf-index" => {
                let second = match order.second_seed {
                    None => tf::SecondSeed::Epoch,
                    Some(seed) => tf::SecondSeed::Fixed(self.narrow_seed("second_seed", seed)?),
                };
                Shuffle::TfIndex(tf::Index { second })
            }
            "mosaic" => Shuffle::Mosaic(self.mosaic(order, world)?),
            "grain" => Shuffle::Grain,
            "block" => {
                let shard = self.needed(order, "shard_samples", order.shard_samples)?;
                let window = self.needed(order, "window", order.window)?;
                let (shard, window) = (whole("shard_samples", shard)?, whole("window", window)?);
                Shuffle::Block(Block { shard, window })
            }
            _ => Shuffle::Published,
        })
    }

    /// The order of Streaming, with its defaults.
    fn mosaic(&self, order: &OrderFile, world: World) -> Result<Mosaic, JobError> {
        let algorithm = match &order.algorithm {
            None => Algorithm::Py1e,
            Some(typed) => {
                let (keys, names) = (["order", "algorithm"], "naive, py1s, py2s, py1e, py1br");
                self.one_of(&keys, typed, &Algorithm::ALL, Algorithm::name, names)?
            }
        };
        let shard = self.needed(order, "shard_samples", order.shard_samples)?;
        let canonical_nodes = match (order.canonical_nodes, algorithm) {
            (Some(count), _) => self.whole(&["order", "canonical_nodes"], count, 1..=u32::MAX)?,
            (None, Algorithm::Py1s | Algorithm::Py2s) => STREAMING_CANONICAL_NODES * world.nodes,
            (None, _) => world.nodes,
        };
        let block = match order.shuffle_block {
            Some(size) => self.whole(&["order", "shuffle_block"], size, 2..=STREAMING_BLOCK_MAX)?,
            None => (STREAMING_BLOCK_TOTAL / canonical_nodes).max(STREAMING_BLOCK_MIN),
        };
        let shard = self.whole(&["order", "shard_samples"], shard, 1..=u32::MAX)?;
        Ok(Mosaic { algorithm, shard, canonical_nodes, block })
    }

    fn seed(&self, order: &OrderFile, shuffle: Shuffle) -> Result<u64, JobError> {
        match (shuffle, order.seed) {
            (Shuffle::TorchRandom(_) | Shuffle::TfShuffle(_), seed) => {
                Ok(self.needed(order, "seed", seed)?.0)
            }
            (Shuffle::TfIndex(_) | Shuffle::Grain, seed) => {
                Ok(self.narrow_seed("seed", self.needed(order, "seed", seed)?)?.into())
            }
            (Shuffle::Mosaic(_), None) => Ok(STREAMING_SEED),
            (_, seed) => Ok(seed.map_or(0, |seed| seed.0)),
        }
    }

    /// A seed of which the framework uses 32 bits.
    fn narrow_seed(&self, key: &str, seed: Whole) -> Result<u32, JobError> {
        self.whole(&["order", key], seed, 0..=u32::MAX)
    }

    fn version(&self, order: &OrderFile) -> Result<Option<torch::Version>, JobError> {
        let Some(typed) = &order.version else { return Ok(None) };
        let invalid = |_| self.invalid(&["order", "version"], &typed.0, Reason::NotATorchVersion);
        typed.0.parse().map(Some).map_err(invalid)
    }

    fn generator(&self, typed: Option<&Text>) -> Result<torch::Generator, JobError> {
        let Some(typed) = typed else { return Ok(torch::Generator::Default) };
        let (keys, names) = (["order", "generator"], "default, loader, sampler");
        self.one_of(&keys, typed, &torch::Generator::ALL, torch::Generator::name, names)
    }

    fn start(&self, order: &OrderFile, epochs: u32) -> Result<Position, JobError> {
        let Some(start) = &order.start else { return Ok(Position::START) };
        let whole = |key, typed: Option<Whole>, allowed| {
            typed.map_or(Ok(0), |typed| self.whole(&["order", "start", key], typed, allowed))
        };
        let epoch = whole("epoch", start.epoch, 0..=epochs - 1)?;
        let samples = whole("samples", start.samples, 0..=u32::MAX)?;
        Ok(Position { epoch: Epoch(epoch), samples })
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
        let shuffle = SHUFFLES.into_iter().find(|known| *known == order.shuffle.0);
        let shuffle = shuffle.expect("only a known shuffle needs a key");
        let conflict = KeyConflict::NeededByShuffle { shuffle, key, what };
        value.ok_or_else(|| self.conflict(&["order"], conflict))
    }

    /// Refuses a key that the shuffle does not use, because its author expects an effect.
    fn refuse_foreign_keys(&self, order: &OrderFile) -> Result<(), JobError> {
        let shuffle = order.shuffle.0.as_str();
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
