//! The samples of each tier that will not be used before a FIFO buffer gives them up, in the order in which
//! they entered.

use alloc::{vec, vec::Vec};

use super::lists::Lists;
use crate::{
    id::{SampleId, TierId},
    retention::residency::Residency,
};

const NOWHERE: u8 = u8::MAX;

/// Samples whose room may be taken without a loss. A sample that has left its tier since is skipped when it
/// is found.
#[derive(Debug)]
pub(super) struct Idle {
    lists: Lists,
    /// The tier in whose list each sample is.
    listed: Vec<u8>,
}

impl Idle {
    pub(super) fn new(samples: usize, tiers: usize) -> Self {
        Self { lists: Lists::new(samples, tiers), listed: vec![NOWHERE; samples] }
    }

    pub(super) fn enter(&mut self, sample: SampleId, tier: TierId) {
        self.leave(sample);
        self.lists.enter(sample, usize::from(tier.0));
        self.listed[sample.0 as usize] = tier.0;
    }

    pub(super) fn contains(&self, sample: SampleId) -> bool {
        self.listed[sample.0 as usize] != NOWHERE
    }

    /// Has no effect on a sample that is not listed.
    pub(super) fn leave(&mut self, sample: SampleId) {
        let listed = core::mem::replace(&mut self.listed[sample.0 as usize], NOWHERE);
        if listed != NOWHERE {
            self.lists.leave(sample, usize::from(listed));
        }
    }

    /// Removes and returns the sample of a tier that was listed first, of those that still lie there.
    pub(super) fn take(&mut self, tier: TierId, residency: &Residency) -> Option<SampleId> {
        while let Some(oldest) = self.lists.oldest(usize::from(tier.0)) {
            self.leave(oldest);
            if residency.tier_of(oldest) == Some(tier) {
                return Some(oldest);
            }
        }
        None
    }
}
