//! What the memory of a node is made of.

use serde::{Deserialize, Serialize};

/// The make of a node's memory, as far as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// The node has CPUs: ordinary main memory.
    #[default]
    Dram,
    /// A CXL device that the kernel took as memory.
    Cxl,
    /// Memory that the firmware set apart (`hmem`): often high-bandwidth or CXL memory.
    SpecificPurpose,
    Persistent,
    /// Memory of a GPU or another accelerator that the host sees as a node: never a tier.
    Gpu,
    /// No CPUs, and no device that would tell more.
    CpuLess,
}
