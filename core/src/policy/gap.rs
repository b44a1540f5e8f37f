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
//! not stay.

mod balance;
mod exchange;
mod plan;
mod quota;
mod requests;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use self::plan::Plan;
use super::{Policy, Read, Setting};
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
    epochs: u32,
    /// By how much each tier has grown since the epoch was planned, so far as it is not used yet.
    grown: Vec<Bytes>,
    capacities: Vec<Bytes>,
}

impl Gap {
    pub(super) fn new(setting: &Setting) -> Self {
        Self {
            plan: Plan::new(setting),
            planned: None,
            epochs: setting.order.epochs,
            grown: Vec::new(),
            capacities: Vec::new(),
        }
    }

    fn plan(&mut self, epoch: Epoch, horizon: &Horizon, books: &Books) {
        if self.planned.is_none_or(|planned| planned < epoch) {
            self.plan.epoch(epoch, horizon, books);
            self.planned = Some(epoch);
            self.capacities = books.levels().iter().map(|level| level.capacity).collect();
            self.grown = alloc::vec![Bytes(0); self.capacities.len()];
        }
        let levels = self.capacities.iter_mut().zip(books.levels());
        for ((known, level), grown) in levels.zip(&mut self.grown) {
            if *known != level.capacity {
                grown.0 = (grown.0 + level.capacity.0).saturating_sub(known.0);
                *known = level.capacity;
            }
        }
    }

    /// The fastest tier that has grown enough since the plan was made to take what it left out.
    fn grown_tier(&mut self, len: Bytes) -> Option<TierId> {
        let tier = self.grown.iter().position(|grown| *grown >= len)?;
        self.grown[tier].0 -= len.0;
        u8::try_from(tier).ok().map(TierId)
    }
}

impl Policy for Gap {
    fn lookahead(&self) -> u32 {
        self.plan.lookahead()
    }

    fn read(&mut self, read: Read, horizon: &Horizon, books: &mut Books) {
        let Read { sample, at } = read;
        self.plan(at.epoch, horizon, books);
        let is_last = at.epoch.0 + 1 >= self.epochs;
        let lies = books.tier_of(sample);
        let tier = self.plan.tier_after(sample, at.epoch);
        let grown = |it: &mut Self| it.grown_tier(books.len_of(sample)).filter(|_| !is_last);
        match tier.or_else(|| if lies.is_none() { grown(self) } else { None }) {
            Some(tier) if books.put(sample, tier).is_err() && lies.is_none() => {
                let len = books.len_of(sample);
                let room = books.tiers().find(|tier| books.free(*tier) >= len);
                room.map(|tier| books.put(sample, tier));
            }
            Some(_) => {}
            None => books.take_out(sample),
        }
    }

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}
