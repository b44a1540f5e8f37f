//! The keys below `dataset` beside those of the dataset itself, which are [`tierfeed_dataset::keys`].

use serde::Deserialize;
use tierfeed_core::{
    retention::policy::Saves,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::keys::{Reason, parse_size};

use super::{FurtherTransformFile, SpeedFile, keyed::Keyed, one_of, quantity::QuantityError};
use crate::{
    job::{BATCH_SIZE_MAX, PageCache, node_path::NodePath},
    yaml::scalar::{Checked, Count, Scalar, Whole},
};

pub(crate) type DatasetFile = Keyed<FirstFile>;

/// A dataset beside the first: where it lies, and how it is read.
pub(crate) type FurtherDatasetFile = Keyed<FurtherFile>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstFile {
    pub(crate) emulate: Option<SpeedFile>,
    pub(crate) limited_by: Option<Checked<Saves>>,
    pub(crate) page_cache: Option<PageCache>,
    pub(crate) patience: Option<Checked<Patience>>,
    pub(crate) index: Option<Checked<NodePath>>,
    pub(crate) described: Option<DescribedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FurtherFile {
    pub(crate) emulate: Option<SpeedFile>,
    pub(crate) index: Option<Checked<NodePath>>,
    pub(crate) batch_size: Option<Count<1, BATCH_SIZE_MAX>>,
    pub(crate) shuffle: Option<FurtherShuffle>,
    pub(crate) every: Option<Whole>,
    pub(crate) transform: Option<FurtherTransformFile>,
}

/// By default in dataset order, as validation sets are read.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FurtherShuffle {
    #[default]
    Sequential,
    TorchDistributed,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ objects: 1024, samples_per_object: 1251, \
                     sample_bytes: 114660 }`")]
pub(crate) struct DescribedFile {
    pub(crate) objects: Count<1, { u32::MAX }>,
    pub(crate) samples_per_object: Option<Count<1, { u32::MAX }>>,
    pub(crate) sample_bytes: Checked<Bytes>,
    pub(crate) sample_bytes_stdev: Option<Checked<Deviation>>,
}

/// A size that may be zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deviation(pub(crate) Bytes);

impl Scalar for Deviation {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        parse_size(typed).map(Self).ok_or(Reason::NotASize)
    }
}

/// A wait that may be zero: without any, an outage ends the training at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience(pub(crate) Nanoseconds);

impl Scalar for Patience {
    type Reason = QuantityError;

    const EXAMPLE: Option<&str> = Some("30 min");

    fn parse(typed: &str) -> Result<Self, QuantityError> {
        Ok(Self(typed.parse()?))
    }
}

impl Scalar for Saves {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        let name = |it| if it == Self::Bytes { "bytes" } else { "requests" };
        one_of(typed, &[Self::Bytes, Self::Requests], name, "bytes, requests")
    }
}
