//! What the memory of a node is made of.

use serde::{Deserialize, Serialize};
use tierfeed_core::tier::Kind;

/// What the memory of a node is made of, as far as the kernel tells.
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
    /// Persistent memory used as ordinary memory.
    Persistent,
    /// No CPUs, and no device that would tell more.
    CpuLess,
}

impl MemoryKind {
    /// The kind of tier that such memory makes.
    #[must_use]
    pub fn tier_kind(self) -> Kind {
        match self {
            Self::Dram => Kind::MainMemory,
            Self::Cxl | Self::SpecificPurpose | Self::Persistent | Self::CpuLess => Kind::CxlMemory,
        }
    }
}
