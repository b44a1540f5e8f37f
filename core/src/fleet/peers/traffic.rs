//! The reads of the nodes by source, and their transfers to one another: one epoch of a plan.

use alloc::{vec, vec::Vec};

use super::copies::Held;
use crate::{
    id::{NodeId, TierId},
    retention::replay::Amount,
    units::Bytes,
};

/// The reads of one node in an epoch, and the transfers and writes that follow from them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTraffic {
    /// Read from its own tiers, fastest first.
    pub tiers: Vec<Amount>,
    /// Read from other nodes.
    pub received: Amount,
    /// Read by other nodes from this one.
    pub sent: Amount,
    /// Read from the cold store.
    pub cold: Amount,
    /// Written to its tiers.
    pub written: Amount,
    /// What its tiers hold after the epoch.
    pub kept: Bytes,
    /// The part of it that other nodes hold too.
    pub kept_twice: Bytes,
}

impl NodeTraffic {
    /// All reads of the node.
    #[must_use]
    pub fn reads(&self) -> Amount {
        let mut reads = self.received;
        for amount in self.tiers.iter().chain([&self.cold]) {
            reads.samples += amount.samples;
            reads.bytes.0 += amount.bytes.0;
        }
        reads
    }

    /// Reads from the tiers of the node itself.
    #[must_use]
    pub fn local(&self) -> Amount {
        let mut local = Amount::default();
        for amount in &self.tiers {
            local.samples += amount.samples;
            local.bytes.0 += amount.bytes.0;
        }
        local
    }
}

/// The reads of all nodes in an epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Traffic of each node, by its number.
    pub nodes: Vec<NodeTraffic>,
    /// The distinct samples that are read, each counted once.
    pub distinct: Amount,
}

impl Traffic {
    pub(super) fn none(nodes: usize, tiers: usize) -> Self {
        let node = NodeTraffic { tiers: vec![Amount::default(); tiers], ..NodeTraffic::default() };
        Self { nodes: vec![node; nodes], distinct: Amount::default() }
    }

    pub(super) fn start(&mut self) {
        let tiers = self.nodes.first().map_or(0, |node| node.tiers.len());
        *self = Self::none(self.nodes.len(), tiers);
    }

    pub(super) fn tier(&mut self, node: NodeId, tier: TierId, len: Bytes) {
        self.nodes[node.0 as usize].tiers[usize::from(tier.0)].add(len);
    }

    pub(super) fn transfer(&mut self, from: NodeId, to: NodeId, len: Bytes) {
        self.nodes[from.0 as usize].sent.add(len);
        self.nodes[to.0 as usize].received.add(len);
    }

    pub(super) fn cold(&mut self, node: NodeId, len: Bytes) {
        self.nodes[node.0 as usize].cold.add(len);
    }

    pub(super) fn written(&mut self, held: Held, len: Bytes) {
        self.nodes[held.node.0 as usize].written.add(len);
    }

    pub(super) fn sent(&self, node: NodeId) -> Bytes {
        self.nodes[node.0 as usize].sent.bytes
    }

    /// Records the bytes that each node holds, and how many of them other nodes hold too.
    pub(super) fn kept(&mut self, kept: impl Iterator<Item = (u64, u64)>) {
        for (node, (kept, twice)) in self.nodes.iter_mut().zip(kept) {
            (node.kept, node.kept_twice) = (Bytes(kept), Bytes(twice));
        }
    }

    /// Adds a later epoch; the kept bytes are those after it.
    pub fn then(&mut self, next: &Self) {
        let add = |sum: &mut Amount, it: &Amount| {
            sum.samples += it.samples;
            sum.bytes.0 += it.bytes.0;
        };
        add(&mut self.distinct, &next.distinct);
        for (node, next) in self.nodes.iter_mut().zip(&next.nodes) {
            node.tiers.iter_mut().zip(&next.tiers).for_each(|(sum, it)| add(sum, it));
            add(&mut node.received, &next.received);
            add(&mut node.sent, &next.sent);
            add(&mut node.cold, &next.cold);
            add(&mut node.written, &next.written);
            (node.kept, node.kept_twice) = (next.kept, next.kept_twice);
        }
    }

    /// The sum over all nodes.
    #[must_use]
    pub fn total(&self, part: impl Fn(&NodeTraffic) -> Amount) -> Amount {
        self.nodes.iter().map(part).fold(Amount::default(), |sum, it| Amount {
            samples: sum.samples + it.samples,
            bytes: Bytes(sum.bytes.0 + it.bytes.0),
        })
    }

    /// The ratio of the busiest node to the mean: 1 if all are equal.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 53 bits")]
    pub fn imbalance(&self, part: impl Fn(&NodeTraffic) -> Bytes) -> f64 {
        let (most, sum) = self
            .nodes
            .iter()
            .map(part)
            .fold((0, 0), |(most, sum), bytes| (bytes.0.max(most), sum + bytes.0));
        if sum == 0 { 1.0 } else { most as f64 * self.nodes.len() as f64 / sum as f64 }
    }
}
