//! How much of a long run must be played to tell one epoch of it.
//!
//! A run that begins a few epochs before the one in question, with empty tiers, has by then filled them as the
//! whole run has, but perhaps with other samples. What that changes depends on the policy; the test
//! `one_epoch` compares all of them.

use crate::{order::Spec, retention::policy::Kind};

/// Epochs that are played before one of a long run to tell that one alone, at most.
const WARM_UP_MAX: u32 = 32;

/// Epochs before one of a long run that are to be played, from empty tiers, to tell what that one does.
///
/// On one node tiers are full after one epoch, and what they hold is evened out after two. On several nodes a
/// sample returns to a node after so many epochs on average, and no policy looks into more than 32.
#[must_use]
pub fn warm_up(order: &Spec) -> u32 {
    order.world.nodes.saturating_mul(2).min(WARM_UP_MAX)
}

/// How the bytes of an epoch by source, told from a late start, lie to those of the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateStart {
    /// They are equal: what a tier holds follows from the last epochs.
    Equal,
    /// They differ by about a sample on one node, and by little on several: tiers are as full, with other
    /// samples.
    Near,
    /// They may differ by a tenth and more: what a tier holds depends on epochs long past.
    Estimate,
}

impl LateStart {
    /// The rule for a policy on one of so many nodes.
    #[must_use]
    pub const fn of(policy: Kind, nodes: u32) -> Self {
        match policy {
            Kind::None | Kind::Fifo => Self::Equal,
            Kind::PageCache => Self::Estimate,
            Kind::Pinned | Kind::Partitioned | Kind::NoPfs | Kind::Belady | Kind::LobsterLazy
                if nodes > 1 =>
            {
                Self::Estimate
            }
            Kind::Gap
            | Kind::DeepMemory
            | Kind::Lobster
            | Kind::LobsterLazy
            | Kind::NoPfs
            | Kind::Deli
            | Kind::Pinned
            | Kind::Partitioned
            | Kind::Belady
            | Kind::Lru => Self::Near,
        }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Near => "near",
            Self::Estimate => "estimate",
        }
    }
}
