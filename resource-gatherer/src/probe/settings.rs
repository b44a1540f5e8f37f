//! The settings of a probe.

use std::path::PathBuf;

use tierfeed_core::{
    tier::{Kind, Speed},
    units::Bytes,
};

pub use crate::measure::limits::{Budget, Limits, Pairs};
use crate::{classify::Assignment, measure::object_store::Bucket, report::Report};

#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// The root of the tree that describes the machine; `/` for this one.
    pub sysroot: PathBuf,
    pub scratch: Option<PathBuf>,
    pub storage: Option<PathBuf>,
    pub budget: Budget,
    pub buckets: Vec<Bucket>,
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
    pub kind: Kind,
    /// Zero bandwidth means that only the latency is imposed.
    pub speed: Speed,
    /// Zero if that is not known yet.
    pub capacity: Bytes,
}
