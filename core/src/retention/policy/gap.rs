//! Keeps a used sample if and only if its next use on this node is near enough.
//!
//! On one node every sample is used once per epoch, so all next uses are equally near and the rule
//! is pinning: what fits stays, the rest is read again. On several nodes a sample returns after one
//! epoch or after many, and room is best spent on the short gaps (`quota`). In both cases what
//! stays does not depend on the position in the epoch, so the cold reads are spread evenly over it;
//! Belady's rule reads as little, but all of it at the end of each epoch. Among samples of equal
//! worth it chooses those with which the batches of all ranks and steps miss equally many bytes
//! (`balance`).
//!
//! An epoch is planned before its first sample is read, from the orders, from the capacities of the
//! tiers at that time, and from the plan of the previous epoch, never from the residency: no
//! failure and no fast disk changes a plan. Only after a jump of the trainer does it start anew
//! from the residency. Planning is a [`Job`] for another thread; a caller that replays a policy
//! without a session runs it at once. Shorter gaps go to faster tiers; a sample changes its tier
//! only when it is read anyway.
//!
//! Deliberately absent: gaps beyond the epochs that are looked into. A sample with a farther next
//! use does not stay, unless everything fits.

mod balance;
mod class;
mod exchange;
mod job;
mod plan;
mod quota;
mod requests;
mod state;
mod table;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};

pub(super) use job::{Job, Planned};

use self::{
    job::Basis,
    plan::{Plan, Room},
    table::Table,
};
use super::{Need, Outcome, Policy, Preparation, Read, Setting, Task, first_with_room};
use crate::{
    id::{Epoch, SampleId, TierId},
    retention::{
        future_accesses::{DRIFT_MAX, FutureAccesses},
        residency::Residency,
    },
    units::Bytes,
};

#[derive(Debug)]
pub(super) struct Gap {
    /// `None` while a job uses it.
    plan: Option<Box<Plan>>,
    planned: Option<Epoch>,
    room: Room,
    lookahead: u32,
    /// The latest epoch that was read, without ranks that lag behind.
    current: Option<Epoch>,
    /// Of the current epoch and the previous one.
    tables: BTreeMap<Epoch, Table>,
    upcoming: Option<Upcoming>,
    fits: bool,
    growth: Growth,
    /// Samples that still have to leave their tier because the trainer jumped.
    unused: Vec<SampleId>,
}

#[derive(Debug)]
struct Upcoming {
    epoch: Epoch,
    table: Table,
    capacities: Vec<Bytes>,
    is_restarted: bool,
}

/// Samples that leave their tier with each read after the trainer jumped.
const LEAVING: usize = 16;

/// The growth of tiers since the epoch was planned: room that the plan does not know.
#[derive(Debug, Default)]
struct Growth {
    free: Vec<Bytes>,
    capacities: Vec<Bytes>,
    /// [`Residency::resizes`] at the last update.
    as_of: u64,
}

impl Gap {
    pub(super) fn new(setting: &Setting) -> Self {
        let plan = Box::new(Plan::new(setting));
        Self {
            room: plan.room().clone(),
            lookahead: plan.lookahead(),
            plan: Some(plan),
            planned: None,
            current: None,
            tables: BTreeMap::new(),
            upcoming: None,
            fits: false,
            growth: Growth::default(),
            unused: Vec::new(),
        }
    }

    fn is_elsewhere(&self, epoch: Epoch) -> bool {
        let is_far = |current: Epoch| epoch.0 > current.0 + 1 || epoch.0 + DRIFT_MAX < current.0;
        self.current.is_some_and(is_far)
    }

    fn is_entered(&self, epoch: Epoch) -> bool {
        self.current.is_some_and(|current| epoch <= current) && !self.is_elsewhere(epoch)
    }

    /// The basis of a plan of `epoch`; `None` if no plan is missing.
    fn missing(&self, epoch: Epoch, need: Need, residency: &Residency) -> Option<Basis> {
        let has_fitted = self.fits && self.current.is_some();
        if self.is_entered(epoch) || self.room.fits(capacities(residency)) {
            return None;
        }
        let upcoming = self.upcoming.as_ref().filter(|it| it.epoch == epoch);
        let must_restart = self.is_elsewhere(epoch) || has_fitted;
        if upcoming.is_some_and(|it| it.is_restarted || !must_restart) {
            return None;
        }
        let follows = self.planned.is_none_or(|planned| planned.0 + 1 == epoch.0);
        if follows && !must_restart {
            return Some(Basis::Plan);
        }
        // The residency at that time is not known ahead.
        (need == Need::Now).then(|| Basis::TierMap(residency.tier_map()))
    }

    fn enter(&mut self, epoch: Epoch, residency: &Residency) {
        self.fits = self.room.fits(capacities(residency));
        if self.is_elsewhere(epoch) {
            self.tables.clear();
        }
        if self.fits {
            self.unused.clear();
        }
        let upcoming = self.upcoming.take_if(|it| it.epoch == epoch);
        self.growth = match upcoming {
            Some(Upcoming { table, capacities, .. }) if !self.fits => {
                self.tables.insert(epoch, table);
                Growth::since(capacities, residency)
            }
            _ => Growth::since(capacities(residency).collect(), residency),
        };
        self.current = Some(epoch);
        self.tables.retain(|of, _| of.0 + 1 >= epoch.0);
    }

