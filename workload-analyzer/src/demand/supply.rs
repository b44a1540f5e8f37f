//! The resources of a node: its tiers, its cold store, and its retention rule.

use tierfeed_core::{
    tier::{self, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::Rule;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierFigure {
    pub kind: tier::Kind,
    /// The size of its cache, without staging.
    pub capacity: Bytes,
    /// The read rate; 0 if unlimited.
    pub read: BytesPerSecond,
    /// Random reads per second; `None` if unlimited or unknown.
    pub reads_per_s: Option<u64>,
}

impl TierFigure {
    /// The time to read `bytes` as `requests` samples: the longer of both limits.
    pub(super) fn time_for(&self, bytes: Bytes, requests: u64) -> Nanoseconds {
        let requests = match self.reads_per_s {
            // Requests per second are computed like bytes per second.
            Some(per_second) => BytesPerSecond(per_second).time_for(Bytes(requests)),
            None => Nanoseconds(0),
        };
        self.read.time_for(bytes).max(requests)
    }
}

/// The resources with which every node serves its ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supply {
    /// The tiers of a node, fastest first.
    pub tiers: Vec<TierFigure>,
    /// The link of a node to the cold store; a rate of 0 is unlimited.
    pub cold: Speed,
    pub rule: Rule,
    /// The unit in which tiers grow; advice is in whole chunks.
    pub chunk: Bytes,
}
