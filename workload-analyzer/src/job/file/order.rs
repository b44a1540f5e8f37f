//! The serde types of the keys below `order`.

use serde::Deserialize;
use tierfeed_core::order::{mosaic::Algorithm, torch};
use tierfeed_dataset::keys::Reason;

use super::one_of;
use crate::yaml::scalar::{Checked, Count, Scalar, Whole};

const EPOCHS_MAX: u32 = 1_000_000;

const STREAMING_BLOCK_MAX: u32 = 1 << 31;

const SHUFFLES: &str = "sequential, torch-distributed, torch-random, tf-shuffle, tf-index, mosaic, \
                        grain, block, published";

type AtLeastOne = Count<1, { u32::MAX }>;
type AnyNumber = Count<0, { u32::MAX }>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with `shuffle`")]
pub(crate) struct OrderFile {
    pub(crate) shuffle: Checked<ShuffleName>,
    pub(crate) seed: Option<Whole>,
    pub(crate) epochs: Option<Count<1, EPOCHS_MAX>>,
    pub(crate) drop_last: Option<bool>,
    pub(crate) start: Option<StartFile>,
    pub(crate) version: Option<Checked<torch::Version>>,
    pub(crate) generator: Option<Checked<torch::Generator>>,
    pub(crate) persistent_workers: Option<bool>,
    pub(crate) buffer: Option<AtLeastOne>,
    pub(crate) global_seed: Option<Whole>,
    pub(crate) reshuffle: Option<bool>,
    pub(crate) second_seed: Option<AnyNumber>,
    pub(crate) algorithm: Option<Checked<Algorithm>>,
    pub(crate) shard_samples: Option<AtLeastOne>,
    pub(crate) canonical_nodes: Option<AtLeastOne>,
    pub(crate) shuffle_block: Option<Count<2, STREAMING_BLOCK_MAX>>,
    pub(crate) window: Option<AtLeastOne>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ epoch: 3, samples: 40960 }`")]
pub(crate) struct StartFile {
    pub(crate) epoch: Option<Whole>,
    pub(crate) samples: Option<AnyNumber>,
}

/// One of [`SHUFFLES`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShuffleName(pub(crate) &'static str);

impl Scalar for ShuffleName {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        let known = SHUFFLES.split(", ").find(|known| *known == typed);
        known.map(Self).ok_or_else(|| Reason::NotOneOf(SHUFFLES.to_owned()))
    }
}

impl Scalar for torch::Version {
    type Reason = &'static str;

    const EXPECTED: &str = "a version of three numbers or in quotes, for example `2.6.0`";
    const IS_WORD: bool = true;

    fn parse(typed: &str) -> Result<Self, &'static str> {
        typed
            .parse()
            .map_err(|_| "expected a version as `torch.__version__` prints it, for example `2.6.0`")
    }
}

impl Scalar for torch::Generator {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        one_of(typed, &Self::ALL, Self::name, "default, loader, sampler")
    }
}

impl Scalar for Algorithm {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        one_of(typed, &Self::ALL, Self::name, "naive, py1s, py2s, py1e, py1br")
    }
}
