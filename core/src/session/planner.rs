//! What the node reads and keeps: the orders of epochs, their plans, and the cache that follows them.
//!
//! To permute an epoch and to plan it takes longer than trainers may wait for the loop, so both are jobs:
//! values that any thread can run. While a job of an epoch runs, its batches are not staged; those of other
//! epochs are. The next epoch is begun when half of the current one is staged.
//!
//! The node is in one epoch, [`Planner::main`], of which there is one plan. A rank that is in another epoch
//! reads samples where they lie and leaves them there, so that one trainer which jumps between epochs costs
//! the others nothing; only when most of the ranks that ask are elsewhere does the node follow them.
//!
//! A decision follows from the orders and the reads before it, never from when a job ends. So that a job of
//! millions of samples begins at once, what its ranks stage first needs no plan: of these batches nothing
//! stays, whether the plan is there or not ([`unplanned_steps`]). Their next reads are cold, which is next to
//! nothing of an epoch.

use alloc::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};

use super::{Settings, entry::EntryRef};
use crate::{
    id::{BatchId, Epoch, Rank, SampleId},
    order::{Shuffle, Spec},
    retention::{
        cache::Cache,
        form::Form,
        future_accesses::{
            DRIFT_MAX, Dropped, Expanded, Expansion, FutureAccesses, Publication, Reach,
        },
        policy::{self, Need, Planned, Preparation, Read},
        wear::Wear,
    },
};

/// With this many samples, the orders and the plan that a first epoch needs take a second.
const SAMPLES_MANY: u32 = 4_194_304;

/// The first steps of the run, whose batches are read before anything is planned: those that are staged
/// before the first batch is taken.
fn unplanned_steps(settings: &Settings, lookahead: u32) -> u32 {
    let Spec { shuffle, .. } = settings.order;
    let is_long = settings.order.all_samples() >= SAMPLES_MANY
        && shuffle != Shuffle::Published
        && lookahead > 0;
    if is_long { settings.staged_batches } else { 0 }
}

#[derive(Debug)]
pub enum Job {
    Expand(Expansion),
    Plan(policy::Job),
    /// Gives the memory of orders back.
    Drop(Vec<Dropped>),
}

#[derive(Debug)]
pub enum Finished {
    Expanded(Expanded),
    Planned(Planned),
    Dropped,
}

