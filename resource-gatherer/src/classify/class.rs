//! Says what a memory node is made of: nodes of different make are different tiers, however alike.

use serde::{Deserialize, Serialize};

use super::{Grouping, Profile};
use crate::inventory::node::MemoryKind;

/// How much more bandwidth than the best DRAM makes a node without a known device high-bandwidth memory.
///
/// # Source
///
/// hwloc guesses the same (`memattrs.c`, memory tiers).
const HIGH_BANDWIDTH: f64 = 2.0;

/// What a memory node is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryClass {
    /// Ordinary main memory of a node with CPUs.
    Dram,
    /// High-bandwidth memory (HBM).
    Hbm,
    /// Memory behind a CXL link.
    Cxl,
    /// Persistent memory.
    Nvm,
    /// A node without CPUs and without a device that would tell more.
    Unknown,
}

impl MemoryClass {
    /// What the kernel tells of it.
    pub(crate) fn of(kind: MemoryKind) -> Self {
        match kind {
            MemoryKind::Dram => Self::Dram,
            MemoryKind::Cxl => Self::Cxl,
            MemoryKind::Persistent => Self::Nvm,
            MemoryKind::SpecificPurpose | MemoryKind::Gpu | MemoryKind::CpuLess => Self::Unknown,
        }
    }

    /// The name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dram => "DRAM",
            Self::Hbm => "HBM",
            Self::Cxl => "CXL",
            Self::Nvm => "NVM",
            Self::Unknown => "no CPUs",
        }
    }
}

/// `places`, with the unknown that is much faster than all DRAM taken for high-bandwidth memory.
pub(super) fn settle(places: &[Profile]) -> Vec<Profile> {
    let is = |place: &Profile, class| place.grouping == Grouping::Node(class);
    let dram = places.iter().filter(|place| is(place, MemoryClass::Dram));
    let dram = dram.filter_map(|place| Some(place.read_bytes_per_s?.median)).reduce(f64::max);
    let settled = places.iter().map(|place| {
        let rate = place.read_bytes_per_s.map(|rate| rate.median);
        let is_faster = dram.zip(rate).is_some_and(|(dram, rate)| rate >= HIGH_BANDWIDTH * dram);
        if is(place, MemoryClass::Unknown) && is_faster {
            Profile { grouping: Grouping::Node(MemoryClass::Hbm), ..*place }
        } else {
            *place
        }
    });
    settled.collect()
}
