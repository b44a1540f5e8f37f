//! Which used samples stay, and in which tier.

use core::{fmt, str::FromStr};

/// The policies that a job file can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Keep what is used again soon enough; on one node, pin what fits.
    Gap,
    /// FIFO buffers and Algorithm 1 of DeepMemoryDL.
    DeepMemory,
    /// FIFO buffers that keep everything as long as it fits.
    Fifo,
    /// Keep nothing: every read is a cold read.
    None,
}

impl Kind {
    /// All policies, the default first.
    pub const ALL: [Self; 4] = [Self::Gap, Self::DeepMemory, Self::Fifo, Self::None];

    /// The name in job files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::DeepMemory => "deepmemory",
            Self::Fifo => "fifo",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected one of gap, deepmemory, fifo, none")]
pub struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownKind)
    }
}
