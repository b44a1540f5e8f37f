//! What is measured, and how long that may take.

use std::path::PathBuf;

use tierfeed_core::{
    tier::{Kind, Speed},
    units::{Bytes, Nanoseconds},
};

use crate::{report::Report, tiers::Assignment};

/// What the caller wants measured.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSettings {
    /// The root of the tree that describes the machine; `/` for this one.
    pub sysroot: PathBuf,
    /// A directory on a RAM disk.
    pub scratch: Option<PathBuf>,
    /// A directory on local storage.
    pub storage: Option<PathBuf>,
    /// How much time and memory it may take.
    pub budget: Budget,
    /// Further directories, with the kind of tier that each makes.
    pub further: Vec<(Kind, PathBuf)>,
    /// Tiers whose speed is imposed instead of measured.
    pub emulated: Vec<EmulatedTier>,
    /// Places that the user puts into one tier, whatever is measured; directories as absolute paths
    /// without links.
    pub assignments: Vec<Assignment>,
    /// An earlier report: its tiers stand unless the figures clearly differ.
    pub previous: Option<Box<Report>>,
}

/// A tier that other memory plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmulatedTier {
    /// What it plays.
    pub kind: Kind,
    /// How fast it acts. Zero bandwidth means that only the latency is imposed.
    pub speed: Speed,
    /// How much it holds; zero if that is not known yet.
    pub capacity: Bytes,
}

/// How thorough to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// Good enough for a plan: each node from its best CPUs, well under half a minute.
    Quick,
    /// Every pair of nodes, narrow intervals, minutes.
    Full,
    /// Somebody's own limits.
    Custom(Limits),
}

impl Budget {
    /// The limits that it stands for.
    #[must_use]
    pub fn limits(self) -> Limits {
        match self {
            Self::Quick => Limits {
                cell: Nanoseconds(600_000_000),
                memory: Nanoseconds(12_000_000_000),
                sample: Nanoseconds(10_000_000),
                buffer_min: Bytes::mib(256),
                buffer_max: Bytes::mib(512),
                file: Bytes::mib(256),
                pairs: Pairs::BestInitiator,
            },
            Self::Full => Limits {
                cell: Nanoseconds(30_000_000_000),
                memory: Nanoseconds(600_000_000_000),
                sample: Nanoseconds(20_000_000),
                buffer_min: Bytes::mib(256),
                buffer_max: Bytes::mib(8192),
                file: Bytes::mib(2048),
                pairs: Pairs::All,
            },
            Self::Custom(limits) => limits,
        }
    }
}

/// What a probe may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The time in samples of one cell: one kernel on one place.
    pub cell: Nanoseconds,
    /// The time in samples of all cells of memory together.
    pub memory: Nanoseconds,
    /// How long one sample of memory shall take: long against the clock, short against a time slice.
    pub sample: Nanoseconds,
    /// The least length of each of the four buffers on a memory node, if its room allows.
    pub buffer_min: Bytes,
    /// Their greatest length.
    pub buffer_max: Bytes,
    /// How much is written to a directory, once.
    pub file: Bytes,
    /// From where each memory node is measured.
    pub pairs: Pairs,
}

impl Limits {
    /// The longest that the samples on `nodes` pairs of nodes and `directories` may take together.
    #[must_use]
    pub fn time(&self, nodes: usize, directories: usize) -> Nanoseconds {
        let cells = |count: usize, of: u64| {
            self.cell.0.saturating_mul(u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(of))
        };
        Nanoseconds(self.memory.0.min(cells(nodes, 5)).saturating_add(cells(directories, 6)))
    }
}

/// From where a memory node is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// From the CPUs that reach it best.
    BestInitiator,
    /// From every node with CPUs.
    All,
}
