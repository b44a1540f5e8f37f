//! Figures of several places at once: copies, views by node, rated figures; and how they were taken.

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;

/// The copy of one chunk from a tier to a tier: the figure that planning uses.
///
/// Between tiers of memory it is a copy by cores of the node that is written, or of the one that is read,
/// if it has none, or else of the one that reaches the memory written best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// The name of the tier that is read.
    pub from: String,
    /// The name of the tier that is written.
    pub to: String,
    /// Whether no other combination of threads and stores is faster from this tier to that.
    pub is_best: bool,
    /// By how many threads.
    pub threads: u32,
    /// Whether the stores went past the caches.
    pub non_temporal: bool,
    /// How long the chunk was.
    pub chunk_bytes: u64,
    /// Bytes copied, not bytes moved on the bus.
    pub bytes_per_s: Estimate,
}

/// The tiers as the CPUs of one node see them, fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The node whose CPUs look.
    pub initiator: u32,
    /// The memory nodes of each tier.
    pub tiers: Vec<Vec<u32>>,
}

/// A measured figure beside what somebody states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The number of the memory node.
    pub node: u32,
    /// Where the stated figure is from.
    pub source: Source,
    /// What is compared, by the key of the figure: `idle_latency_ns`, `read_bytes_per_s`, `memory_tier`.
    pub figure: String,
    /// The stated figure.
    pub stated: f64,
    /// What was measured, or follows from what was measured.
    pub measured: f64,
    /// Whether the two differ so much that one of them misleads.
    pub differs: bool,
}

/// Who states a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The firmware, in the HMAT.
    Hmat,
    /// The kernel, by the tiers that it made.
    KernelTier,
}

/// Something that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// What would have been measured.
    pub what: String,
    /// Why it was not.
    pub why: String,
}

/// How the machine was set while it was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// The release of the kernel.
    pub kernel: String,
    /// Whether a hypervisor is below it; then caches and frequencies are as it states them.
    pub is_virtual: bool,
    /// The frequency governor, `None` where the kernel has none.
    pub governor: Option<String>,
    /// Whether cores may run faster than rated.
    pub boost: Option<bool>,
    /// Whether cores run two threads.
    pub smt: Option<bool>,
    /// The version of the microcode.
    pub microcode: Option<String>,
    /// The setting of transparent huge pages.
    pub transparent_huge_pages: Option<String>,
    /// Whether the kernel moves pages between nodes on its own.
    pub numa_balancing: Option<bool>,
    /// Tasks that ran or waited for a CPU, over the last minute, when the probe began.
    pub load_1min: Option<f64>,
    /// The share of CPU time that the hypervisor gave to others meanwhile.
    pub steal_share: Option<f64>,
}
