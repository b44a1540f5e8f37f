//! Why an order does not exist.

use super::{
    FURTHER_MAX, Position,
    torch_release::{OLDEST_RANDOM, Version, WIDE_SAMPLES},
};

/// Why a [`super::Spec`] describes no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A dataset, batch, world or run of size zero.
    #[error("{field} is 0; it must be at least 1")]
    Zero {
        /// The field that is zero.
        field: &'static str,
    },
    /// More ranks than can be numbered.
    #[error("{nodes} nodes with {ranks_per_node} ranks each; ranks are counted in 32 bits")]
    TooManyRanks {
        /// Nodes of the world.
        nodes: u32,
        /// Ranks on each node.
        ranks_per_node: u32,
    },
    /// `drop_last` leaves nothing: fewer samples than ranks.
    #[error("{samples} samples for {ranks} ranks: drop_last leaves none")]
    NothingLeft {
        /// Samples of the dataset.
        samples: u32,
        /// Processes in the world.
        ranks: u32,
    },
    /// An epoch whose samples exceed the 32-bit count.
    #[error("{samples} samples; with these order.canonical_nodes at most {max} are possible")]
    TooManySamples {
        /// Samples of the dataset.
        samples: u32,
        /// The largest dataset that these settings allow.
        max: u32,
    },
    /// PyTorch's releases disagree about so many samples.
    #[error(
        "{samples} samples: from {wide} on PyTorch 2.6 and later have another order than earlier \
         releases; give `order.version`",
        wide = WIDE_SAMPLES
    )]
    VersionNeeded {
        /// Samples of the dataset.
        samples: u32,
    },
    /// A release whose stateful order is not known.
    #[error(
        "order.version is {version}; torch-random is known from {oldest} on: give the order by \
         `shuffle: published`",
        oldest = OLDEST_RANDOM
    )]
    VersionTooOld {
        /// The release that the job names.
        version: Version,
    },
    /// A sampler of one process in a world of several.
    #[error(
        "torch-random in {ranks} ranks: each would read the whole dataset; use torch-distributed, or \
         `shuffle: published`"
    )]
    OneRank {
        /// Processes in the world.
        ranks: u32,
    },
    /// A count of canonical nodes that is no multiple of the nodes.
    #[error(
        "order.canonical_nodes is {canonical}; with {nodes} nodes it must be a multiple of {nodes}"
    )]
    CanonicalNodes {
        /// Canonical nodes of the job.
        canonical: u32,
        /// Hosts in the world.
        nodes: u32,
    },
    /// Canonical nodes without samples.
    #[error(
        "order.canonical_nodes is {canonical}; it must be below the number of samples, {samples}"
    )]
    FewerThanCanonicalNodes {
        /// Samples of the dataset.
        samples: u32,
        /// Canonical nodes of the job.
        canonical: u32,
    },
    /// A shuffle block that Streaming draws no random number for.
    #[error("order.shuffle_block is {block}; it must be between {min} and {max}")]
    ShuffleBlock {
        /// `shuffle_block_size` of the job.
        block: u32,
        /// The smallest that is possible.
        min: u32,
        /// The largest that is possible.
        max: u32,
    },
    /// `drop_last` with a shuffle that has no such option.
    #[error("order.drop_last is true; mosaic pads every epoch: remove it")]
    NoDropLast,
    /// Further datasets beside an order that trainers publish.
    #[error("further datasets beside shuffle: published; an order that the job fixes is needed")]
    FurtherBesidePublished,
    /// More datasets than a job may have.
    #[error("{further} datasets beside the first; at most {max} are possible", max = FURTHER_MAX)]
    TooManyDatasets {
        /// Datasets beside the first.
        further: usize,
    },
    /// More samples in all datasets together than can be numbered.
    #[error("{samples} samples in all datasets; at most 4294967295 are possible")]
    TooManyInAll {
        /// Samples of all datasets.
        samples: u64,
    },
    /// A start position behind the last sample of the run.
    #[error(
        "the job starts at sample {} of epoch {}; nothing is left to read there in {epochs} epochs",
        .start.samples, .start.epoch.0
    )]
    StartOutside {
        /// The start that the job gives.
        start: Position,
        /// Passes over the dataset.
        epochs: u32,
    },
}
