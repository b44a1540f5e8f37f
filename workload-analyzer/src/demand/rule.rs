//! The retention rules that have a closed form.

use serde::Serialize;
use tierfeed_core::{retention::policy, units::Nanoseconds};

use super::{limit, seconds};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Rule {
    /// Keeps the samples with the nearest next use; the optimum.
    Gap,
    /// Keeps a part of the dataset that is chosen once.
    Pinned,
    /// Keeps one copy of each sample on all nodes together, as many as fit, and reads them from there.
    Partitioned,
    /// Keeps the samples that were inserted last.
    Fifo,
    /// Keeps the samples that were used last.
    Lru,
    None,
}

impl Rule {
    /// The rules that need no other node, the best first.
    pub const ALL: [Self; 5] = [Self::Gap, Self::Pinned, Self::Fifo, Self::Lru, Self::None];

    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The hit ratio from the second epoch on. `cached` is the cache of each node as a share of the dataset.
    #[must_use]
    pub fn hit_share(self, cached: f64, nodes: u32) -> f64 {
        match self {
            Self::Gap => limit::best(cached, nodes),
            Self::Pinned => limit::pinned(cached),
            Self::Partitioned => limit::pinned(cached * f64::from(nodes)),
            Self::Fifo => limit::fifo(cached, nodes),
            Self::Lru => limit::lru(cached, nodes),
            Self::None => 0.0,
        }
    }
}

/// The closed form of a policy, or the nearest one.
///
/// - `belady` and `lobster-lazy` have the hit ratio of `gap`.
/// - `lobster` has it on one node. On several nodes it keeps only samples that are used in the next epoch, at
///   most 1 / nodes of the reads, which the form ignores.
/// - `nopfs` is `pinned` on one node. On several nodes it starts above and approaches it with every epoch.
/// - `deli` is `fifo`. So is `deepmemory` with one tier, except for the part of its buffers that it leaves
///   free; with several tiers the effect of its demotions has no closed form.
/// - `page-cache` starts as `lru` and learns to protect a part, which has no closed form.
impl From<policy::Kind> for Rule {
    fn from(kind: policy::Kind) -> Self {
        use policy::Kind;
        match kind {
            Kind::Gap | Kind::Belady | Kind::Lobster | Kind::LobsterLazy => Self::Gap,
            Kind::Pinned | Kind::NoPfs => Self::Pinned,
            Kind::Partitioned => Self::Partitioned,
            Kind::DeepMemory | Kind::Deli | Kind::Fifo => Self::Fifo,
            Kind::Lru | Kind::PageCache => Self::Lru,
            Kind::None => Self::None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RuleOutcome {
    pub policy: Rule,
    /// The share of the reads of an epoch after the first that need no cold read.
    pub hit_ratio: f64,
    /// The stall of the trainers in an epoch after the first; `None` if the step time is unknown.
    #[serde(rename = "stall_s", serialize_with = "seconds::optional")]
    pub stall: Option<Nanoseconds>,
}
