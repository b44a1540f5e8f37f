//! How much of a long run must be played to tell one epoch of it.
//!
//! A run that begins a few epochs before the one in question, with empty tiers, has by then filled them as the
//! whole run has, but perhaps with other samples. What that changes depends on the policy; the test
//! `one_epoch` compares all of them.

use crate::{
    order::Spec,
    retention::policy::{Kind, Past},
};

/// The most epochs that are played before a single epoch of a long run.
const WARM_UP_MAX: u32 = 32;

/// The epochs that are to be played, from empty tiers, before a single epoch of a long run.
///
/// On one node, tiers are full after one epoch, and their contents are evened out after two. On several
/// nodes, a sample returns to a node after as many epochs as there are nodes on average, and no policy
/// looks into more than 32.
#[must_use]
pub fn warm_up(order: &Spec) -> u32 {
    order.world.nodes.saturating_mul(2).min(WARM_UP_MAX)
}

/// The relation of the bytes of an epoch by source, simulated from a late start, to those of the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateStart {
    /// They are equal: the contents of a tier follow from the last epochs.
    Equal,
    /// They differ by about a sample on one node, and by little on several: tiers are as full, with other
    /// samples.
    Near,
    /// They may differ by a tenth and more: the contents of a tier depend on epochs long past.
    Estimate,
}

impl LateStart {
    #[must_use]
    pub const fn of(policy: Kind, nodes: u32) -> Self {
        match policy.past() {
            Past::LastEpochs => Self::Equal,
            Past::FillingOfOneNode if nodes > 1 => Self::Estimate,
            Past::Filling | Past::FillingOfOneNode => Self::Near,
            Past::Long => Self::Estimate,
        }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Near => "near",
            Self::Estimate => "estimate",
        }
    }
}
