//! The samples that wait in tiers for their next use: fetched from the cold store ahead of staging.
//!
//! They lie in room that the residency does not use, and give it up as soon as it does. What is needed
//! sooner lies in a faster tier, as far as there is room (DeepMemoryDL, Algorithm 1, lines 3 to 8).
//!
//! Invariants, checked by the tests of [`crate::retention::cache`]:
//!
//! 1. What waits is in no residency, and has a place.
//! 2. The residency and what waits take no more of a tier together than it may hold, except after it shrank.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};

use crate::{
    id::{BatchId, Epoch, Rank, SampleId, Step, TierId},
    units::Bytes,
};

/// The entry of a batch for which a sample was fetched; ordered as training needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Due {
    /// The batch that needs the sample.
    pub batch: BatchId,
    /// Its index in [`crate::batch::Batch::entries`].
    pub index: u32,
}

/// What waits in the tiers, by when it is needed.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    waiting: BTreeMap<SampleId, Waiting>,
    by_tier: Vec<BTreeSet<(Due, SampleId)>>,
    /// Those of each tier that go on to a faster one.
    passing: Vec<BTreeSet<(Due, SampleId)>>,
    by_rank: BTreeSet<(Rank, Due, SampleId)>,
    /// Samples that are being read from the cold store.
    arriving: BTreeSet<SampleId>,
    used: Vec<Bytes>,
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
    len: Bytes,
}

impl Ahead {
    pub(super) fn new(tiers: usize) -> Self {
        Self {
            by_tier: vec![BTreeSet::new(); tiers],
            passing: vec![BTreeSet::new(); tiers],
            used: vec![Bytes(0); tiers],
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn due(&self, sample: SampleId) -> Option<Due> {
        self.waiting.get(&sample).map(|waiting| waiting.due)
    }

    /// Bytes that wait in a tier.
    pub(super) fn used(&self, tier: TierId) -> Bytes {
        self.used[usize::from(tier.0)]
    }

    /// Notes that a sample of `len` bytes, rounded as its place is, waits in a tier.
    pub(super) fn insert(
        &mut self,
        sample: SampleId,
        due: Due,
        tier: TierId,
        len: Bytes,
        goes: Goes,
    ) {
        let before = self.waiting.insert(sample, Waiting { due, tier, len });
        assert!(before.is_none(), "{sample:?} waits in one place");
        self.by_tier[usize::from(tier.0)].insert((due, sample));
        if goes == Goes::Up {
            self.passing[usize::from(tier.0)].insert((due, sample));
        }
        self.by_rank.insert((due.batch.rank, due, sample));
        self.used[usize::from(tier.0)].0 += len.0;
    }

    /// Notes that a sample waits no more. Returns what it waited for.
    pub(super) fn remove(&mut self, sample: SampleId) -> Option<Due> {
        let Waiting { due, tier, len } = self.waiting.remove(&sample)?;
        self.by_tier[usize::from(tier.0)].remove(&(due, sample));
        self.passing[usize::from(tier.0)].remove(&(due, sample));
        self.by_rank.remove(&(due.batch.rank, due, sample));
        self.arriving.remove(&sample);
        self.used[usize::from(tier.0)].0 -= len.0;
        Some(due)
    }

    /// What waits for the first batch of a rank, and that batch.
    pub(super) fn first_of(&self, rank: Rank) -> Option<(SampleId, BatchId)> {
        let (of, due, sample) = self.by_rank.range((rank, FIRST, SampleId(0))..).next()?;
        (*of == rank).then_some((*sample, due.batch))
    }

    /// What waits for batches of a rank in an epoch.
    pub(super) fn of_epoch(&self, rank: Rank, epoch: Epoch) -> Vec<SampleId> {
        let first = Due { batch: BatchId { epoch, ..FIRST.batch }, index: 0 };
        let of_rank = self.by_rank.range((rank, first, SampleId(0))..);
        let of_epoch = of_rank.take_while(|(of, due, _)| *of == rank && due.batch.epoch == epoch);
        of_epoch.map(|(.., sample)| *sample).collect()
    }

    /// What is needed last of all that waits.
    pub(super) fn last(&self) -> Option<(Due, SampleId)> {
        self.by_tier.iter().filter_map(|waiting| waiting.last().copied()).max()
    }

    /// Notes that a sample is being read into its place, if it waits there.
    pub(super) fn arriving(&mut self, sample: SampleId) {
        if self.waiting.contains_key(&sample) {
            self.arriving.insert(sample);
        }
    }

    /// Notes that a sample is in its place. Returns whether it was being read into it.
    pub(super) fn arrived(&mut self, sample: SampleId) -> bool {
        self.arriving.remove(&sample)
    }

    /// What a tier holds that is needed last. Who takes its place waits for what is on its way there, so
    /// what is being read comes after all others.
    pub(super) fn last_in(&self, tier: TierId) -> Option<SampleId> {
        let mut last_first = self.by_tier[usize::from(tier.0)].iter().rev().map(|(_, it)| *it);
        let last = last_first.clone().next();
        last_first.find(|sample| !self.arriving.contains(sample)).or(last)
    }

    /// What is needed first of all that goes up from below a tier, and is not just being read.
    pub(super) fn first_below(&self, tier: TierId) -> Option<SampleId> {
        let below = self.passing.iter().skip(usize::from(tier.0) + 1);
        let is_free = |(_, sample): &&(Due, SampleId)| !self.arriving.contains(sample);
        let first = below.filter_map(|waiting| waiting.iter().find(is_free)).min();
        first.map(|(_, sample)| *sample)
    }
}

/// Not behind any entry.
const FIRST: Due =
    Due { batch: BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(0) }, index: 0 };
