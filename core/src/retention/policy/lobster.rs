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
//!
//! A job adjusts both rules ([`Reuse`]): how many uses must be left, and how far the next one may be. With a
//! count above 0 the uses of every sample in all epochs are counted first, as [`super::nopfs`] does. What an
//! eager rule evicts is gone at once; what a lazy one would evict goes first when room is needed, so there
//! the distance changes nothing, but the count does.

use alloc::vec::Vec;

use super::{Distance, Policy, Read, Reuse, Setting, belady, farthest::Farthest, nopfs};
use crate::{
    id::{SampleId, TierId},
    order::Shuffle,
    retention::{
        future_accesses::{FutureAccesses, NextUse, NextUses, Use},
        residency::Residency,
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    Eager,
    Lazy,
    /// As [`super::belady`] has it: at once what is not used again, and nothing of Lobster's own.
    Bypass,
}

/// Keeps what is used in the next epoch (eager), or the nearest next uses.
#[derive(Debug)]
pub(super) struct Lobster {
    kept: Farthest,
    eviction: Eviction,
    reuse: Reuse,
    /// The uses that are left of each sample; `None` if the rule does not ask for them, or they are not
    /// known.
    left: Option<Vec<u32>>,
    lookahead: u32,
}

impl Lobster {
    pub(super) fn new(setting: &Setting, eviction: Eviction) -> Self {
        let reuse = setting.aim.tuning.lobster;
        let steps = setting.order.steps_per_epoch().max(1);
        let lookahead = match (eviction, reuse.distance) {
            // The rule looks no farther.
            (Eviction::Eager, Distance::Epochs(epochs)) => epochs,
            (Eviction::Eager, Distance::Steps(most)) => most.div_ceil(steps),
            (Eviction::Lazy | Eviction::Bypass, _) => belady::lookahead(setting),
        };
        let epochs_left = setting.order.epochs.saturating_sub(setting.order.start.epoch.0 + 1);
        let lookahead = lookahead.min(epochs_left.max(1)).min(belady::LOOKAHEAD_MAX);
        let kept = Farthest::new(setting.sizes.len(), setting.capacities.len());
        let counts = reuse.count > 0 && eviction != Eviction::Bypass;
        let left = counts.then(|| nopfs::counts(setting)).flatten();
        Self { kept, eviction, reuse, left, lookahead }
    }

    /// Counts a use of a sample. Returns whether no more uses are left than the reuse count.
    fn is_used_up(&mut self, sample: SampleId) -> bool {
        let Some(left) = &mut self.left else { return false };
        let left = &mut left[sample.0 as usize];
        *left = left.saturating_sub(1);
        *left <= self.reuse.count
    }

    fn is_too_far(&self, next: NextUse, now: Use, future: &FutureAccesses) -> bool {
        match (next, self.reuse.distance) {
            (NextUse::Never, _) => true,
            // It is not used in the epochs looked into, unless they are not published yet.
            (NextUse::Later, _) => future.spec().shuffle != Shuffle::Published,
            (NextUse::At(_), Distance::Epochs(_)) => false,
            (NextUse::At(next), Distance::Steps(most)) => future.steps_between(now, next) > most,
        }
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
        let is_used_up = self.is_used_up(read.sample);
        match self.eviction {
            Eviction::Eager if is_used_up || self.is_too_far(next, read.at, future) => {
                self.kept.drop(read.sample, residency);
            }
            Eviction::Lazy if is_used_up => {
                self.kept.keep(read, NextUse::Never, future, residency);
            }
            Eviction::Bypass if next == NextUse::Never => self.kept.drop(read.sample, residency),
            Eviction::Eager | Eviction::Lazy | Eviction::Bypass => {
                self.kept.keep(read, next, future, residency);
            }
        }
    }

    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>) {
        self.kept.displaced(sample, from, to);
    }
}
