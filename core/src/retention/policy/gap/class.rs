//! The decision about samples whose next use is equally many epochs away.

use alloc::{vec, vec::Vec};

/// The bytes of a class, and those of them that stay in each tier.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) supply: u64,
    pub(super) tiers: Vec<u64>,
}

/// The part of a class that is distributed so far.
#[derive(Debug)]
pub(super) struct Distribution {
    /// The room of each tier that is left for samples that lie there already.
    stays: Vec<u64>,
    /// Bytes that enter each tier, and their sum.
    enters: Vec<u64>,
    supply: u64,
    seen: u64,
    given: Vec<u64>,
}

impl Class {
    pub(super) fn new(supply: u64) -> Self {
        Self { supply, tiers: Vec::new() }
    }

    pub(super) fn kept(&self) -> u64 {
        self.tiers.iter().sum()
    }

    pub(super) fn is_kept(&self) -> bool {
        self.supply > 0 && self.kept() >= self.supply
    }

    pub(super) fn is_partly_kept(&self) -> bool {
        (1..self.supply).contains(&self.kept())
    }

    /// For a class that is kept: reserves the room of samples that lie in their tier and may stay
    /// there. The others are distributed like samples that enter.
    pub(super) fn distribution(&self, resident: &[u64]) -> Distribution {
        let tiers = self.tiers.iter().zip(resident);
        let enters: Vec<_> = tiers.map(|(tier, resident)| tier.saturating_sub(*resident)).collect();
        Distribution {
            stays: self.tiers.clone(),
            supply: enters.iter().sum(),
            enters,
            seen: 0,
            given: vec![0; resident.len()],
        }
    }
}

impl Distribution {
    pub(super) fn stays(&mut self, tier: u8, len: u64) -> bool {
        let room = &mut self.stays[usize::from(tier)];
        let fits = *room >= len;
        if fits {
            *room -= len;
        }
        fits
    }

    /// The tier of the next sample that enters: the one farthest behind its share, so that each fills
    /// evenly over the epoch.
    pub(super) fn enters(&mut self, len: u64) -> u8 {
        self.seen += len;
        let behind = |tier: &usize| {
            let due = u128::from(self.enters[*tier]) * u128::from(self.seen);
            let given = u128::from(self.given[*tier]) * u128::from(self.supply);
            (due.saturating_sub(given), core::cmp::Reverse(*tier))
        };
        let tier = (0..self.enters.len()).max_by_key(behind).expect("what stays has a tier");
        self.given[tier] += len;
        u8::try_from(tier).expect("tiers are counted in a byte")
    }
}
