//! Least recently used: evicts the sample whose last read is longest ago.
//!
//! The tiers are one order of recency, cut at their capacities: a sample that is read goes to the
//! fastest tier, and samples that make room there go to the next. So for every j the first j tiers
//! together hold what one cache of their joint capacity would hold, at the price of a copy into
//! each tier for each read.

use super::{Policy, Read, Setting, fastest, queue::Queues};
use crate::{
    id::{SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
};

#[derive(Debug)]
pub(super) struct Lru {
    queues: Queues,
}

impl Lru {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { queues: Queues::new(setting.sizes.len(), setting.capacities.len()) }
    }
}

impl Policy for Lru {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, read: Read, _: &FutureAccesses, residency: &mut Residency) {
        let sample = read.sample;
        let tier = residency.tier_of(sample);
        if let Some(tier) = tier {
            self.queues.leave(sample, tier);
        }
        if tier.is_some() && tier == fastest(sample, residency) {
            tier.into_iter().for_each(|tier| self.queues.enter(sample, tier));
        } else {
            // Its place makes room for the samples that are demoted for it.
            residency.take_out(sample);
            self.queues.admit(sample, residency);
        }
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.queues.displaced(sample, from, to);
    }
}
