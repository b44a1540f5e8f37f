//! The cache of DELI (IC2E 2021, section IV-B): one bounded collection in front of the cold store, which
//! forgets what was stored first.
//!
//! DELI keeps samples in a capped collection of `MongoDB`: a ring of bytes, in which a new document takes
//! the place of the oldest ones ("a first-in-first-out policy") and reading renews nothing. So a sample
//! enters when it was read from the cold store, wherever the oldest made way, and never moves; all
//! tiers are one ring. The paper has one, on disk. Its measured miss rates (figure 5) follow from this.
//!
//! Fetch size and prefetch threshold (section IV-C) are not matters of retention. What DELI requests ahead
//! is what a session stages ahead ([`crate::session::Settings::staged_batches`]); a session refills batch by batch
//! as places get free, where DELI waits until the threshold is reached.

use super::{Policy, Read, Setting, fastest, first_with_room, lists::Lists};
use crate::{
    id::{SampleId, TierId},
    retention::{future_accesses::FutureAccesses, residency::Residency},
};

/// The only list.
const RING: usize = 0;

/// Keeps what was fetched last.
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
        // There is room: the tier was chosen for it.
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
