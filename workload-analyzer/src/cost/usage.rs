//! What a run uses, by which it is charged.

use tierfeed_core::units::{Bytes, Nanoseconds};

/// What a run uses. A way whose time is not known is not on the bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Machines.
    pub nodes: u32,
    /// Passes over the dataset.
    pub epochs: u32,
    /// Samples that all nodes together read in an epoch; `m`.
    pub samples: u64,
    /// Objects in the bucket, which a listing returns; DELI takes `m`.
    pub objects: u64,
    /// The dataset; `s_t`.
    pub dataset: Bytes,
    /// How long the run takes with all data on the disk of every node.
    pub disk: Option<Nanoseconds>,
    /// How long it takes if every sample is read from the bucket when it is needed.
    pub direct: Option<Nanoseconds>,
    /// What DELI's prefetching does to it.
    pub prefetched: Option<Prefetched>,
    /// What the plan does to it.
    pub planned: Option<Planned>,
}

/// A run with DELI's cache and prefetching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetched {
    /// How long the run takes.
    pub time: Nanoseconds,
    /// What each node's cache takes on its disk: a sample's mean size times `m_c`.
    pub cache: Bytes,
    /// Samples of a fetch; `f`. Zero counts as one.
    pub fetch: u64,
    /// Samples that the trainers of all nodes read from the bucket in an epoch, if that is known.
    pub misses: Option<u64>,
}

/// A run with the plan of tierfeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// How long the run takes.
    pub time: Nanoseconds,
    /// What each node rents on disk for it; nothing where the tiers are memory or local scratch.
    pub cache: Bytes,
    /// Reads of the cold store in the whole run, all nodes together.
    pub cold_reads: u64,
}
