//! What is measured, and how long that may take.

use std::path::PathBuf;

use tierfeed_core::{
    tier::{Kind, Speed},
    units::{Bytes, Nanoseconds},
};

use crate::{
    report::{Report, Traffic},
    tiers::Assignment,
};

/// What the caller wants measured.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// The root of the tree that describes the machine; `/` for this one.
    pub sysroot: PathBuf,
    /// A directory on a RAM disk.
    pub scratch: Option<PathBuf>,
    /// A directory on local storage.
    pub storage: Option<PathBuf>,
    /// How much time and memory it may take.
    pub budget: Budget,
    /// Buckets.
    #[cfg(feature = "object-store")]
    pub buckets: Vec<super::Bucket>,
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
                total: Nanoseconds(27_000_000_000),
                cell: Nanoseconds(600_000_000),
                memory: Nanoseconds(14_000_000_000),
                sample: Nanoseconds(10_000_000),
                buffer_min: Bytes::mib(256),
                buffer_max: Bytes::mib(1024),
                random_buffer: Bytes::mib(256),
                chunk: Bytes::mib(128),
                file: Bytes::mib(256),
                pairs: Pairs::BestInitiator,
                curves: &[Traffic::Read],
            },
            Self::Full => Limits {
                total: Nanoseconds(570_000_000_000),
                cell: Nanoseconds(30_000_000_000),
                memory: Nanoseconds(330_000_000_000),
                sample: Nanoseconds(20_000_000),
                buffer_min: Bytes::mib(256),
                buffer_max: Bytes::mib(4096),
                random_buffer: Bytes::mib(1024),
                chunk: Bytes::mib(512),
                file: Bytes::mib(2048),
                pairs: Pairs::All,
                curves: &[Traffic::Read, Traffic::Mix2To1, Traffic::Mix1To1],
            },
            Self::Custom(limits) => limits,
        }
    }
}

/// What a probe may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The time of the whole probe, from the first step to the report. What does not fit is left out and
    /// named.
    pub total: Nanoseconds,
    /// The time in samples of one cell: one kernel on one place.
    pub cell: Nanoseconds,
    /// The time for all pairs of memory nodes together, with everything: buffers, chains, samples.
    pub memory: Nanoseconds,
    /// How long one sample of memory shall take: long against the clock, short against a time slice.
    pub sample: Nanoseconds,
    /// The least length of each of the four buffers on a memory node, if its room allows.
    pub buffer_min: Bytes,
    /// Their greatest length.
    pub buffer_max: Bytes,
    /// The greatest length of the buffer of the random latency, whose small pages take long to touch.
    pub random_buffer: Bytes,
    /// What is copied from tier to tier, if the room allows.
    pub chunk: Bytes,
    /// How much is written to a directory, once.
    pub file: Bytes,
    /// From where each memory node is measured.
    pub pairs: Pairs,
    /// Under which traffic latency is measured.
    pub curves: &'static [Traffic],
}

/// From where a memory node is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// From the CPUs that reach it best.
    BestInitiator,
    /// From every node with CPUs.
    All,
}
