//! What a tier is: memory or storage with a speed and a byte budget, numbered from the fastest.

pub mod rank;

use core::{fmt, str::FromStr};

pub use tierfeed_units::Locality;
use tierfeed_units::{Bytes, BytesPerSecond, Nanoseconds};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Local DRAM. Batches are staged here too.
    MainMemory,
    /// Memory behind a CXL link: a NUMA node without CPUs, or one that emulates it.
    CxlMemory,
    /// A RAM disk (`tmpfs`).
    Scratch,
    /// A directory on `NVMe` or SSD.
    Storage,
}

impl Kind {
    /// All kinds, fastest first on ordinary machines (DeepMemoryDL, section 3.3.3).
    pub const ALL: [Self; 4] = [Self::MainMemory, Self::CxlMemory, Self::Scratch, Self::Storage];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MainMemory => "main-memory",
            Self::CxlMemory => "cxl-memory",
            Self::Scratch => "scratch",
            Self::Storage => "storage",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected one of main-memory, cxl-memory, scratch, storage")]
pub struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownKind)
    }
}

/// The speed of a link: a latency, then a rate that all its users share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed {
    pub latency: Nanoseconds,
    /// Shared by everything in flight. Zero means unlimited.
    pub bandwidth: BytesPerSecond,
}

/// A cache tier as the session sees it.
///
/// Tiers are elements of a slice, fastest first; the index is the [`crate::id::TierId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// For reports.
    pub kind: Kind,
    /// Whole chunks that the tier may use for the cache.
    pub chunks_max: u32,
}

impl Buffer {
    #[must_use]
    pub fn within(kind: Kind, budget: Bytes, chunk: Bytes) -> Self {
        let chunks_max = u32::try_from(budget.0 / chunk.0.max(1)).unwrap_or(u32::MAX);
        Self { kind, chunks_max }
    }

    #[must_use]
    pub fn capacity(&self, chunk: Bytes) -> Bytes {
        Bytes(u64::from(self.chunks_max).saturating_mul(chunk.0))
    }
}
