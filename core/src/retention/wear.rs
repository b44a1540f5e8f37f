//! How many bytes may be written to tiers that wear out.
//!
//! Flash endures a limited number of written bytes. A job may limit the bytes of an epoch; a sample
//! that would exceed the limit is not kept on that tier. The limit is per epoch and not per hour,
//! because a decision must not depend on a clock.
//!
//! Invariant, checked by `mod tests`: no tier gets more bytes in an epoch than its budget.

use alloc::{vec, vec::Vec};

use crate::{
    id::{Epoch, TierId},
    units::Bytes,
};

#[derive(Debug, Clone, Default)]
pub struct Wear {
    /// A tier without an entry has no limit.
    budgets: Vec<Option<Bytes>>,
    written: Vec<u64>,
    epoch: Option<Epoch>,
}

impl Wear {
    #[must_use]
    pub fn within(budgets: Vec<Option<Bytes>>) -> Self {
        let written = vec![0; budgets.len()];
        Self { budgets, written, epoch: None }
    }

    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.budgets.iter().any(Option::is_some)
    }

    /// Begins an epoch, if it is later than all before: ranks that lag behind do not begin one
    /// again.
    pub fn enter(&mut self, epoch: Epoch) {
        if self.epoch.is_none_or(|current| current < epoch) {
            self.epoch = Some(epoch);
            self.written.fill(0);
        }
    }

    /// Whether the tier may take `len` more bytes; if so, they are counted.
    pub fn admits(&mut self, tier: TierId, len: Bytes) -> bool {
        let tier = usize::from(tier.0);
        let Some(Some(budget)) = self.budgets.get(tier) else { return true };
        let after = self.written[tier].saturating_add(len.0);
        let is_within = after <= budget.0;
        if is_within {
            self.written[tier] = after;
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_gets_its_budget_and_no_more() {
        let mut wear = Wear::within(vec![None, Some(Bytes(100))]);
        let flash = TierId(1);
        wear.enter(Epoch(3));
        assert!(wear.admits(flash, Bytes(60)));
        assert!(!wear.admits(flash, Bytes(41)));
        assert!(wear.admits(flash, Bytes(40)), "what is smaller may still fit");
        assert!(!wear.admits(flash, Bytes(1)));
        wear.enter(Epoch(2));
        assert!(!wear.admits(flash, Bytes(1)), "a rank that lags behind brings no new budget");
        wear.enter(Epoch(4));
        assert!(wear.admits(flash, Bytes(100)));
        assert!(!wear.admits(flash, Bytes(u64::MAX)));
    }

    #[test]
    fn a_tier_without_a_budget_takes_everything() {
        let mut wear = Wear::within(vec![None]);
        assert!(wear.admits(TierId(0), Bytes(u64::MAX)) && wear.admits(TierId(9), Bytes(1)));
        assert!(!wear.is_limited());
        assert!(Wear::within(vec![None, Some(Bytes(0))]).is_limited());
    }
}
