//! Converts the order of a job to and from messages.

use tierfeed_core::{
    id::Epoch,
    order::{
        FurtherDataset, FurtherDatasets, Position, Shuffle, Spec, World, block::Block, mosaic, tf,
        torch,
    },
};

use super::{WireError, pb};

impl From<&Spec> for pb::Order {
    fn from(order: &Spec) -> Self {
        let mut message = Self {
            samples: order.samples,
            shuffle: order.shuffle.name().to_owned(),
            seed: order.seed,
            epochs: order.epochs,
            drop_last: order.drop_last,
            batch_size: order.batch_size,
            nodes: order.world.nodes,
            ranks_per_node: order.world.ranks_per_node,
            start_epoch: order.start.epoch.0,
            start_samples: order.start.samples,
            further: order.further.iter().map(further).collect(),
            ..Self::default()
        };
        match order.shuffle {
            Shuffle::TorchDistributed { version } => message.torch_release = release(version),
            Shuffle::TorchRandom(random) => {
                message.torch_release = release(random.version);
                message.torch_random = Some(pb::TorchRandom {
                    generator: random.generator.name().to_owned(),
                    persistent_workers: random.workers == torch::Workers::Persistent,
                });
            }
            Shuffle::TfShuffle(buffered) => {
                message.tf_shuffle = Some(pb::TfShuffle {
                    buffer: buffered.buffer,
                    global_seed: buffered.global_seed,
                    reshuffle: buffered.reshuffle == tf::Reshuffle::EachIteration,
                });
            }
            Shuffle::TfIndex(tf::Index { second: tf::SecondSeed::Fixed(seed) }) => {
                message.second_seed = Some(seed);
            }
            Shuffle::Mosaic(mosaic) => {
                message.mosaic = Some(pb::Mosaic {
                    algorithm: mosaic.algorithm.name().to_owned(),
                    shard_samples: mosaic.shard,
                    canonical_nodes: mosaic.canonical_nodes,
                    shuffle_block: mosaic.block,
                });
            }
            Shuffle::Block(Block { shard, window }) => {
                message.block = Some(pb::Block { shard_samples: shard, window });
            }
            Shuffle::TfIndex(_) | Shuffle::Grain | Shuffle::Sequential | Shuffle::Published => {}
        }
        message
    }
}

impl TryFrom<pb::Order> for Spec {
    type Error = WireError;

    fn try_from(order: pb::Order) -> Result<Self, WireError> {
        let order = Self {
            samples: order.samples,
            shuffle: shuffle(&order)?,
            seed: order.seed,
            epochs: order.epochs,
            drop_last: order.drop_last,
            batch_size: order.batch_size,
            world: World { nodes: order.nodes, ranks_per_node: order.ranks_per_node },
            start: Position { epoch: Epoch(order.start_epoch), samples: order.start_samples },
            further: further_datasets(&order.further)?,
        };
        // The core asserts that an order is valid.
        order.validate().map_err(WireError::Order)?;
        Ok(order)
    }
}

fn shuffle(order: &pb::Order) -> Result<Shuffle, WireError> {
    let missing = |field| WireError::Missing { field };
    Ok(match order.shuffle.as_str() {
        "sequential" => Shuffle::Sequential,
        "torch-distributed" => Shuffle::TorchDistributed { version: version(order.torch_release)? },
        "torch-random" => {
            let random = order.torch_random.as_ref().ok_or(missing("order.torch_random"))?;
            let generators = torch::Generator::ALL;
            let generator = generators.into_iter().find(|it| it.name() == random.generator);
            let workers = if random.persistent_workers {
                torch::Workers::Persistent
            } else {
                torch::Workers::PerEpoch
            };
            Shuffle::TorchRandom(torch::Random {
                generator: generator
                    .ok_or_else(|| unknown("order.torch_random.generator", &random.generator))?,
                workers,
                version: version(order.torch_release)?,
            })
        }
        "tf-shuffle" => {
            let buffered = order.tf_shuffle.ok_or(missing("order.tf_shuffle"))?;
            let reshuffle = if buffered.reshuffle {
                tf::Reshuffle::EachIteration
            } else {
                tf::Reshuffle::Never
            };
            let pb::TfShuffle { buffer, global_seed, .. } = buffered;
            Shuffle::TfShuffle(tf::Buffered { buffer, global_seed, reshuffle })
        }
        "tf-index" => Shuffle::TfIndex(tf::Index {
            second: order.second_seed.map_or(tf::SecondSeed::Epoch, tf::SecondSeed::Fixed),
        }),
        "mosaic" => {
            let mosaic = order.mosaic.as_ref().ok_or(missing("order.mosaic"))?;
            let algorithms = mosaic::Algorithm::ALL;
            let algorithm = algorithms.into_iter().find(|it| it.name() == mosaic.algorithm);
            Shuffle::Mosaic(mosaic::Mosaic {
                algorithm: algorithm
                    .ok_or_else(|| unknown("order.mosaic.algorithm", &mosaic.algorithm))?,
                shard: mosaic.shard_samples,
                canonical_nodes: mosaic.canonical_nodes,
                block: mosaic.shuffle_block,
            })
        }
        "grain" => Shuffle::Grain,
        "block" => {
            let block = order.block.ok_or(missing("order.block"))?;
            Shuffle::Block(Block { shard: block.shard_samples, window: block.window })
        }
        "published" => Shuffle::Published,
        other => return Err(unknown("order.shuffle", other)),
    })
}

fn further(dataset: &FurtherDataset) -> pb::FurtherDataset {
    let FurtherDataset { samples, shuffle, batch_size, every } = *dataset;
    let torch_release = match shuffle {
        Shuffle::TorchDistributed { version } => release(version),
        _ => None,
    };
    let shuffle = shuffle.name().to_owned();
    pb::FurtherDataset { samples, shuffle, torch_release, batch_size, every }
}

fn further_datasets(datasets: &[pb::FurtherDataset]) -> Result<FurtherDatasets, WireError> {
    let dataset = |it: &pb::FurtherDataset| {
        let shuffle = match it.shuffle.as_str() {
            "sequential" => Shuffle::Sequential,
            "torch-distributed" => {
                Shuffle::TorchDistributed { version: version(it.torch_release)? }
            }
            other => return Err(unknown("order.further.shuffle", other)),
        };
        let pb::FurtherDataset { samples, batch_size, every, .. } = *it;
        Ok(FurtherDataset { samples, shuffle, batch_size, every })
    };
    let datasets: Vec<_> = datasets.iter().map(dataset).collect::<Result<_, _>>()?;
    FurtherDatasets::try_new(&datasets).map_err(WireError::Order)
}

fn release(version: Option<torch::Version>) -> Option<pb::TorchRelease> {
    version.map(|it| pb::TorchRelease { major: it.major.into(), minor: it.minor.into() })
}

fn version(release: Option<pb::TorchRelease>) -> Result<Option<torch::Version>, WireError> {
    let Some(release) = release else { return Ok(None) };
    let part = |number: u32| {
        let value = || format!("{}.{}", release.major, release.minor);
        let field = "order.torch_release";
        u16::try_from(number).map_err(|_| WireError::Unknown { field, value: value() })
    };
    Ok(Some(torch::Version { major: part(release.major)?, minor: part(release.minor)? }))
}

fn unknown(field: &'static str, text: &str) -> WireError {
    WireError::Unknown { field, value: format!("{text:?}") }
}
