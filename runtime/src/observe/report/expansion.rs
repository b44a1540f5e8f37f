//! The spread of the trainers' memory over NUMA nodes, in the report.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpansionEntry {
    /// `preferred-many` or `weighted-interleave`.
    pub policy: &'static str,
    /// NUMA nodes of main memory.
    pub main_memory: Vec<u32>,
    /// NUMA nodes behind CXL.
    pub cxl_memory: Vec<u32>,
    /// Pages of each node in a round; empty if the policy does not interleave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<(u32, u8)>,
}
