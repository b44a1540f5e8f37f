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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub node: u32,
    pub source: Source,
    /// The key of the compared figure: `idle_latency_ns`, `read_bytes_per_s`, `memory_tier`.
    pub figure: String,
    pub stated: f64,
    /// A measured value, or one that follows from measured values.
    pub measured: f64,
    /// Whether the two differ so much that one of them misleads.
    pub differs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Hmat,
    /// The kernel, by the tiers that it made.
    KernelTier,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub what: String,
    pub why: String,
}
