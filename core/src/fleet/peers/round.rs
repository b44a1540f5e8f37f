//! Decides which node keeps the first copy of each sample that was just read.
//!
//! Staging holds what a round read, so in a round samples can be exchanged between full nodes. Each
//! sample prefers the one of two nodes that reads it sooner: the one that held it, or the one that
//! has just received it. Where a node has too little room, the samples with the latest reads give
//! way: to the node that held them, which always has room for what it held before, or out if no
//! node held them.
//!
//! 1. No node gets more than its room.
//! 2. A sample that was held loses its copy only to one that was not held and that is worth more
//!    there.

use alloc::{vec, vec::Vec};

use super::copies::{Gap, Held};
use crate::id::{NodeId, SampleId};

/// A sample that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) sample: SampleId,
    pub(super) len: u64,
    /// The node that read it.
    pub(super) reader: NodeId,
    /// Its first copy before the round, if any.
    pub(super) holder: Option<Held>,
    /// A second copy on the reader, which this read has used up.
    pub(super) spare: Option<Held>,
    /// Epochs until the reader reads it again.
    pub(super) here: Gap,
    /// Epochs until the node with the first copy reads it.
    pub(super) there: Gap,
    /// The node that will keep the first copy.
    pub(super) place: Option<NodeId>,
    /// Another node holds a copy that is now the first.
    pub(super) is_settled: bool,
}

impl Item {
    pub(super) fn gap_at(&self, node: NodeId) -> Gap {
        if node == self.reader { self.here } else { self.there }
    }

    /// Whether the node's copy stays as it is: it has not passed through staging there.
    pub(super) fn stays_on(&self, node: NodeId) -> bool {
        node != self.reader && self.is_holder(node)
    }

    fn is_holder(&self, node: NodeId) -> bool {
        self.holder.is_some_and(|holder| holder.node == node)
    }
}

/// An item's claim to room on a node; claims are granted in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    gap: Gap,
    is_new: bool,
    item: u32,
}

/// Grants the claims of the items, as far as there is room, and writes the results to the items.
pub(super) fn settle(items: &mut [Item], room: &mut [u64]) {
    let mut round = Round {
        moved: vec![Vec::new(); room.len()],
        admitted: vec![Vec::new(); room.len()],
        refused: vec![Vec::new(); room.len()],
        items,
        room,
    };
    let unplaced = round.grant();
    for item in unplaced {
        round.return_to_holder(item);
    }
    round.fill();
}

struct Round<'a> {
    items: &'a mut [Item],
    room: &'a mut [u64],
    /// By node: the granted items that another node held, the best first.
    moved: Vec<Vec<Claim>>,
    /// By node: the granted items that no node held, the best first.
    admitted: Vec<Vec<Claim>>,
    /// By node: items that no node held and that got no room, the best last.
    refused: Vec<Vec<Claim>>,
}

impl Round<'_> {
    /// Grants the best claims on each node; returns the held items whose claim was not granted.
    fn grant(&mut self) -> Vec<u32> {
        let mut claims: Vec<(NodeId, Claim)> = Vec::with_capacity(self.items.len());
        for (number, item) in (0..).zip(self.items.iter_mut()) {
            let Some(node) = item.place.take().filter(|_| !item.is_settled) else { continue };
            let is_new = item.holder.is_none();
            claims.push((node, Claim { gap: item.gap_at(node), is_new, item: number }));
        }
        claims.sort_unstable();
        let mut unplaced = Vec::new();
        for (node, claim) in claims {
            if self.fits(claim.item, node) {
                self.put(claim, node);
            } else if claim.is_new {
                self.refused[node.0 as usize].push(claim);
            } else {
                unplaced.push(claim.item);
            }
        }
        self.refused.iter_mut().for_each(|claims| claims.reverse());
        unplaced
    }

    /// Returns an item to the node that held it, and evicts other items if necessary.
    fn return_to_holder(&mut self, item: u32) {
        let mut unplaced = vec![item];
        while let Some(item) = unplaced.pop() {
            let Some(holder) = self.items[item as usize].holder else { continue };
            let (node, gap) = (holder.node, self.items[item as usize].gap_at(holder.node));
            let at = node.0 as usize;
            while !self.fits(item, node) {
                if let Some(latest) = self.admitted[at].last().copied() {
                    if latest.gap < gap {
                        break;
                    }
                    self.admitted[at].pop();
                    self.take(latest.item, node);
                    self.refused[at].push(latest);
                } else if let Some(claim) = self.moved[at].pop() {
                    self.take(claim.item, node);
                    unplaced.push(claim.item);
                } else {
                    break;
                }
            }
            if self.fits(item, node) {
                self.put(Claim { gap, is_new: false, item }, node);
            }
        }
    }

    /// Returns moved items to holders that have room, if a refused item can use the room that they
    /// leave.
    fn fill(&mut self) {
        if self.refused.iter().all(Vec::is_empty) {
            return;
        }
        let mut moved = Vec::new();
        for (node, claims) in (0..).map(NodeId).zip(&self.moved) {
            moved.extend(claims.iter().map(|claim| (*claim, node)));
        }
        moved.sort_unstable();
        for (claim, node) in moved.into_iter().rev() {
            let Some(holder) = self.items[claim.item as usize].holder else { continue };
            if !self.fits(claim.item, holder.node) || self.refused[node.0 as usize].is_empty() {
                continue;
            }
            self.take(claim.item, node);
            self.put(claim, holder.node);
            self.admit(node);
        }
    }

    /// Admits refused items, as far as there is room now.
    fn admit(&mut self, node: NodeId) {
        while let Some(claim) = self.refused[node.0 as usize].pop() {
            if !self.fits(claim.item, node) {
                self.refused[node.0 as usize].push(claim);
                return;
            }
            self.put(claim, node);
        }
    }

    fn fits(&self, item: u32, node: NodeId) -> bool {
        self.items[item as usize].len <= self.room[node.0 as usize]
    }

    fn put(&mut self, claim: Claim, node: NodeId) {
        let item = &mut self.items[claim.item as usize];
        item.place = Some(node);
        self.room[node.0 as usize] -= item.len;
        if claim.is_new {
            self.admitted[node.0 as usize].push(claim);
        } else if !item.is_holder(node) {
            self.moved[node.0 as usize].push(claim);
        }
    }

    fn take(&mut self, item: u32, node: NodeId) {
        let item = &mut self.items[item as usize];
        item.place = None;
        self.room[node.0 as usize] += item.len;
    }
}
