//! What a probe is asked to measure.

use std::path::PathBuf;

use tierfeed_core::{
    tier::{Kind, Speed},
    units::Bytes,
};

pub use crate::measure::limits::{Budget, Limits, Pairs};
use crate::{classify::Assignment, report::Report};

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
    /// Buckets to measure.
    #[cfg(feature = "object-store")]
    pub buckets: Vec<crate::measure::buckets::Bucket>,
    /// Further directories, with the kind of tier that each makes.
    pub further: Vec<(Kind, PathBuf)>,
    /// Tiers whose speed is imposed instead of measured.
    pub emulated: Vec<EmulatedTier>,
    /// Places that the user puts into one tier, against all measurements; directories as absolute paths
    /// without links.
    pub assignments: Vec<Assignment>,
    /// An earlier report: its tiers stand unless the figures clearly differ.
    pub previous: Option<Box<Report>>,
}

/// A tier that other memory plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmulatedTier {
    /// The kind of tier that it plays.
    pub kind: Kind,
    /// How fast it acts. Zero bandwidth means that only the latency is imposed.
    pub speed: Speed,
    /// How much it holds; zero if that is not known yet.
    pub capacity: Bytes,
}
