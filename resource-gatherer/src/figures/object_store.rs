//! Figures of a bucket.

use serde::{Deserialize, Serialize};

use super::{estimate::Estimate, storage::Percentiles};

/// Everything that was measured on a bucket. A cold store is no tier, so it stands beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectStore {
    /// The place, as `s3://bucket/prefix`; never with credentials.
    pub url: String,
    /// The length of the objects that were read, at most.
    pub object_bytes: u64,
    /// Whether the objects were made for the measurement and removed, or found there.
    pub made_objects: bool,
    /// From a request for one byte to the end of its answer.
    pub request_latency: Percentiles,
    /// Whole objects or ranges of them, one entry for each number of requests in flight.
    pub throughput: Vec<Throughput>,
    /// Bytes that were read and written for all of this.
    pub transferred_bytes: u64,
    /// What a reader of the figures should know.
    pub remarks: Vec<String>,
}

/// Reads of whole objects or ranges of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// How many requests are in flight.
    pub requests: u32,
    /// The length of a request, at most: less than an object where it is long, or the budget small.
    pub range_bytes: u64,
    /// All of them together.
    pub bytes_per_s: Estimate,
}
