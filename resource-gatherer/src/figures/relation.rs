//! Figures of several places at once: copies, views by node, rated figures; and what was left out.

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;

/// The copy of one chunk from a tier to a tier: the figure that planning uses.
///
/// Between tiers of memory it is a copy by cores of the node that is written, or of the one that is read,
/// if it has none, or else of the one that reaches the memory written best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    pub from: String,
    pub to: String,
    /// Whether no other combination of threads and stores is faster from this tier to that.
    pub is_best: bool,
    pub threads: u32,
    pub non_temporal: bool,
    pub chunk_bytes: u64,
    /// Bytes copied, not bytes moved on the bus.
    pub bytes_per_s: Estimate,
}

/// The tiers as the CPUs of one node see them, fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    pub initiator: u32,
    pub tiers: Vec<Vec<u32>>,
}

/// What the firmware states (HMAT) beside what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub node: u32,
    /// The key of the compared figure, such as `idle_latency_ns`.
    pub figure: String,
    pub stated: f64,
    pub measured: f64,
    /// Whether the two differ so much that one of them misleads.
    pub differs: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub what: String,
    pub why: String,
}
