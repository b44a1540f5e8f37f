//! The samples that wait in tiers for their next use: fetched from the cold store ahead of staging.
//!
//! They lie in room that the residency does not use, and give it up as soon as it does. What is needed
//! sooner lies in a faster tier, as far as there is room (DeepMemoryDL, Algorithm 1, lines 3 to 8).
//!
//! Invariants, checked by the tests of [`crate::retention::cache`]:
//!
//! 1. What waits is in no residency, and has a place.
//! 2. The residency and what waits take no more of a tier together than it may hold, except after it shrank.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::cmp::Ordering;

use crate::{
    hash_table::HashTable,
    id::{BatchId, Epoch, Rank, SampleId, TierId},
    sorted_queue::SortedQueue,
    units::Bytes,
};

/// The entry of a batch for which a sample was fetched; ordered as training needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Due {
    pub batch: BatchId,
    /// Its index in [`crate::batch::Batch::entries`].
    pub index: u32,
}

impl Due {
    /// Its place in the order of training as one number, which is compared faster than four.
    fn key(&self) -> u128 {
        let BatchId { epoch, step, rank } = self.batch;
        let time = u128::from(epoch.0) << 96 | u128::from(step.0) << 64;
        time | u128::from(rank.0) << 32 | u128::from(self.index)
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The samples that wait in the tiers, by when they are needed. They are fetched ahead and used almost in
/// that order.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    waiting: HashTable<SampleId, Waiting>,
    by_tier: Vec<OfTier>,
    by_rank: BTreeMap<Rank, SortedQueue<(Due, SampleId)>>,
}

/// The samples that wait in one tier. Each queue gets its samples almost in the order in which they are
/// needed.
#[derive(Debug, Clone, Default)]
struct OfTier {
    /// Samples that were fetched into it and go on to a faster tier.
    fetched: SortedQueue<(Due, SampleId)>,
    /// Samples that came from another tier, and go on.
    moved: SortedQueue<(Due, SampleId)>,
    staying: SortedQueue<(Due, SampleId)>,
    used: Bytes,
}

impl OfTier {
    fn queue(&mut self, waits: Waits) -> &mut SortedQueue<(Due, SampleId)> {
        match waits {
            Waits::Fetched => &mut self.fetched,
            Waits::Moved => &mut self.moved,
            Waits::Staying => &mut self.staying,
        }
    }

    fn last(&self) -> Option<(Due, SampleId)> {
        self.fetched.last().max(self.moved.last()).max(self.staying.last())
    }

    /// The last sample that is wanted.
    fn rfind(&self, is_wanted: impl Fn(SampleId) -> bool) -> Option<(Due, SampleId)> {
        let wanted = |(_, sample): (Due, SampleId)| is_wanted(sample);
        let passing = self.fetched.rfind(wanted).max(self.moved.rfind(wanted));
        passing.max(self.staying.rfind(wanted))
    }

