//! Figures of a bucket.

use serde::{Deserialize, Serialize};

use super::{estimate::Estimate, storage::Percentiles};

/// The figures of a bucket. A cold store is no tier, so they stand beside the tiers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectStore {
    /// The place, as `s3://bucket/prefix`; never with credentials.
    pub url: String,
    /// The greatest length of an object that was read.
    pub object_bytes: u64,
    /// Whether the objects were made for the measurement and removed, or found there.
    pub made_objects: bool,
    /// From a request for one byte to the end of its answer.
    pub request_latency: Percentiles,
    /// Whole objects or ranges of them, one entry for each number of requests in flight.
    pub throughput: Vec<Throughput>,
    pub transferred_bytes: u64,
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    pub requests: u32,
    /// The greatest length of a request: less than an object where that is long, or the budget small.
    pub range_bytes: u64,
    /// All requests together.
    pub bytes_per_s: Estimate,
}