    fn follow_resizes(&mut self, residency: &Residency) {
        if self.growth.as_of != residency.resizes() {
            self.growth.follow(residency);
            self.fits |= self.room.fits(capacities(residency));
        }
    }

    /// The tier for a sample that is not in the plan. There is none, except on a single node, which reads
    /// the sample again in the next epoch: it may take room that was added after the plan was made.
    fn unplanned(
        &mut self,
        read: Read,
        tier: Option<TierId>,
        future: &FutureAccesses,
        residency: &Residency,
    ) -> Option<TierId> {
        let spec = future.spec();
        let is_read_next = spec.world.nodes == 1 && read.at.epoch.0 + 1 < spec.epochs;
        let len = residency.len_of(read.sample);
        if !is_read_next {
            return None;
        }
        match tier {
            Some(tier) => self.growth.take_in(tier, len),
            None => self.growth.take(len, residency),
        }
    }

    fn keep(sample: SampleId, tier: TierId, residency: &mut Residency) {
        if residency.put(sample, tier).is_err()
            && residency.tier_of(sample).is_none()
            && let Some(tier) = first_with_room(sample, residency)
        {
            // There is room: the tier was chosen for the sample.
            _ = residency.put(sample, tier);
        }
    }
}

fn capacities(residency: &Residency) -> impl Iterator<Item = Bytes> {
    residency.levels().iter().map(|level| level.capacity)
}

impl Growth {
    fn since(capacities: Vec<Bytes>, residency: &Residency) -> Self {
        let free = alloc::vec![Bytes(0); capacities.len()];
        let mut growth = Self { free, capacities, as_of: 0 };
        growth.follow(residency);
        growth
    }

    fn follow(&mut self, residency: &Residency) {
        for ((free, known), level) in
            self.free.iter_mut().zip(&mut self.capacities).zip(residency.levels())
        {
            free.0 = (free.0 + level.capacity.0).saturating_sub(known.0);
            *known = level.capacity;
        }
        self.as_of = residency.resizes();
    }

    /// The fastest tier that has grown enough for a sample; the sample takes that room. Room that is
    /// occupied by samples that grew into it in the epoch before is left to them until they are read.
    fn take(&mut self, len: Bytes, residency: &Residency) -> Option<TierId> {
        let mut grown = residency.tiers().zip(&self.free).filter(|(_, free)| **free >= len);
        let (tier, _) = grown.find(|(tier, _)| residency.free(*tier) >= len)?;
        self.take_in(tier, len)
    }

    fn take_in(&mut self, tier: TierId, len: Bytes) -> Option<TierId> {
        let free = self.free.get_mut(usize::from(tier.0)).filter(|free| **free >= len)?;
        free.0 -= len.0;
        Some(tier)
    }
}

impl Policy for Gap {
    fn lookahead(&self) -> u32 {
        self.lookahead
    }

    fn prepare(
        &mut self,
        epoch: Epoch,
        need: Need,
        future: &FutureAccesses,
        residency: &Residency,
    ) -> Preparation {
        let Some(basis) = self.missing(epoch, need, residency) else { return Preparation::Ready };
        let Some(plan) = self.plan.take() else { return Preparation::Pending };
        self.planned = Some(epoch);
        let orders = future.orders_from(epoch);
        let capacities = capacities(residency).collect();
        Preparation::Job(super::Job(Task::Gap(Job { plan, epoch, basis, orders, capacities })))
    }

    fn prepared(&mut self, planned: super::Planned) {
        let Outcome::Gap(planned) = planned.0 else { return };
        let Planned { plan, epoch, table, capacities, unused } = planned;
        self.plan = Some(plan);
        let is_restarted = unused.is_some();
        self.unused = unused.unwrap_or_default();
        self.upcoming = Some(Upcoming { epoch, table, capacities, is_restarted });
    }

    fn tier_after(&self, sample: SampleId, epoch: Epoch) -> Option<TierId> {
        let upcoming = self.upcoming.as_ref().filter(|it| it.epoch == epoch).map(|it| &it.table);
        self.tables.get(&epoch).or(upcoming)?.tier_after(sample)
    }

    fn touch(&self, samples: &[SampleId]) {
        let table = self.current.and_then(|epoch| self.tables.get(&epoch));
        table.into_iter().for_each(|table| table.touch(samples));
    }

    fn read(&mut self, read: Read, future: &FutureAccesses, residency: &mut Residency) {
        let Read { sample, at } = read;
        if self.current != Some(at.epoch) {
            if let Preparation::Job(job) = self.prepare(at.epoch, Need::Now, future, residency) {
                self.prepared(job.run());
            }
            if !self.is_entered(at.epoch) {
                self.enter(at.epoch, residency);
            }
        }
        self.follow_resizes(residency);
        let first = self.unused.len().saturating_sub(LEAVING);
        self.unused.drain(first..).for_each(|sample| residency.take_out(sample));
        let resident_in = residency.tier_of(sample);
        if self.fits {
            let tier = resident_in.or_else(|| first_with_room(sample, residency));
            tier.into_iter().for_each(|tier| Self::keep(sample, tier, residency));
            return;
        }
        // The rank lags far behind: later plans have decided about its samples since.
        let Some(table) = self.tables.get(&at.epoch) else { return };
        if let Some(tier) = table.tier_after(sample) {
            Self::keep(sample, tier, residency);
        } else if let Some(tier) = self.unplanned(read, resident_in, future, residency) {
            Self::keep(sample, tier, residency);
        } else {
            residency.take_out(sample);
        }
    }

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}
