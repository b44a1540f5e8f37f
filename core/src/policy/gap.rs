//! Keeps a used sample if and only if its next use on this node is near enough.
//!
//! With one node every sample is used once per epoch, so all next uses are equally near and the rule
//! is pinning: what fits stays, the rest is read again. No policy reads less, and because the choice
//! does not depend on the position in the epoch, the cold reads are spread evenly over it. Belady's
//! rule reads as little, but all of it at the end of each epoch.
//!
//! Deliberately absent: the rule for several nodes, where next uses are not equally near. There this
//! pins too, which is right but keeps less than could be kept.
//!
//! Source: `max sum n_k` subject to `sum k n_k <= c` has `K = 1` for one node; every sample that a
//! later epoch finds in a tier lay there over the epoch's start, and at most the capacity does.

use crate::{
    id::TierId,
    policy::{Candidate, Level, Outlook, Policy, position},
};

/// Pins what fits, in the fastest tier that has room.
#[derive(Debug)]
pub(super) struct Gap;

impl Policy for Gap {
    fn admit(&self, sample: Candidate, outlook: &dyn Outlook, tiers: &[Level]) -> Option<TierId> {
        let tier = position(tiers, |level| level.free >= sample.len)?;
        outlook.is_used_again(sample.sample).then_some(tier)
    }

    fn wants(&self, sample: Candidate, outlook: &dyn Outlook, _: &[Level]) -> bool {
        outlook.is_used_again(sample.sample)
    }
}
