//! What must be worked out before batches of an epoch are staged, begun ahead of need.
//!
//! To permute an epoch and to plan it takes longer than trainers may wait for the loop, so both are jobs:
//! values that any thread can run. While a job of an epoch runs, its batches get no places; those of other
//! epochs do. The next epoch is begun when half of the current one is staged.
//!
//! The node is in one epoch, [`Session::main`], of which there is one plan. A rank that is elsewhere reads
//! what lies where and leaves it there, so that one trainer which jumps to and fro costs the others
//! nothing; only when most of those that ask are elsewhere, the node goes there.
//!
//! A decision follows from the orders and the reads before it, never from when a job ends.

use alloc::vec::Vec;

use super::Session;
use crate::{
    id::{BatchId, Epoch},
    retention::{
        future_accesses::{DRIFT_MAX, Dropped, Expanded, Expansion, Reach},
        policy::{self, Need, Planned, Preparation},
    },
    units::Nanoseconds,
};

/// Work for another thread.
#[derive(Debug)]
pub enum Job {
    /// To work out what the node reads in an epoch.
    Expand(Expansion),
    /// To plan an epoch.
    Plan(policy::Job),
    /// To give memory back.
    Drop(Vec<Dropped>),
}

/// What a job brought.
#[derive(Debug)]
pub enum Finished {
    /// An epoch that is worked out.
    Expanded(Expanded),
    /// An epoch that is planned.
    Planned(Planned),
    /// Nothing.
    Dropped,
}

impl Job {
    /// Does the work: for millions of samples that takes up to some seconds.
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

/// How a batch is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// In the epoch that the node is in, or near it: the policy decides what stays.
    Planned,
    /// Elsewhere, or far behind: nothing comes and nothing goes.
    Stray,
}

impl Session {
    /// The next piece of work for another thread; what it brings is to be told by [`Self::finish`]. There
    /// is at most one for each epoch that is held, one plan, and one to give memory back for each epoch
    /// that was left.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Takes what a job brought. It does not matter which of several ends first.
    pub fn finish(&mut self, finished: Finished, now: Nanoseconds) {
        self.now = self.now.max(now);
        match finished {
            Finished::Expanded(expanded) => self.future.expanded(expanded),
            Finished::Planned(planned) => self.cache.prepared(planned),
            Finished::Dropped => return,
        }
        for rank in core::mem::take(&mut self.unprepared) {
            self.ranks.get_mut(&rank).into_iter().for_each(|staging| staging.is_blocked = false);
        }
        if self.is_looking_ahead {
            self.look_ahead();
        }
        self.follow_up();
    }

    /// Runs all jobs here and now, for who has no other thread.
    pub fn run_jobs(&mut self) {
        while let Some(job) = self.poll_job() {
            self.finish(job.run(), self.now);
        }
    }

    /// How a batch is to be read, once all that it needs is there; else `None`, and the rank must wait.
    pub(super) fn prepare(&mut self, batch: BatchId) -> Option<Reading> {
        let reading = self.reading(batch.epoch);
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

    /// Takes note of a batch that got its place: begins the next epoch when half of this one has.
    pub(super) fn note_staged(&mut self, batch: BatchId) {
        let steps = self.future.spec().steps_in(batch.epoch);
        if batch.epoch == self.main && batch.step.0 >= steps / 2 && !self.is_looking_ahead {
            self.is_looking_ahead = true;
            self.look_ahead();
        }
    }

    fn reading(&mut self, epoch: Epoch) -> Reading {
        // Of these all orders are held that the policy looks into.
        let is_held = epoch.0 + 1 >= self.main.0 && epoch.0 <= self.main.0 + 1;
        if is_held {
            return Reading::Planned;
        }
        if self.is_near(epoch) || !self.is_left() {
            return Reading::Stray;
        }
        self.enter(epoch);
        Reading::Planned
    }

    /// Whether an epoch is one that ranks are in which belong to those of the node.
    fn is_near(&self, epoch: Epoch) -> bool {
        epoch.0 <= self.main.0 + 1 && epoch.0 + DRIFT_MAX >= self.main.0
    }

    /// Whether most ranks that ask for batches are elsewhere.
    fn is_left(&self) -> bool {
        let asking = self.ranks.values().filter_map(super::staging::Staging::reached);
        let (near, far): (Vec<_>, Vec<_>) = asking.partition(|batch| self.is_near(batch.epoch));
        near.is_empty() || far.len() > near.len()
    }

    fn enter(&mut self, epoch: Epoch) {
        self.main = epoch;
        self.is_looking_ahead = false;
        self.future.follow(epoch);
        self.drop_elsewhere();
    }

    fn look_ahead(&mut self) {
        let next = Epoch(self.main.0 + 1);
        if next.0 < self.future.spec().epochs && self.expand(next, Reach::View) {
            self.plan_epoch(next, Need::Soon);
        }
    }

    /// Begins what is missing of the orders from `epoch` on; returns whether nothing is.
    fn expand(&mut self, epoch: Epoch, reach: Reach) -> bool {
        let expansions = self.future.expand(epoch, reach);
        self.jobs.extend(expansions.into_iter().map(Job::Expand));
        self.future.is_expanded(epoch, reach)
    }

    /// Begins the plan of an epoch if it is missing; returns whether it is not.
    fn plan_epoch(&mut self, epoch: Epoch, need: Need) -> bool {
        match self.cache.prepare(epoch, need, &self.future) {
            Preparation::Ready => true,
            Preparation::Pending => false,
            Preparation::Job(job) => {
                self.jobs.push_back(Job::Plan(job));
                false
            }
        }
    }

    pub(super) fn drop_elsewhere(&mut self) {
        let dropped = self.future.take_dropped();
        if !dropped.is_empty() {
            self.jobs.push_back(Job::Drop(dropped));
        }
    }
}
