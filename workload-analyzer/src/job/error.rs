//! Errors in a job file, with messages that say what would be right.

use std::path::PathBuf;

use tierfeed_core::{
    order::FURTHER_MAX,
    units::{self, Bytes},
};
use tierfeed_dataset::keys;

use crate::yaml::{YamlError, invalid};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("{}:{line}: {key} {}", .file.display(), invalid(.value, .reason))]
    Invalid { file: PathBuf, line: usize, key: String, value: String, reason: Reason },
    #[error("{}:{line}: {key} {conflict}", .file.display())]
    Conflict { file: PathBuf, line: usize, key: String, conflict: KeyConflict },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    #[error(transparent)]
    OfDataset(#[from] keys::Reason),
    #[error("{problem}, for example `{example}`")]
    NotAQuantity { problem: units::ParseError, example: &'static str },
    #[error(
        "a chunk is a multiple of 4 KiB, at least 64 KiB and at most 1 TiB, for example `512 MiB`"
    )]
    NotAChunk,
    #[error("a tier has at least one chunk, which is {chunk} in this job")]
    BelowChunk { chunk: Bytes },
    #[error("it must be at least {least}, the largest page of any machine")]
    BelowPage { least: Bytes },
    #[error("expected 1 to 64 letters, digits, `-`, `_` or `.`, and no `.` in front")]
    NotAName,
    #[error("sizes that spread by more than nine tenths of their mean, {mean}, are not supported")]
    TooMuchSpread { mean: Bytes },
    #[error("{samples} samples; at most {} can be numbered", u32::MAX)]
    TooManySamples { samples: u64 },
    #[error(
        "{samples} samples of this size; a sample has at most 64 GiB, all together at most 1 EiB"
    )]
    TooMuchData { samples: u64 },
    #[error("{0}")]
    WrongStep(tierfeed_transform::Reason),
    #[error("the `dtype` of the dataset is `{stated}`; both say what its files hold")]
    OtherElements { stated: &'static str },
    #[error("each NUMA node may be listed once")]
    Repeated,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyConflict {
    #[error(transparent)]
    OfDataset(#[from] keys::KeyConflict),
    #[error("has no budget; give `size: 16 GiB` or `reserve: 20 %`")]
    NoBudget,
    #[error("has both `size` and `reserve`; keep one of them")]
    TwoBudgets,
    #[error("is a part of `tiers.scratch`, which the job does not have; add it")]
    NoScratchTier,
    #[error(
        "keeps files, and the RAM disk of the agent is removed after the run; name a directory as \
         `tiers.scratch.path`"
    )]
    NothingKept,
    #[error(
        "is a credential, and a job file holds none; give it to the environment, for example as \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Credential,
    #[error("has no array; give `width`, `height` and `channels`, or 1 to 256 `elements`")]
    NoElement,
    #[error(
        "has no `bytes`, and there is no `model` from which they would follow; give one of them"
    )]
    NoCheckpointBytes,
    #[error("has `shuffle: {shuffle}`, which needs `{key}`, {what}")]
    NeededByShuffle { shuffle: &'static str, key: &'static str, what: &'static str },
    #[error("is for `shuffle: {shuffles}` only; remove it")]
    OfOtherShuffle { shuffles: &'static str },
    #[error("is for `policy: {policies}` only, and the job has `policy: {policy}`; remove it")]
    OfOtherPolicy { policies: &'static str, policy: tierfeed_core::retention::policy::Kind },
    #[error(
        "is for `policy: lobster` only: `lobster-lazy` evicts the sample with the farthest next use \
         and has no limit; remove it"
    )]
    LazyDistance,
    #[error(
        "stands beside `deli`, whose fetch_size and threshold say how much is fetched ahead; keep one of them"
    )]
    FetchesOfDeli,
    #[error(
        "has fetch_size: {size} % and threshold: {threshold} %, more than the cache together; \
         the 50/50 rule is {{ fetch_size: 50 %, threshold: 50 % }}"
    )]
    FetchesBeyondCache {
        /// The fetch size, in percent of the cache.
        size: u8,
        /// The threshold, in percent of the cache.
        threshold: u8,
    },
    #[error("has neither `latency` nor `bandwidth`; give one of them, or remove it")]
    EmulatesNothing,
    #[error(
        "stands beside `shuffle: published`, where only the trainer knows when an epoch ends; use another \
         `order.shuffle`, or a job of its own for each dataset"
    )]
    BesidePublished,
    #[error("stands beside `dataset.described`, which has no samples to read; remove one of them")]
    BesideDescribed,
    #[error("names more than {max} datasets; keep {max} beside `dataset`", max = FURTHER_MAX)]
    TooManyDatasets,
    #[error(
        "is `always` in a job with `verify: always`: a sample is compared when it is copied, and one that \
         is read in place is not; use `auto` or `never` here, or `verify: shared`"
    )]
    DirectUnverified,
    #[error(
        "is `partitioned`, which needs an order that every node can compute; use another `order.shuffle` than \
         `published`, or `policy: gap`"
    )]
    NothingToPartition,
    #[error(
        "is `always`, but with `policy: {policy}` and this order a sample may be evicted at any time; \
         use `auto` or `never` here, or `policy: gap` with an order that is computed, or \
         `policy: pinned`"
    )]
    DirectUnsettled { policy: tierfeed_core::retention::policy::Kind },
    #[error(
        "is `prepared` in a job with `datasets`, whose samples would have other sizes; use `stored` or `auto`"
    )]
    PreparedOfSeveral,
    #[error(
        "stands in a job without `transform`, which is that of the first dataset; add it, or transform in the \
         trainer (`decode=`)"
    )]
    FirstUntransformed,
    #[error(
        "has steps for {steps}, which are samples of `format: {formats}`; remove it, and decode in the trainer"
    )]
    OfOtherSamples { steps: &'static str, formats: &'static str },
    #[error(
        "makes one row of a sample, and one of `format: {format}` is a {sample}, many rows; write each row as a sample \
         of webdataset, mds or tfrecord (docs/transforms.md, \"Rows of tables\", has the script), or decode in the \
         trainer (`decode=`)"
    )]
    ManyRows { format: &'static str, sample: &'static str },
    #[error(
        "has steps for images, and a sample of `format: hdf5` is a row of one array; begin with `array` if it holds \
         pixels, else write the images as samples of webdataset, mds or tfrecord (docs/transforms.md, \"Rows of \
         tables\", has the script)"
    )]
    ImagesInHdf5,
    #[error(
        "is for samples of several fields, and `format: hdf5` reads one array, which `dataset.dataset` names; remove \
         it, or write what belongs together as samples of webdataset, mds or tfrecord (docs/transforms.md, \"Rows of \
         tables\", has the script)"
    )]
    FieldOfHdf5,
    #[error(
        "is for samples of several fields, which are those of `format: webdataset, tfrecord, mds, litdata`; remove it"
    )]
    NoFields,
    #[error(
        "has steps for {steps}, and samples of `format: {format}` have several fields; name the one that holds \
         them, for example `field: npy`"
    )]
    UnnamedField { steps: &'static str, format: &'static str },
    #[error(
        "is `prepared`, but samples of `format: {format}` have other fields, which trainers get from their \
         stored bytes; use `stored` or `auto`"
    )]
    PreparedField { format: &'static str },
    #[error(
        "stands beside a tier with `direct: always`, which hands samples out as they are stored; use `auto` or \
         `never` there"
    )]
    TransformedInPlace,
    #[error(
        "is `prepared`, but with `scaled: true` an image is decoded at the scale of each crop; begin with a resize, \
         leave `scaled` out, or use `stored` or `auto`"
    )]
    NothingPrepared,
    #[error("is empty; list a NUMA node, or remove it to use what was measured")]
    NoNumaNodes,
}
