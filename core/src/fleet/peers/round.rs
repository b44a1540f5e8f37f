//! Decides where the first copy of each sample lies that was just read.
//!
//! Staging holds what a round read, so in it samples can change places between nodes that are full. Each
//! wants to lie on whichever of two nodes reads it sooner: the one that held it, or the one that has
//! just received it. Where a node has too little room, those that are read latest give way: to the node
//! that they came from, where there is always room for what it held before, or, if nobody held them, out.
//!
//! 1. No node gets more than its room.
//! 2. A sample that was held loses its copy only to one that was not held and is worth more there.

use alloc::{vec, vec::Vec};

use super::copies::{Gap, Held};
use crate::id::{NodeId, SampleId};

/// A sample that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) sample: SampleId,
    pub(super) len: u64,
    /// Who read it.
    pub(super) reader: NodeId,
    /// The first copy that there was.
    pub(super) home: Option<Held>,
    /// A second copy of the reader, which has served.
    pub(super) spare: Option<Held>,
    /// When the reader reads it again.
    pub(super) here: Gap,
    /// When the node that holds the first copy reads it.
    pub(super) there: Gap,
    /// Where the first copy shall lie.
    pub(super) place: Option<NodeId>,
    /// Another node holds a copy that now is the first.
    pub(super) is_settled: bool,
}

impl Item {
    pub(super) fn gap_at(&self, node: NodeId) -> Gap {
        if node == self.reader { self.here } else { self.there }
    }

    /// Whether the copy that the node holds simply stays: it has not passed through staging there.
    pub(super) fn stays_on(&self, node: NodeId) -> bool {
        node != self.reader && self.is_home(node)
    }

    fn is_home(&self, node: NodeId) -> bool {
        self.home.is_some_and(|home| home.node == node)
    }
}

/// A place that an item wants; the ones to be granted first are least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    gap: Gap,
    is_new: bool,
    item: u32,
}

/// Grants the places that the items ask for, as far as there is room, and writes those that they get.
pub(super) fn settle(items: &mut [Item], room: &mut [u64]) {
    let mut round = Round {
        guests: vec![Vec::new(); room.len()],
        newcomers: vec![Vec::new(); room.len()],
        refused: vec![Vec::new(); room.len()],
        items,
        room,
    };
    let homeless = round.grant();
    for item in homeless {
        round.send_home(item);
    }
    round.fill();
}

struct Round<'a> {
    items: &'a mut [Item],
    room: &'a mut [u64],
    /// By node: the items that it got from others, the best first.
    guests: Vec<Vec<Claim>>,
    /// By node: the items that it got and nobody held, the best first.
    newcomers: Vec<Vec<Claim>>,
    /// By node: what nobody held and it has no room for, the best last.
    refused: Vec<Vec<Claim>>,
}

impl Round<'_> {
    /// Serves the best claims on each node; returns the items that were held and got nothing.
    fn grant(&mut self) -> Vec<u32> {
        let mut claims: Vec<(NodeId, Claim)> = Vec::with_capacity(self.items.len());
        for (number, item) in (0..).zip(self.items.iter_mut()) {
            let Some(node) = item.place.take().filter(|_| !item.is_settled) else { continue };
            let is_new = item.home.is_none();
            claims.push((node, Claim { gap: item.gap_at(node), is_new, item: number }));
        }
        claims.sort_unstable();
        let mut homeless = Vec::new();
        for (node, claim) in claims {
            if self.fits(claim.item, node) {
                self.put(claim, node);
            } else if claim.is_new {
                self.refused[node.0 as usize].push(claim);
            } else {
                homeless.push(claim.item);
            }
        }
        self.refused.iter_mut().for_each(|claims| claims.reverse());
        homeless
    }

    /// Brings an item back to where it was, and whatever must give way for it.
    fn send_home(&mut self, item: u32) {
        let mut homeless = vec![item];
        while let Some(item) = homeless.pop() {
            let Some(home) = self.items[item as usize].home else { continue };
            let (node, gap) = (home.node, self.items[item as usize].gap_at(home.node));
            let at = node.0 as usize;
            while !self.fits(item, node) {
                if let Some(newcomer) = self.newcomers[at].last().copied() {
                    if newcomer.gap < gap {
                        break;
                    }
                    self.newcomers[at].pop();
                    self.take(newcomer.item, node);
                    self.refused[at].push(newcomer);
                } else if let Some(guest) = self.guests[at].pop() {
                    self.take(guest.item, node);
                    homeless.push(guest.item);
                } else {
                    break;
                }
            }
            if self.fits(item, node) {
                self.put(Claim { gap, is_new: false, item }, node);
            }
        }
    }

    /// Gives room that is left to items that moved away, if another can have the room that they leave.
    fn fill(&mut self) {
        if self.refused.iter().all(Vec::is_empty) {
            return;
        }
        let mut moved = Vec::new();
        for (node, guests) in (0..).map(NodeId).zip(&self.guests) {
            moved.extend(guests.iter().map(|claim| (*claim, node)));
        }
        moved.sort_unstable();
        for (claim, node) in moved.into_iter().rev() {
            let Some(home) = self.items[claim.item as usize].home else { continue };
            if !self.fits(claim.item, home.node) || self.refused[node.0 as usize].is_empty() {
                continue;
            }
            self.take(claim.item, node);
            self.put(claim, home.node);
            self.admit(node);
        }
    }

    /// Lets in what was refused, as far as there is room now.
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
            self.newcomers[node.0 as usize].push(claim);
        } else if !item.is_home(node) {
            self.guests[node.0 as usize].push(claim);
        }
    }

    fn take(&mut self, item: u32, node: NodeId) {
        let item = &mut self.items[item as usize];
        item.place = None;
        self.room[node.0 as usize] += item.len;
    }
}
