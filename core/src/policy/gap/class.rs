//! What becomes of the samples whose next use is equally many epochs away.

use alloc::{vec, vec::Vec};

/// How much there is, and how much of it stays where.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) supply: u64,
    /// Bytes that stay in each tier.
    pub(super) tiers: Vec<u64>,
}

/// What was dealt of a class so far.
#[derive(Debug)]
pub(super) struct Dealt {
    seen: u64,
    tiers: Vec<u64>,
}

impl Class {
    pub(super) fn new(supply: u64) -> Self {
        Self { supply, tiers: Vec::new() }
    }

    /// Bytes that stay in some tier.
    pub(super) fn kept(&self) -> u64 {
        self.tiers.iter().sum()
    }

    pub(super) fn is_kept(&self) -> bool {
        self.supply > 0 && self.kept() >= self.supply
    }

    pub(super) fn is_partly_kept(&self) -> bool {
        (1..self.supply).contains(&self.kept())
    }

    pub(super) fn undealt(&self) -> Dealt {
        Dealt { seen: 0, tiers: vec![0; self.tiers.len()] }
    }

    /// The tier of the next sample of a class that is kept: the one that is farthest behind its share, so
    /// that each fills evenly over the epoch.
    pub(super) fn deal(&self, dealt: &mut Dealt, len: u64) -> u8 {
        dealt.seen += len;
        let behind = |tier: &usize| {
            let due = u128::from(self.tiers[*tier]) * u128::from(dealt.seen);
            let given = u128::from(dealt.tiers[*tier]) * u128::from(self.supply);
            (due.saturating_sub(given), core::cmp::Reverse(*tier))
        };
        let tier = (0..self.tiers.len()).max_by_key(behind).expect("what stays has a tier");
        dealt.tiers[tier] += len;
        u8::try_from(tier).expect("tiers are counted in a byte")
    }
}
