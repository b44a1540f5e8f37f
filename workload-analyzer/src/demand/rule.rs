//! The rules of retention that have a closed form.

use serde::{Serialize, Serializer};
use tierfeed_core::{retention::policy, units::Nanoseconds};

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

/// The closed form of a policy, or the one that stands in for it.
///
/// - `belady` and `lobster-lazy` come to what `gap` comes to.
/// - `lobster` does so on one node. On several it keeps only what is used in the next epoch, at most
///   1 / nodes of the reads, which the form does not know.
/// - `nopfs` is `pinned` on one node. On several it begins above and comes closer with every epoch.
/// - `deli` is `fifo`. So is `deepmemory` with one tier, but for the part of its buffers that it leaves
///   free; with several it keeps what its last demotions spare, for which there is no closed form.
/// - `page-cache` begins as `lru` and learns to protect a part; there is no closed form for how much.
impl From<policy::Kind> for Rule {
    fn from(kind: policy::Kind) -> Self {
        use policy::Kind;
        match kind {
            Kind::Gap | Kind::Belady | Kind::Lobster | Kind::LobsterLazy => Self::Gap,
            Kind::Pinned | Kind::NoPfs => Self::Pinned,
            Kind::DeepMemory | Kind::Deli | Kind::Fifo => Self::Fifo,
            Kind::Lru | Kind::PageCache => Self::Lru,
            Kind::None => Self::None,
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
