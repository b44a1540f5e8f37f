//! Serialises the order of a job inside a briefing: by name, as the core's types have no serde.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tierfeed_core::{
    id::Epoch,
    order::{FurtherDatasets, Position, Shuffle, Spec, World, block, mosaic, tf, torch},
};

#[derive(Serialize, Deserialize)]
#[serde(remote = "Spec", deny_unknown_fields)]
pub(super) struct SpecDef {
    samples: u32,
    #[serde(with = "named")]
    shuffle: Shuffle,
    seed: u64,
    epochs: u32,
    drop_last: bool,
    batch_size: u32,
    #[serde(with = "WorldDef")]
    world: World,
    #[serde(with = "PositionDef")]
    start: Position,
    #[serde(default, with = "further", skip_serializing_if = "FurtherDatasets::is_empty")]
    further: FurtherDatasets,
}

/// What fixes the sequence of every epoch.
#[derive(Serialize)]
struct Sequence {
    samples: u32,
    #[serde(with = "named")]
    shuffle: Shuffle,
    seed: u64,
    drop_last: bool,
}

/// All of an order but how far it goes, where it starts, and how it is divided into batches: as JSON, which is the
/// same in every process and release.
pub(crate) fn sequence(order: &Spec) -> String {
    // Named one by one, so that a new field is thought of here.
    let Spec {
        samples,
        shuffle,
        seed,
        drop_last,
        epochs: _,
        batch_size: _,
        world: _,
        start: _,
        further: _,
    } = *order;
    let sequence = Sequence { samples, shuffle, seed, drop_last };
    serde_json::to_string(&sequence).expect("numbers and names are always JSON")
}

