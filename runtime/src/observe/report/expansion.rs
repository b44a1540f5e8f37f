//! How the trainers' memory was spread over NUMA nodes, as the report tells it.

use serde::Serialize;

/// The memory policy of a training, and the nodes that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpansionEntry {
    /// The policy: `preferred-many` or `weighted-interleave`.
    pub policy: &'static str,
    /// The nodes of main memory.
    pub main_memory: Vec<u32>,
    /// The nodes behind CXL.
    pub cxl_memory: Vec<u32>,
    /// Pages of each node in a round, if the policy interleaves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<(u32, u8)>,
}
