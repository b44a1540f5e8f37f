//! Keeps a used sample if and only if its next use on this node is near enough.
//!
//! On one node every sample is used once per epoch, so all next uses are equally near and the rule is
//! pinning: what fits stays, the rest is read again. On several nodes a sample comes back after one
//! epoch or after many, and room is best spent on the short gaps (`quota`). Either way what stays does
//! not depend on the position in the epoch, so the cold reads are spread evenly over it; Belady's rule
//! reads as little, but all of it at the end of each epoch. Where the rule leaves open which samples
//! stay, they are chosen so that the batches of all ranks and steps miss equally many bytes (`balance`).
//!
//! An epoch is planned when its first sample is read, from the orders alone and never from what lies
//! where: no failure and no fast disk changes a plan. Shorter gaps go to faster tiers; nothing moves
//! between tiers but a sample that is read anyway.
//!
//! Deliberately absent: gaps beyond the epochs that are looked into. What is used next after them does
//! not stay, unless everything fits.

mod balance;
mod class;
mod exchange;
mod plan;
mod quota;
mod requests;
mod state;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use self::plan::Plan;
use super::{Policy, Read, Setting, first_with_room};
use crate::{
    books::Books,
    horizon::Horizon,
    id::{Epoch, SampleId, TierId},
    units::Bytes,
};

/// Carries out a plan, one epoch after the other.
#[derive(Debug)]
pub(super) struct Gap {
    plan: Plan,
    planned: Option<Epoch>,
    /// Whether everything fits, so that nothing had to be planned.
    fits: bool,
    growth: Growth,
}

/// Epochs by which a rank may lag behind another: where epochs are shorter than what is staged.
const DRIFT_MAX: u32 = 8;

/// By how much tiers have grown since the epoch was planned: room that the plan does not know.
#[derive(Debug, Default)]
struct Growth {
    /// As far as it is not used yet.
    free: Vec<Bytes>,
    capacities: Vec<Bytes>,
    /// [`Books::resizes`] when this was true.
    as_of: u64,
}

impl Gap {
    pub(super) fn new(setting: &Setting) -> Self {
        let (plan, growth) = (Plan::new(setting), Growth::default());
        Self { plan, planned: None, fits: false, growth }
    }

    fn prepare(&mut self, epoch: Epoch, horizon: &Horizon, books: &mut Books) {
        let is_elsewhere = self
            .planned
            .is_some_and(|planned| epoch.0 > planned.0 + 1 || epoch.0 + DRIFT_MAX < planned.0);
        if is_elsewhere {
            self.plan.restart(epoch, horizon, books);
        }
        if is_elsewhere || self.planned.is_none_or(|planned| planned < epoch) {
            let fitted = core::mem::replace(&mut self.fits, self.plan.fits(books));
            if fitted && !self.fits && !is_elsewhere {
                self.plan.restart(epoch, horizon, books);
            }
            if !self.fits {
                self.plan.epoch(epoch, horizon, books);
            }
            self.planned = Some(epoch);
            self.growth = Growth::since(books);
        }
        if self.growth.as_of != books.resizes() {
            self.growth.follow(books);
            self.fits |= self.plan.fits(books);
        }
    }

    /// Where a sample goes of which the plan says nothing: nowhere, but on a single node, which reads it
    /// again in the next epoch, into room that came after the plan was made.
    fn unplanned(&mut self, read: Read, horizon: &Horizon, books: &Books) -> Option<TierId> {
        let spec = horizon.spec();
        let is_read_next = spec.world.nodes == 1 && read.at.epoch.0 + 1 < spec.epochs;
        if is_read_next { self.growth.take(books.len_of(read.sample)) } else { None }
    }

    /// Gives a sample the tier that the plan chose, or where that is full another one.
    fn keep(sample: SampleId, tier: TierId, books: &mut Books) {
        if books.put(sample, tier).is_err()
            && books.tier_of(sample).is_none()
            && let Some(tier) = first_with_room(sample, books)
        {
            // There is room: the tier was chosen for it.
            _ = books.put(sample, tier);
        }
    }
}

impl Growth {
    fn since(books: &Books) -> Self {
        let capacities: Vec<_> = books.levels().iter().map(|level| level.capacity).collect();
        Self { free: alloc::vec![Bytes(0); capacities.len()], capacities, as_of: books.resizes() }
    }

    fn follow(&mut self, books: &Books) {
        for ((free, known), level) in
            self.free.iter_mut().zip(&mut self.capacities).zip(books.levels())
        {
            free.0 = (free.0 + level.capacity.0).saturating_sub(known.0);
            *known = level.capacity;
        }
        self.as_of = books.resizes();
    }

    /// The fastest tier that has grown enough for a sample, which takes that room.
    fn take(&mut self, len: Bytes) -> Option<TierId> {
        let tier = self.free.iter().position(|free| *free >= len)?;
        self.free[tier].0 -= len.0;
        u8::try_from(tier).ok().map(TierId)
    }
}

impl Policy for Gap {
    fn lookahead(&self) -> u32 {
        self.plan.lookahead()
    }

    fn read(&mut self, read: Read, horizon: &Horizon, books: &mut Books) {
        let Read { sample, at } = read;
        self.prepare(at.epoch, horizon, books);
        let lies = books.tier_of(sample);
        if self.fits {
            let tier = lies.or_else(|| first_with_room(sample, books));
            tier.into_iter().for_each(|tier| Self::keep(sample, tier, books));
            return;
        }
        match (self.plan.tier_after(sample, at.epoch), lies) {
            (Some(tier), _) => Self::keep(sample, tier, books),
            (None, Some(_)) => books.take_out(sample),
            (None, None) => {
                if let Some(tier) = self.unplanned(read, horizon, books) {
                    Self::keep(sample, tier, books);
                }
            }
        }
    }

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}
