//! Planning one epoch, as a value that any thread can run.

use alloc::{boxed::Box, vec::Vec};

use super::{plan::Plan, table::Table};
use crate::{
    id::{Epoch, SampleId},
    retention::{future_accesses::Orders, residency::TierMap},
    units::Bytes,
};

#[derive(Debug)]
pub(in super::super) struct Job {
    pub(super) plan: Box<Plan>,
    pub(super) epoch: Epoch,
    pub(super) basis: Basis,
    pub(super) orders: Orders,
    pub(super) capacities: Vec<Bytes>,
}

#[derive(Debug)]
pub(super) enum Basis {
    Plan,
    TierMap(TierMap),
}

#[derive(Debug)]
pub(in super::super) struct Planned {
    pub(super) plan: Box<Plan>,
    pub(super) epoch: Epoch,
    pub(super) table: Table,
    /// Capacities of the tiers, as far as the plan knows them.
    pub(super) capacities: Vec<Bytes>,
    /// Present if the plan started anew: samples that no later plan would evict.
    pub(super) unused: Option<Vec<SampleId>>,
}

impl Job {
    /// Takes a second or more for millions of samples.
    #[must_use]
    pub(in super::super) fn run(self) -> Planned {
        let Self { mut plan, epoch, basis, orders, capacities } = self;
        let unused = match basis {
            Basis::Plan => None,
            Basis::TierMap(tier_map) => Some(plan.restart(epoch, &orders, &tier_map)),
        };
        let table = plan.epoch(epoch, &orders, &capacities);
        Planned { plan, epoch, table, capacities, unused }
    }
}
