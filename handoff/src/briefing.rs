//! The information that a trainer needs to read on without the agent, in the same order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tierfeed_core::{id::Rank, order::Spec, session::SkipShare, units::Nanoseconds};
use tierfeed_object_stores::Access;
use tierfeed_transform::Pipeline;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Briefing {
    pub job: String,
    pub rank: Rank,
    /// For `published` the trainer has its own.
    pub order: Spec,
    pub index_path: PathBuf,
    /// `None` for files.
    pub bucket: Option<Access>,
    pub on_error: OnError,
    /// How long reads wait for a store that cannot be read ([`tierfeed_core::outage`]), in nanoseconds.
    pub patience_ns: u64,
    /// A client that reads the cold store alone applies the same delay.
    pub emulation: Option<Emulation>,
    /// Number of batches that the agent stages ahead; a client gains nothing from more open
    /// requests.
    pub batches_ahead: u32,
    /// Identifies the dataset index, so that a client notices when the file was replaced.
    pub fingerprint: u64,
    /// For the samples of the first dataset. The seed of the order keys its random draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Pipeline>,
    /// The datasets beside the first, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<FurtherDataset>,
}

impl Briefing {
    #[must_use]
    pub fn patience(&self) -> Nanoseconds {
        Nanoseconds(self.patience_ns)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FurtherDataset {
    pub name: String,
    pub index_path: PathBuf,
    /// `None` for files.
    pub bucket: Option<Access>,
    pub emulation: Option<Emulation>,
    pub fingerprint: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Pipeline>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// The training stops with an error that names the sample.
    Fail,
    /// The sample is left out, up to this share of an epoch.
    Skip(SkipShare),
}

impl OnError {
    /// The most of the `samples` of a dataset that each of `ranks` may lack in an epoch for faults of the
    /// samples ([`Fault::is_of_sample`](tierfeed_core::session::Fault::is_of_sample)). One more ends the
    /// training.
    #[must_use]
    pub fn skipped_most(self, samples: u32, ranks: u32) -> u32 {
        match self {
            Self::Fail => 0,
            Self::Skip(share) => share.most(samples, ranks),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// Added to the duration of each read.
    pub latency_ns: u64,
    /// The rate of all reads together; 0 means unlimited.
    pub bytes_per_s: u64,
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{
        id::Epoch,
        order::{
            FurtherDatasets, Position, Shuffle, World,
            block::Block,
            mosaic::{Algorithm, Mosaic},
            tf, torch,
        },
    };
    use tierfeed_object_stores::Identity;

    use super::*;

    fn every_shuffle() -> Vec<Shuffle> {
        let version = Some(torch::Version { major: 2, minor: 10 });
        let random = torch::Generator::ALL.into_iter().flat_map(|generator| {
            [(torch::Workers::PerEpoch, version), (torch::Workers::Persistent, None)].map(
                |(workers, version)| {
                    Shuffle::TorchRandom(torch::Random { generator, workers, version })
                },
            )
        });
        let mosaic = Algorithm::ALL.map(|algorithm| {
            Shuffle::Mosaic(Mosaic { algorithm, shard: 3, canonical_nodes: 4, block: 5 })
        });
        let mut shuffles = vec![
            Shuffle::Sequential,
            Shuffle::TORCH_DISTRIBUTED,
            Shuffle::TorchDistributed { version },
            Shuffle::TfIndex(tf::Index { second: tf::SecondSeed::Epoch }),
            Shuffle::TfIndex(tf::Index { second: tf::SecondSeed::Fixed(u32::MAX) }),
            Shuffle::Grain,
            Shuffle::Block(Block { shard: 6, window: 7 }),
            Shuffle::Published,
        ];
        for reshuffle in [tf::Reshuffle::EachIteration, tf::Reshuffle::Never] {
            let global_seed = u64::MAX;
            shuffles.push(Shuffle::TfShuffle(tf::Buffered { buffer: 8, global_seed, reshuffle }));
        }
        shuffles.into_iter().chain(random).chain(mosaic).collect()
    }

    #[test]
    fn a_briefing_survives_the_wire() {
        let validation = tierfeed_core::order::FurtherDataset {
            samples: 9,
            shuffle: Shuffle::Sequential,
            batch_size: 512,
            every: 2,
        };
        let other = tierfeed_core::order::FurtherDataset {
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            ..validation
        };
        let steps = r#"{ "steps": [{ "random_resized_crop": 224 }, { "dtype": "bfloat16" }] }"#;
        let transform: Pipeline = serde_json::from_str(steps).unwrap();
        for shuffle in every_shuffle() {
            let briefing = Briefing {
                job: "resnet50 \"quoted\" ü".into(),
                rank: Rank(7),
                order: Spec {
                    samples: u32::MAX,
                    shuffle,
                    seed: u64::MAX,
                    epochs: 90,
                    drop_last: true,
                    batch_size: 256,
                    world: World { nodes: 4, ranks_per_node: 8 },
                    start: Position { epoch: Epoch(3), samples: 9 },
                    further: FurtherDatasets::try_new(&[validation, other]).unwrap(),
                },
                index_path: "/run/index.tfx".into(),
                bucket: Some(Access {
                    endpoint: Some("http://127.0.0.1:9000".into()),
                    region: None,
                    identity: Identity::Anonymous,
                }),
                on_error: OnError::Skip(SkipShare(25_000)),
                patience_ns: 90_000_000_000,
                emulation: Some(Emulation { latency_ns: 250_000, bytes_per_s: 120_000_000 }),
                batches_ahead: 4,
                fingerprint: u64::MAX,
                transform: Some(transform.clone()),
                further: vec![FurtherDataset {
                    name: "validation".into(),
                    index_path: "/run/dataset-validation.index".into(),
                    bucket: None,
                    emulation: None,
                    fingerprint: 1,
                    transform: Some(transform.clone()),
                }],
            };
            let text = serde_json::to_string(&briefing).unwrap();
            assert!(text.contains(shuffle.name()), "{text}");
            assert_eq!(serde_json::from_str::<Briefing>(&text).unwrap(), briefing);
        }
    }
}