/// The orders of the datasets beside the first.
mod further {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use tierfeed_core::order::{FurtherDataset, FurtherDatasets, Shuffle};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        samples: u32,
        #[serde(with = "super::named")]
        shuffle: Shuffle,
        batch_size: u32,
        every: u32,
    }

    pub(super) fn serialize<S: Serializer>(
        further: &FurtherDatasets,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let entry = |it: &FurtherDataset| {
            let FurtherDataset { samples, shuffle, batch_size, every } = *it;
            Entry { samples, shuffle, batch_size, every }
        };
        further.iter().map(entry).collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<FurtherDatasets, D::Error> {
        let entries = Vec::<Entry>::deserialize(deserializer)?.into_iter();
        let further = entries.map(|Entry { samples, shuffle, batch_size, every }| FurtherDataset {
            samples,
            shuffle,
            batch_size,
            every,
        });
        FurtherDatasets::try_new(&further.collect::<Vec<_>>()).map_err(de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "World", deny_unknown_fields)]
struct WorldDef {
    nodes: u32,
    ranks_per_node: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Position", deny_unknown_fields)]
struct PositionDef {
    #[serde(with = "EpochDef")]
    epoch: Epoch,
    samples: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Epoch")]
struct EpochDef(u32);

type Release = Option<(u16, u16)>;

/// [`Shuffle`] with the names of job files.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Named {
    Sequential,
    TorchDistributed { version: Release },
    TorchRandom { generator: Generator, persistent_workers: bool, version: Release },
    TfShuffle { buffer: u32, global_seed: u64, reshuffle: bool },
    TfIndex { second_seed: Option<u32> },
    Mosaic { algorithm: Algorithm, shard_samples: u32, canonical_nodes: u32, shuffle_block: u32 },
    Grain,
    Block { shard_samples: u32, window: u32 },
    Published,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Generator {
    Default,
    Loader,
    Sampler,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Algorithm {
    Naive,
    Py1s,
    Py2s,
    Py1e,
    Py1br,
}

mod named {
    use super::{Deserialize, Deserializer, Named, Serialize, Serializer, Shuffle};

    pub(super) fn serialize<S: Serializer>(shuffle: &Shuffle, to: S) -> Result<S::Ok, S::Error> {
        Named::from(*shuffle).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Shuffle, D::Error> {
        Named::deserialize(from).map(Shuffle::from)
    }
}

fn release(version: Option<torch::Version>) -> Release {
    version.map(|version| (version.major, version.minor))
}

fn version(release: Release) -> Option<torch::Version> {
    release.map(|(major, minor)| torch::Version { major, minor })
}

impl From<Shuffle> for Named {
    fn from(shuffle: Shuffle) -> Self {
        match shuffle {
            Shuffle::Sequential => Self::Sequential,
            Shuffle::TorchDistributed { version } => {
                Self::TorchDistributed { version: release(version) }
            }
            Shuffle::TorchRandom(it) => Self::TorchRandom {
                generator: match it.generator {
                    torch::Generator::Default => Generator::Default,
                    torch::Generator::Loader => Generator::Loader,
                    torch::Generator::Sampler => Generator::Sampler,
                },
                persistent_workers: it.workers == torch::Workers::Persistent,
                version: release(it.version),
            },
            Shuffle::TfShuffle(tf::Buffered { buffer, global_seed, reshuffle }) => {
                let reshuffle = reshuffle == tf::Reshuffle::EachIteration;
                Self::TfShuffle { buffer, global_seed, reshuffle }
            }
            Shuffle::TfIndex(index) => Self::TfIndex {
                second_seed: match index.second {
                    tf::SecondSeed::Epoch => None,
                    tf::SecondSeed::Fixed(seed) => Some(seed),
                },
            },
            Shuffle::Mosaic(it) => Self::Mosaic {
                algorithm: match it.algorithm {
                    mosaic::Algorithm::Naive => Algorithm::Naive,
                    mosaic::Algorithm::Py1s => Algorithm::Py1s,
                    mosaic::Algorithm::Py2s => Algorithm::Py2s,
                    mosaic::Algorithm::Py1e => Algorithm::Py1e,
                    mosaic::Algorithm::Py1br => Algorithm::Py1br,
                },
                shard_samples: it.shard,
                canonical_nodes: it.canonical_nodes,
                shuffle_block: it.block,
            },
            Shuffle::Grain => Self::Grain,
            Shuffle::Block(block::Block { shard, window }) => {
                Self::Block { shard_samples: shard, window }
            }
            Shuffle::Published => Self::Published,
        }
    }
}

impl From<Named> for Shuffle {
    fn from(named: Named) -> Self {
        match named {
            Named::Sequential => Self::Sequential,
            Named::TorchDistributed { version: release } => {
                Self::TorchDistributed { version: version(release) }
            }
            Named::TorchRandom { generator, persistent_workers, version: release } => {
                Self::TorchRandom(torch::Random {
                    generator: match generator {
                        Generator::Default => torch::Generator::Default,
                        Generator::Loader => torch::Generator::Loader,
                        Generator::Sampler => torch::Generator::Sampler,
                    },
                    workers: if persistent_workers {
                        torch::Workers::Persistent
                    } else {
                        torch::Workers::PerEpoch
                    },
                    version: version(release),
                })
            }
            Named::TfShuffle { buffer, global_seed, reshuffle } => {
                let reshuffle =
                    if reshuffle { tf::Reshuffle::EachIteration } else { tf::Reshuffle::Never };
                Self::TfShuffle(tf::Buffered { buffer, global_seed, reshuffle })
            }
            Named::TfIndex { second_seed } => Self::TfIndex(tf::Index {
                second: second_seed.map_or(tf::SecondSeed::Epoch, tf::SecondSeed::Fixed),
            }),
            Named::Mosaic { algorithm, shard_samples, canonical_nodes, shuffle_block } => {
                Self::Mosaic(mosaic::Mosaic {
                    algorithm: match algorithm {
                        Algorithm::Naive => mosaic::Algorithm::Naive,
                        Algorithm::Py1s => mosaic::Algorithm::Py1s,
                        Algorithm::Py2s => mosaic::Algorithm::Py2s,
                        Algorithm::Py1e => mosaic::Algorithm::Py1e,
                        Algorithm::Py1br => mosaic::Algorithm::Py1br,
                    },
                    shard: shard_samples,
                    canonical_nodes,
                    block: shuffle_block,
                })
            }
            Named::Grain => Self::Grain,
            Named::Block { shard_samples, window } => {
                Self::Block(block::Block { shard: shard_samples, window })
            }
            Named::Published => Self::Published,
        }
    }
}
