//! What a node can give: its tiers, its cold store, and the rule by which it keeps samples.

use tierfeed_core::{
    tier::{self, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::Rule;

/// A tier of a node as it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierFigure {
    /// What it is.
    pub kind: tier::Kind,
    /// What it can keep for the cache; staging does not count.
    pub capacity: Bytes,
    /// How fast it is read. Zero means unlimited.
    pub read: BytesPerSecond,
    /// Random reads per second, or `None` if they are not limited or not known.
    pub reads_per_s: Option<u64>,
}

impl TierFigure {
    /// How long it takes to read `bytes` as `requests` samples: the longer of both limits.
    pub(super) fn time_for(&self, bytes: Bytes, requests: u64) -> Nanoseconds {
        let requests = match self.reads_per_s {
            // A rate of requests is kept by the same arithmetic as one of bytes.
            Some(per_second) => BytesPerSecond(per_second).time_for(Bytes(requests)),
            None => Nanoseconds(0),
        };
        self.read.time_for(bytes).max(requests)
    }
}

/// What every node has to serve its ranks with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supply {
    /// The tiers of a node, fastest first.
    pub tiers: Vec<TierFigure>,
    /// The link of a node to the cold store. A rate of zero means unlimited.
    pub cold: Speed,
    /// What stays in the tiers.
    pub rule: Rule,
    /// The unit in which tiers grow; advice asks for whole ones.
    pub chunk: Bytes,
}
