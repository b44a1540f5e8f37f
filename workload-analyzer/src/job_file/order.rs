//! The serde types of the keys below `order`.

use serde::Deserialize;

use super::{Release, Text, Whole};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with `shuffle`")]
pub(crate) struct OrderFile {
    pub(crate) shuffle: Text,
    pub(crate) seed: Option<Whole>,
    pub(crate) epochs: Option<Whole>,
    pub(crate) drop_last: Option<bool>,
    pub(crate) start: Option<StartFile>,
    pub(crate) version: Option<Release>,
    pub(crate) generator: Option<Text>,
    pub(crate) persistent_workers: Option<bool>,
    pub(crate) buffer: Option<Whole>,
    pub(crate) global_seed: Option<Whole>,
    pub(crate) reshuffle: Option<bool>,
    pub(crate) second_seed: Option<Whole>,
    pub(crate) algorithm: Option<Text>,
    pub(crate) shard_samples: Option<Whole>,
    pub(crate) canonical_nodes: Option<Whole>,
    pub(crate) shuffle_block: Option<Whole>,
    pub(crate) window: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ epoch: 3, samples: 40960 }`")]
pub(crate) struct StartFile {
    pub(crate) epoch: Option<Whole>,
    pub(crate) samples: Option<Whole>,
}
