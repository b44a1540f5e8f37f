//! The eviction of Lobster (ICPP 2022, doi:10.1145/3545008.3545090, section 4.4, "Eviction Policy based on
//! Reuse Distance and Deterministic Prefetching").
//!
//! - *Reuse count policy*: a sample that the node does not use again is evicted, "unless no other node
//!   in the group holds a copy", because the others would have to fetch it from the cold store. Nodes do
//!   not read from each other here, so no other node's copy matters, and it is always evicted.
//! - *Reuse distance policy*: after iteration h of I, a sample whose next reuse distance "is larger than
//!   2 x I - h" is evicted. The paper takes this for "will not be accessed by any GPUs on the node during
//!   the next epoch", which is exact if iterations count from 1; so that is asked here, one epoch ahead.
//!   It is applied when the sample is read instead of at the end of the iteration: the two differ for
//!   no sample that an iteration reads once.
//! - *Coordination with prefetching*: when the room is filled, "evict the training samples with the
//!   largest reuse distance".
//!
//! Eager is this as printed. On one node the distance is never that large, and the rule is
//! Belady's. On N nodes only samples used in the next epoch stay, so no cache has a hit ratio above
//! 1/N. Lazy uses both rules only as an eviction order when room is needed: the samples that the
//! rules would evict have farther next uses than the others, so the third rule says the same, and
//! the outcome is Belady's. The paper has one tier; several are filled as in [`super::farthest`].

use super::{Policy, Read, Setting, belady, farthest::Farthest};
use crate::{
    id::{SampleId, TierId},
    order::Shuffle,
    retention::{
        future_accesses::{FutureAccesses, NextUse, NextUses},
        residency::Residency,
    },
};

/// When the rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    /// As soon as a rule says so.
    Eager,
    /// Only when room is needed.
    Lazy,
}

/// Keeps what is used in the next epoch (eager), or the nearest next uses (lazy).
#[derive(Debug)]
pub(super) struct Lobster {
    kept: Farthest,
    eviction: Eviction,
    lookahead: u32,
}

impl Lobster {
    pub(super) fn new(setting: &Setting, eviction: Eviction) -> Self {
        let lookahead = match eviction {
            // The rule looks no farther than the next epoch.
            Eviction::Eager => 1,
            Eviction::Lazy => belady::lookahead(setting),
        };
        let kept = Farthest::new(setting.sizes.len(), setting.capacities.len());
        Self { kept, eviction, lookahead }
    }
}

impl Policy for Lobster {
    fn lookahead(&self) -> u32 {
        self.lookahead
    }

    fn next_uses(&self) -> NextUses {
        NextUses::Asked
    }

    fn read(&mut self, read: Read, future: &FutureAccesses, residency: &mut Residency) {
        let next = future.next_use(read.sample, read.at);
        if self.eviction == Eviction::Eager && is_evicted(next, future) {
            self.kept.drop(read.sample, residency);
        } else {
            self.kept.keep(read, next, future, residency);
        }
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.kept.displaced(sample, from, to);
    }
}

/// Whether the reuse count or the reuse distance evicts the sample.
fn is_evicted(next: NextUse, future: &FutureAccesses) -> bool {
    match next {
        NextUse::At(_) => false,
        // It is not used in the next epoch, unless that is not published yet.
        NextUse::Later => future.spec().shuffle != Shuffle::Published,
        NextUse::Never => true,
    }
}
