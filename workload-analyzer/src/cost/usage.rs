//! The resources that a run uses, by which it is charged.

use tierfeed_core::units::{Bytes, Nanoseconds};

/// The resources that a run uses. A scenario of unknown duration is not on the bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Number of rented machines.
    pub nodes: u32,
    pub epochs: u32,
    /// Samples that all nodes together read in an epoch; `m`.
    pub samples: u64,
    /// Objects in the bucket, which a listing returns; DELI uses `m`.
    pub objects: u64,
    /// The size of the dataset; `s_t`.
    pub dataset: Bytes,
    /// The duration with all data on the disk of every node.
    pub disk: Option<Nanoseconds>,
    /// The duration if every sample is read from the bucket when it is needed.
    pub direct: Option<Nanoseconds>,
    pub prefetched: Option<Prefetched>,
    pub planned: Option<Planned>,
}

/// A run with DELI's cache and prefetching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetched {
    pub time: Nanoseconds,
    /// Disk space of the cache of each node: the mean size of a sample times `m_c`.
    pub cache: Bytes,
    /// Samples of a fetch; `f`. Zero counts as one.
    pub fetch: u64,
    /// Samples that the trainers of all nodes read from the bucket in an epoch, if that is known.
    pub misses: Option<u64>,
}

/// A run with the plan of tierfeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    pub time: Nanoseconds,
    /// Disk space that each node rents for it; zero if the tiers are memory or local scratch.
    pub cache: Bytes,
    /// Reads of the cold store in the whole run, all nodes together.
    pub cold_reads: u64,
}
