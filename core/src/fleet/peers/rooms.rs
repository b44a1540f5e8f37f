//! The used and free bytes of the tiers of all nodes.
//!
//! A node offers less than its tiers hold if samples of unequal size could leave holes: so every
//! sample within the offered bytes fits into one of its tiers.

use alloc::{vec, vec::Vec};

use super::copies::Held;
use crate::{
    id::{NodeId, TierId},
    units::Bytes,
};

#[derive(Debug)]
pub(super) struct Rooms {
    /// Free bytes by node and tier.
    free: Vec<Vec<u64>>,
    /// Used bytes by node.
    used: Vec<u64>,
    usable: Vec<u64>,
}

/// The lengths of the shortest and of the longest sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Rooms {
    pub(super) fn new(capacities: &[Vec<Bytes>], lengths: Lengths) -> Self {
        let free = capacities.iter().map(|tiers| tiers.iter().map(|it| it.0).collect()).collect();
        let usable = capacities.iter().map(|tiers| usable(tiers, lengths)).collect();
        Self { free, used: vec![0; capacities.len()], usable }
    }

    /// Bytes that all nodes together can hold.
    pub(super) fn total(&self) -> u64 {
        self.usable.iter().fold(0, |sum, it| sum.saturating_add(*it))
    }

    /// Divides bytes among the nodes in proportion to their room.
    pub(super) fn shares_of(&self, bytes: u64) -> Vec<u64> {
        let total = u128::from(self.total().max(1));
        let share = |usable: &u64| u128::from(*usable) * u128::from(bytes) / total;
        let narrow = |share| u64::try_from(share).expect("no more than the whole");
        self.usable.iter().map(|usable| narrow(share(usable))).collect()
    }

    pub(super) fn used(&self, node: NodeId) -> u64 {
        self.used[node.0 as usize]
    }

    pub(super) fn usable(&self, node: NodeId) -> u64 {
        self.usable[node.0 as usize]
    }

    /// Takes room in the fastest tier that has enough.
    pub(super) fn take(&mut self, node: NodeId, len: u64) -> Held {
        let tiers = &mut self.free[node.0 as usize];
        let tier = tiers.iter().position(|free| *free >= len);
        let tier = tier.expect("a node promises no more than some tier can take");
        tiers[tier] -= len;
        self.used[node.0 as usize] += len;
        Held { node, tier: TierId(u8::try_from(tier).expect("tiers were counted")) }
    }

    pub(super) fn release(&mut self, held: Held, len: u64) {
        self.free[held.node.0 as usize][usize::from(held.tier.0)] += len;
        self.used[held.node.0 as usize] -= len;
    }
}

/// Bytes that fit in every case. Samples of one size leave no holes but at the end of each tier;
/// with unequal sizes, all tiers but one may each lack a byte for the longest sample.
fn usable(tiers: &[Bytes], lengths: Lengths) -> u64 {
    let Lengths { min, max } = lengths;
    if min == max && max > 0 {
        return tiers.iter().fold(0, |sum, tier| sum.saturating_add(tier.0 / max * max));
    }
    let holding: Vec<_> = tiers.iter().filter(|tier| tier.0 > 0).collect();
    let sum = holding.iter().fold(0_u64, |sum, tier| sum.saturating_add(tier.0));
    let holes = max.saturating_mul(holding.len().saturating_sub(1) as u64);
    sum.saturating_sub(holes)
}