    /// The first sample that is wanted and goes on to a faster tier.
    fn find_passing(&self, is_wanted: impl Fn(SampleId) -> bool) -> Option<(Due, SampleId)> {
        let wanted = |(_, sample): (Due, SampleId)| is_wanted(sample);
        match (self.fetched.find(wanted), self.moved.find(wanted)) {
            (Some(fetched), Some(moved)) => Some(fetched.min(moved)),
            (fetched, moved) => fetched.or(moved),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Fetched,
    Moved,
    Staying,
}

/// Whether a sample goes on to a faster tier before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    /// As soon as there is room.
    Up,
    /// It does not: the policy is going to keep it in the tier where it waits.
    Nowhere,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    due: Due,
    tier: TierId,
    waits: Waits,
    is_arriving: bool,
    len: Bytes,
}

impl Ahead {
    pub(super) fn new(tiers: usize) -> Self {
        Self { by_tier: vec![OfTier::default(); tiers], ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn due(&self, sample: SampleId) -> Option<Due> {
        self.waiting.get(sample).map(|waiting| waiting.due)
    }

    pub(super) fn used(&self, tier: TierId) -> Bytes {
        self.by_tier[usize::from(tier.0)].used
    }

    /// `len` is rounded as the place of the sample is.
    pub(super) fn insert(
        &mut self,
        sample: SampleId,
        due: Due,
        tier: TierId,
        len: Bytes,
        goes: Goes,
    ) {
        let waits = match goes {
            Goes::Up => Waits::Fetched,
            Goes::Nowhere => Waits::Staying,
        };
        let waiting = Waiting { due, tier, waits, is_arriving: false, len };
        let before = self.waiting.insert(sample, waiting);
        assert!(before.is_none(), "{sample:?} waits in one place");
        self.by_rank.entry(due.batch.rank).or_default().insert((due, sample));
        self.enter(sample, waiting);
    }

    /// Notes that a sample moved to a tier, from where it goes up.
    pub(super) fn moved(&mut self, sample: SampleId, to: TierId) {
        let Some(waiting) = self.waiting.get_mut(sample) else { return };
        let before = *waiting;
        let now = Waiting { tier: to, waits: Waits::Moved, is_arriving: false, ..before };
        *waiting = now;
        self.leave(sample, before);
        self.enter(sample, now);
    }

    fn enter(&mut self, sample: SampleId, Waiting { due, tier, waits, len, .. }: Waiting) {
        let of_tier = &mut self.by_tier[usize::from(tier.0)];
        of_tier.queue(waits).insert((due, sample));
        of_tier.used.0 += len.0;
    }

    fn leave(&mut self, sample: SampleId, Waiting { due, tier, waits, len, .. }: Waiting) {
        let of_tier = &mut self.by_tier[usize::from(tier.0)];
        of_tier.queue(waits).remove((due, sample));
        of_tier.used.0 -= len.0;
    }

    /// Returns what the sample waited for.
    pub(super) fn remove(&mut self, sample: SampleId) -> Option<Due> {
        let waiting = self.waiting.remove(sample)?;
        self.leave(sample, waiting);
        let due = waiting.due;
        self.by_rank.entry(due.batch.rank).or_default().remove((due, sample));
        Some(due)
    }

    /// The first sample that waits for a batch of a rank, and that batch.
    pub(super) fn first_of(&self, rank: Rank) -> Option<(SampleId, BatchId)> {
        let (due, sample) = self.by_rank.get(&rank)?.first()?;
        Some((sample, due.batch))
    }

    /// In the order in which they are needed.
    pub(super) fn of_epoch(&self, rank: Rank, epoch: Epoch) -> Vec<SampleId> {
        let of_rank = self.by_rank.get(&rank).into_iter().flat_map(SortedQueue::iter);
        let mut of_epoch: Vec<_> = of_rank.filter(|(due, _)| due.batch.epoch == epoch).collect();
        of_epoch.sort_unstable();
        of_epoch.into_iter().map(|(_, sample)| sample).collect()
    }

    /// The waiting sample that is needed last.
    pub(super) fn last(&self) -> Option<(Due, SampleId)> {
        self.by_tier.iter().filter_map(OfTier::last).max()
    }

    pub(super) fn arriving(&mut self, sample: SampleId) {
        let waiting = self.waiting.get_mut(sample);
        waiting.into_iter().for_each(|waiting| waiting.is_arriving = true);
    }

    /// Returns whether the sample was being read into its place.
    pub(super) fn arrived(&mut self, sample: SampleId) -> bool {
        let waiting = self.waiting.get_mut(sample);
        waiting.is_some_and(|waiting| core::mem::replace(&mut waiting.is_arriving, false))
    }

    /// The sample of a tier that is needed last. One that is being read comes after all others: a sample
    /// that takes its place would have to wait for that read.
    pub(super) fn last_in(&self, tier: TierId) -> Option<SampleId> {
        let waiting = &self.by_tier[usize::from(tier.0)];
        let last = waiting.rfind(|sample| self.is_at_rest(sample)).or_else(|| waiting.last());
        last.map(|(_, sample)| sample)
    }

    /// The sample below a tier that is needed first, of those that go up and are not being read.
    pub(super) fn first_below(&self, tier: TierId) -> Option<SampleId> {
        let below = self.by_tier.iter().skip(usize::from(tier.0) + 1);
        let at_rest = |it: &OfTier| it.find_passing(|sample| self.is_at_rest(sample));
        let first = below.filter_map(at_rest).min();
        first.map(|(_, sample)| sample)
    }

    fn is_at_rest(&self, sample: SampleId) -> bool {
        self.waiting.get(sample).is_none_or(|waiting| !waiting.is_arriving)
    }
}
