//! Says what a memory node is made of: nodes of different make are different tiers, however alike.

use serde::{Deserialize, Serialize};

use super::{Grouping, Profile};
use crate::inventory::node::MemoryKind;

/// A node without a known device counts as high-bandwidth memory if it has at least this many times the
/// bandwidth of the best DRAM.
///
/// # Source
///
/// hwloc guesses the same (`memattrs.c`, memory tiers).
const HIGH_BANDWIDTH: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryClass {
    /// Ordinary main memory of a node with CPUs.
    Dram,
    Hbm,
    Cxl,
    Nvm,
    /// A node without CPUs and without a device that would tell more.
    Unknown,
}

impl MemoryClass {
    pub(crate) fn of(kind: MemoryKind) -> Self {
        match kind {
            MemoryKind::Dram => Self::Dram,
            MemoryKind::Cxl => Self::Cxl,
            MemoryKind::Persistent => Self::Nvm,
            MemoryKind::SpecificPurpose | MemoryKind::Gpu | MemoryKind::CpuLess => Self::Unknown,
        }
    }

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

/// Returns `places`, where unknown memory that is much faster than all DRAM becomes high-bandwidth memory.
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
