//! Planning one epoch, as a value that any thread can run.

use alloc::{boxed::Box, vec::Vec};

use super::{plan::Plan, table::Table};
use crate::{
    id::{Epoch, SampleId},
    retention::{future_accesses::Orders, residency::TierMap},
    units::Bytes,
};

/// What is needed to plan an epoch.
#[derive(Debug)]
pub struct Job {
    pub(super) plan: Box<Plan>,
    pub(super) epoch: Epoch,
    pub(super) basis: Basis,
    pub(super) orders: Orders,
    /// What the tiers may hold.
    pub(super) capacities: Vec<Bytes>,
}

/// What the plan starts from.
#[derive(Debug)]
pub(super) enum Basis {
    /// What the plan of the epoch before left.
    Plan,
    /// What lies where.
    TierMap(TierMap),
}

/// An epoch that is planned.
#[derive(Debug)]
pub struct Planned {
    pub(super) plan: Box<Plan>,
    pub(super) epoch: Epoch,
    pub(super) table: Table,
    /// What the tiers may hold, as far as the plan knows.
    pub(super) capacities: Vec<Bytes>,
    /// If it started anew: what no later plan would know of.
    pub(super) unused: Option<Vec<SampleId>>,
}

impl Job {
    /// Plans the epoch: for millions of samples that takes a second or more.
    #[must_use]
    pub fn run(self) -> Planned {
        let Self { mut plan, epoch, basis, orders, capacities } = self;
        let unused = match basis {
            Basis::Plan => None,
            Basis::TierMap(tier_map) => Some(plan.restart(epoch, &orders, &tier_map)),
        };
        let table = plan.epoch(epoch, &orders, &capacities);
        Planned { plan, epoch, table, capacities, unused }
    }
}
