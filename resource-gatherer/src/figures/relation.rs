//! Figures of several places at once: copies, views by node, rated figures; and how they were taken.

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

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Conditions {
    pub kernel: String,
    /// Whether a hypervisor is below it; then caches and frequencies are as the hypervisor states them.
    pub is_virtual: bool,
    /// `None` where the kernel has no governor.
    pub governor: Option<String>,
    pub boost: Option<bool>,
    pub smt: Option<bool>,
    pub microcode: Option<String>,
    pub transparent_huge_pages: Option<String>,
    pub numa_balancing: Option<bool>,
    /// Tasks that ran or waited for a CPU, over the last minute, when the probe began.
    pub load_1min: Option<f64>,
    /// The share of CPU time that the hypervisor gave to others during the probe.
    pub steal_share: Option<f64>,
}