impl Job {
    /// Takes up to some seconds for millions of samples.
    #[must_use]
    pub fn run(self) -> Finished {
        match self {
            Self::Expand(expansion) => Finished::Expanded(expansion.run()),
            Self::Plan(job) => Finished::Planned(job.run()),
            Self::Drop(dropped) => {
                drop(dropped);
                Finished::Dropped
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// In the epoch that the node is in, or near it: the policy decides which samples stay.
    Planned,
    /// In another epoch, or at the start of a large job: nothing is kept and nothing is evicted.
    Stray,
}

/// The future accesses of the node, its cache, and the jobs that prepare both.
#[derive(Debug)]
pub(super) struct Planner {
    future: FutureAccesses,
    cache: Cache,
    jobs: VecDeque<Job>,
    /// The epoch that the node is in.
    main: Epoch,
    /// The latest epoch for which it is planned which samples stay.
    planned: Option<Epoch>,
    /// Whether the epoch after `main` was begun.
    has_begun_next: bool,
    unprepared: BTreeSet<Rank>,
    unplanned_steps: u32,
}

impl Planner {
    pub(super) fn new(settings: &Settings) -> Self {
        let order = settings.order;
        let policy = policy::build(settings.policy, &settings.policy_setting());
        let future = FutureAccesses::new(order, settings.node, policy.lookahead())
            .with_next_uses(policy.next_uses());
        let sizes = Arc::clone(&settings.sizes);
        let unplanned_steps = unplanned_steps(settings, policy.lookahead());
        let cache = Cache::new(&settings.tiers, settings.chunk, sizes, policy)
            .with_wear(Wear::within(settings.aim.writes_per_epoch.clone()))
            .with_ahead_in(settings.ahead_tiers());
        let is_prepared = settings.transform.as_ref().is_some_and(|it| it.cached == Form::Prepared);
        let mut planner = Self {
            future,
            cache: if is_prepared { cache.without_empty() } else { cache },
            jobs: VecDeque::new(),
            main: order.start.epoch,
            planned: None,
            has_begun_next: false,
            unprepared: BTreeSet::new(),
            unplanned_steps,
        };
        planner.begin_first();
        planner
    }

    /// Reads this many steps of the run without a plan, as if the job were large.
    #[cfg(test)]
    pub(super) fn read_unplanned(&mut self, steps: u32) {
        self.unplanned_steps = steps;
        self.begin_first();
    }

    /// Begins the orders and the plan of the epoch where a large job starts, before a trainer comes.
    fn begin_first(&mut self) {
        let first = self.spec().start.epoch;
        let is_missing = self.unplanned_steps > 0 && self.planned.is_none() && self.main == first;
        if is_missing && self.expand(first, Reach::View) {
            self.plan_epoch(first, Need::Now);
        }
    }

    fn is_unplanned(&self, batch: BatchId) -> bool {
        batch.epoch == self.spec().start.epoch && batch.step.0 < self.unplanned_steps
    }

    pub(super) fn spec(&self) -> &Spec {
        self.future.spec()
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(super) fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }

    pub(super) fn main(&self) -> Epoch {
        self.main
    }

    pub(super) fn holds(&self, epoch: Epoch) -> bool {
        self.future.holds(epoch)
    }

    pub(super) fn planned(&self) -> Option<Epoch> {
        self.planned
    }

    /// `None` if the order of the batch is not known yet.
    pub(super) fn samples(&self, batch: BatchId) -> Option<&[SampleId]> {
        self.future.batch(batch)
    }

    /// `None` until it is planned which of them stay.
    pub(super) fn planned_samples(&self, batch: BatchId) -> Option<&[SampleId]> {
        let is_planned = Some(batch.epoch) <= self.planned && batch.epoch.0 + 1 >= self.main.0;
        self.samples(batch).filter(|_| is_planned)
    }

    pub(super) fn read(&mut self, entry: EntryRef, sample: SampleId) {
        let read = Read { sample, at: self.future.read_of(entry.batch, entry.index) };
        self.cache.read(read, &self.future);
    }

    pub(super) fn publish(
        &mut self,
        rank: Rank,
        epoch: Epoch,
        samples: Arc<Vec<SampleId>>,
    ) -> Publication {
        let publication = self.future.publish(rank, epoch, samples);
        self.drop_orders();
        publication
    }

    pub(super) fn next_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Returns the ranks that waited for a job; `None` if none can have waited for this one.
    pub(super) fn finish(&mut self, finished: Finished) -> Option<BTreeSet<Rank>> {
        match finished {
            Finished::Expanded(expanded) => self.future.expanded(expanded),
            Finished::Planned(planned) => self.cache.prepared(planned),
            Finished::Dropped => return None,
        }
        self.begin_first();
        if self.has_begun_next {
            self.begin_next();
        }
        Some(core::mem::take(&mut self.unprepared))
    }

    /// The reading of a batch; `None` if a job has to end first, and the rank must wait. `requested` are
    /// the batches that ranks ask for.
    pub(super) fn prepare(
        &mut self,
        batch: BatchId,
        requested: impl Iterator<Item = BatchId>,
    ) -> Option<Reading> {
        let reading = match self.reading(batch.epoch, requested) {
            Reading::Planned if self.is_unplanned(batch) => Reading::Stray,
            reading => reading,
        };
        let reach = match reading {
            Reading::Planned => Reach::View,
            Reading::Stray => Reach::Epoch,
        };
        let is_ready = self.expand(batch.epoch, reach)
            && (reading == Reading::Stray || self.plan_epoch(batch.epoch, Need::Now));
        if !is_ready {
            self.unprepared.insert(batch.rank);
            return None;
        }
        if reading == Reading::Planned && batch.epoch > self.main {
            self.enter(batch.epoch);
        }
        Some(reading)
    }

    /// The next epoch, if its preparation has to begin at this staged batch: half of the current epoch is
    /// staged then.
    pub(super) fn leads_to(&self, batch: BatchId) -> Option<Epoch> {
        let is_half = batch.step.0 >= self.spec().steps_in(batch.epoch) / 2;
        let begins = batch.epoch == self.main && is_half && !self.has_begun_next;
        begins.then_some(Epoch(self.main.0 + 1))
    }

    fn reading(&mut self, epoch: Epoch, requested: impl Iterator<Item = BatchId>) -> Reading {
        // Of these epochs all orders are held that the policy looks into.
        let is_held = epoch.0 + 1 >= self.main.0 && epoch.0 <= self.main.0 + 1;
        if is_held {
            return Reading::Planned;
        }
        if self.is_near(epoch) || !self.is_left(requested) {
            return Reading::Stray;
        }
        self.enter(epoch);
        Reading::Planned
    }

    fn is_near(&self, epoch: Epoch) -> bool {
        epoch.0 <= self.main.0 + 1 && epoch.0 + DRIFT_MAX >= self.main.0
    }

    fn is_left(&self, requested: impl Iterator<Item = BatchId>) -> bool {
        let (near, far): (Vec<_>, Vec<_>) = requested.partition(|it| self.is_near(it.epoch));
        near.is_empty() || far.len() > near.len()
    }

    fn enter(&mut self, epoch: Epoch) {
        self.main = epoch;
        self.planned = self.planned.filter(|planned| planned.0 <= epoch.0 + 1);
        self.has_begun_next = false;
        self.future.follow(epoch);
        self.drop_orders();
    }

    pub(super) fn begin_next(&mut self) {
        self.has_begun_next = true;
        let next = Epoch(self.main.0 + 1);
        if next.0 < self.spec().epochs && self.expand(next, Reach::View) {
            self.plan_epoch(next, Need::Soon);
        }
    }

    /// Begins the orders that are missing from `epoch` on. Returns whether none is missing.
    fn expand(&mut self, epoch: Epoch, reach: Reach) -> bool {
        let expansions = self.future.expand(epoch, reach);
        self.jobs.extend(expansions.into_iter().map(Job::Expand));
        self.future.is_expanded(epoch, reach)
    }

    /// Begins the plan of an epoch if it is missing. Returns whether it is there.
    fn plan_epoch(&mut self, epoch: Epoch, need: Need) -> bool {
        match self.cache.prepare(epoch, need, &self.future) {
            Preparation::Ready => {
                self.planned = self.planned.max(Some(epoch));
                true
            }
            Preparation::Pending => false,
            Preparation::Job(job) => {
                self.jobs.push_back(Job::Plan(job));
                false
            }
        }
    }

    fn drop_orders(&mut self) {
        let dropped = self.future.take_dropped();
        if !dropped.is_empty() {
            self.jobs.push_back(Job::Drop(dropped));
        }
    }
}
