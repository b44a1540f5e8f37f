//! Buffers without foresight: a sample enters the fastest tier, and the oldest there moves one tier down.
//!
//! Of FIFO, age counts from the read that brought a sample in. On a shuffled epoch this keeps almost nothing until its
//! next use: it is the field's baseline. Of LRU, age counts from the last read. There the tiers are one order of recency,
//! cut at their capacities: for every j the first j tiers together hold what one cache of their joint capacity would
//! hold, at the price of a copy into each tier for each read.

use super::{Policy, Read, Setting, fastest, queue::Queues};
use crate::{
    id::{SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    SinceFirstRead,
    SinceLastRead,
}

#[derive(Debug)]
pub(super) struct ByAge {
    queues: Queues,
    age: Age,
}

impl ByAge {
    pub(super) fn new(setting: &Setting, age: Age) -> Self {
        Self { queues: Queues::new(setting.sizes.len(), setting.capacities.len()), age }
    }
}

impl Policy for ByAge {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, read: Read, _: &FutureAccesses, residency: &mut Residency) {
        let sample = read.sample;
        if let Some(tier) = residency.tier_of(sample) {
            if self.age == Age::SinceFirstRead {
                return;
            }
            self.queues.leave(sample, tier);
            if Some(tier) == fastest(sample, residency) {
                return self.queues.enter(sample, tier);
            }
            // Its place makes room for the samples that are demoted for it.
            residency.take_out(sample);
        }
        self.queues.admit(sample, residency);
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.queues.displaced(sample, from, to);
    }
}
