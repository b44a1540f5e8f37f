//! The cache of DELI (IC2E 2021, section IV-B): one bounded FIFO collection in front of the cold
//! store.
//!
//! DELI keeps samples in a capped collection of `MongoDB`: a ring of bytes, in which a new document
//! overwrites the oldest ones ("a first-in-first-out policy") and a read does not renew an entry.
//! So a sample enters when it is read from the cold store, in the tier where the oldest samples are
//! evicted, and never moves; all tiers are one ring. The paper has one tier, on disk. Its measured
//! miss rates (figure 5) follow from this.
//!
//! Fetch size and prefetch threshold (section IV-C) do not concern retention. What DELI requests
//! ahead is what a session stages ahead ([`crate::session::Settings::staged_batches`]); a session
//! refills batch by batch as room becomes free, DELI waits until the threshold is reached.

use super::{Policy, Read, Setting, fastest, first_with_room, lists::Lists};
use crate::{
    id::{SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
};

const RING: usize = 0;

#[derive(Debug)]
pub(super) struct Deli {
    ring: Lists,
}

impl Deli {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { ring: Lists::new(setting.sizes.len(), 1) }
    }
}

impl Policy for Deli {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, read: Read, _: &FutureAccesses, residency: &mut Residency) {
        if residency.tier_of(read.sample).is_some() || fastest(read.sample, residency).is_none() {
            return;
        }
        let tier = loop {
            if let Some(tier) = first_with_room(read.sample, residency) {
                break tier;
            }
            let Some(oldest) = self.ring.oldest(RING) else { return };
            self.ring.leave(oldest, RING);
            residency.take_out(oldest);
        };
        // There is room: the tier was chosen for the sample.
        if residency.put(read.sample, tier).is_ok() {
            self.ring.enter(read.sample, RING);
        }
    }

    fn displaced(&mut self, sample: SampleId, _: TierId, to: Option<TierId>) {
        if to.is_none() {
            self.ring.leave(sample, RING);
        }
    }
}
