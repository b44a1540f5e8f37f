//! Why an order does not exist.

use super::{
    FURTHER_MAX, Position,
    torch_release::{OLDEST_RANDOM, Version, WIDE_SAMPLES},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    #[error("{field} is 0; it must be at least 1")]
    Zero { field: &'static str },
    #[error("{nodes} nodes with {ranks_per_node} ranks each; ranks are counted in 32 bits")]
    TooManyRanks { nodes: u32, ranks_per_node: u32 },
    #[error("{samples} samples for {ranks} ranks: drop_last leaves none")]
    NothingLeft { samples: u32, ranks: u32 },
    #[error("{samples} samples; with these order.canonical_nodes at most {max} are possible")]
    TooManySamples { samples: u32, max: u32 },
    #[error(
        "{samples} samples: from {wide} on PyTorch 2.6 and later have another order than earlier \
         releases; give `order.version`",
        wide = WIDE_SAMPLES
    )]
    VersionNeeded { samples: u32 },
    #[error(
        "order.version is {version}; torch-random is known from {oldest} on: give the order by \
         `shuffle: published`",
        oldest = OLDEST_RANDOM
    )]
    VersionTooOld { version: Version },
    #[error(
        "torch-random in {ranks} ranks: each would read the whole dataset; use torch-distributed, or \
         `shuffle: published`"
    )]
    OneRank { ranks: u32 },
    #[error(
        "order.canonical_nodes is {canonical}; with {nodes} nodes it must be a multiple of {nodes}"
    )]
    CanonicalNodes { canonical: u32, nodes: u32 },
    #[error(
        "order.canonical_nodes is {canonical}; it must be below the number of samples, {samples}"
    )]
    FewerThanCanonicalNodes { samples: u32, canonical: u32 },
    #[error("order.shuffle_block is {block}; it must be between {min} and {max}")]
    ShuffleBlock { block: u32, min: u32, max: u32 },
    #[error("order.drop_last is true; mosaic pads every epoch: remove it")]
    NoDropLast,
    #[error("further datasets beside shuffle: published; an order that the job fixes is needed")]
    FurtherBesidePublished,
    #[error("{further} datasets beside the first; at most {max} are possible", max = FURTHER_MAX)]
    TooManyDatasets { further: usize },
    #[error("{samples} samples in all datasets; at most 4294967295 are possible")]
    TooManyInAll { samples: u64 },
    #[error(
        "the job starts at sample {} of epoch {}; nothing is left to read there in {epochs} epochs",
        .start.samples, .start.epoch.0
    )]
    StartOutside { start: Position, epochs: u32 },
}
