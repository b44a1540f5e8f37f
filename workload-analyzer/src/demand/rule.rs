//! The rules of retention that have a closed form.

use serde::{Serialize, Serializer};
use tierfeed_core::{policy, units::Nanoseconds};

use super::{limit, plain};

/// What stays in a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// What is used again soonest: the limit.
    Gap,
    /// A part that was chosen once.
    Pinned,
    /// What came last.
    Fifo,
    /// What was used last.
    Lru,
    /// Nothing.
    None,
}

impl Rule {
    /// All rules, the best first.
    pub const ALL: [Self; 5] = [Self::Gap, Self::Pinned, Self::Fifo, Self::Lru, Self::None];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Pinned => "pinned",
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::None => "none",
        }
    }

    /// The share of reads that a cache saves from the second epoch on. `cached` is the cache of each
    /// node as a share of the dataset.
    #[must_use]
    pub fn hit_share(self, cached: f64, nodes: u32) -> f64 {
        match self {
            Self::Gap => limit::best(cached, nodes),
            Self::Pinned => limit::pinned(cached),
            Self::Fifo => limit::fifo(cached, nodes),
            Self::Lru => limit::lru(cached, nodes),
            Self::None => 0.0,
        }
    }
}

/// `deepmemory` gives up in FIFO order: with one tier it is `fifo`, with several it keeps what its
/// last demotions spare, for which there is no closed form.
impl From<policy::Kind> for Rule {
    fn from(kind: policy::Kind) -> Self {
        match kind {
            policy::Kind::Gap => Self::Gap,
            policy::Kind::DeepMemory | policy::Kind::Fifo => Self::Fifo,
            policy::Kind::None => Self::None,
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a rule would come to on the same tiers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RuleOutcome {
    /// Which one.
    pub policy: Rule,
    /// The share of the reads of an epoch after the first that need no cold read.
    pub hit_ratio: f64,
    /// How long the trainers wait in an epoch after the first, if the step time is known.
    #[serde(rename = "stall_s", serialize_with = "plain::optional_seconds")]
    pub stall: Option<Nanoseconds>,
}
