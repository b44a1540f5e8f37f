//! Ends a round: decides which node keeps each sample that was read, and in which tier.

use alloc::{vec, vec::Vec};

use super::{
    Cluster,
    copies::Gap,
    round::{self, Item},
};
use crate::id::{Epoch, NodeId, TierId};

impl Cluster {
    /// Decides where each sample of the round stays.
    pub(super) fn close_round(&mut self, now: Epoch, progress: Progress) {
        let mut items = core::mem::take(&mut self.items);
        let mut room = self.room(&items, now, progress);
        round::settle(&mut items, &mut room);
        let seconds = self.seconds(&items, &mut room, now, progress);
        self.apply(&items, &seconds, now);
        items.clear();
        self.items = items;
    }

    /// Bytes that each node can give to the items of a round: its room without other copies. In its
    /// first epoch a node fills evenly, so that it can choose from all samples of the epoch.
    fn room(&self, items: &[Item], now: Epoch, progress: Progress) -> Vec<u64> {
        let is_first = now == self.setting.order.start.epoch;
        let mut room: Vec<_> = (0..self.setting.order.world.nodes)
            .map(NodeId)
            .map(|node| {
                let usable = self.rooms.usable(node);
                let usable = if is_first { progress.share_of(usable) } else { usable };
                usable - self.rooms.used(node)
            })
            .collect();
        for item in items {
            for held in item.holder.into_iter().chain(item.spare) {
                room[held.node.0 as usize] += item.len;
            }
        }
        room
    }

    /// Gives the remaining room to second copies, the soonest first.
    fn seconds(
        &mut self,
        items: &[Item],
        room: &mut [u64],
        now: Epoch,
        progress: Progress,
    ) -> Vec<SecondCopy> {
        let Some(surplus) = &self.surplus else { return Vec::new() };
        let is_first = now == self.setting.order.start.epoch;
        let mut candidates = Vec::new();
        for (number, item) in items.iter().enumerate() {
            let holder = item.holder.map(|holder| (holder.node, item.there));
            let nodes = holder.into_iter().filter(|(node, _)| *node != item.reader);
            for (node, gap) in nodes.chain([(item.reader, item.here)]) {
                let is_covered = item.is_settled || item.place.is_some();
                if gap != Gap::FAR && is_covered && item.place != Some(node) {
                    candidates.push(SecondCopy { gap, item: number, node });
                }
            }
        }
        candidates.sort_unstable();
        let uncovered = self.copies.uncovered();
        let seconds = &mut self.seconds;
        candidates.retain(|wish| {
            let (node, len) = (wish.node.0 as usize, items[wish.item].len);
            let limit = if is_first { progress.share_of(surplus[node]) } else { surplus[node] };
            let is_granted = len <= room[node] && (uncovered == 0 || seconds[node] + len <= limit);
            if is_granted {
                room[node] -= len;
                seconds[node] += len;
            }
            is_granted
        });
        candidates
    }

    /// Updates copies and rooms to the decisions.
    fn apply(&mut self, items: &[Item], seconds: &[SecondCopy], now: Epoch) {
        let mut arrivals = Vec::with_capacity(items.len());
        let mut stays = vec![Stay::No; items.len()];
        for (number, item) in items.iter().enumerate() {
            let Some(node) = item.place else { continue };
            if item.stays_on(node) {
                stays[number] = Stay::First;
            } else {
                arrivals.push(Arrival::of(item, number, node, None));
            }
        }
        for wish in seconds {
            let item = &items[wish.item];
            if item.stays_on(wish.node) {
                stays[wish.item] = Stay::Second;
            } else {
                arrivals.push(Arrival::of(item, wish.item, wish.node, Some(wish.gap)));
            }
        }
        for (item, stay) in items.iter().zip(&stays) {
            self.leave(item, *stay, now);
        }
        arrivals.sort_unstable();
        for arrival in arrivals {
            self.arrive(&items[arrival.item], &arrival, now);
        }
    }

    /// Frees the room of copies that are dropped or will be placed again.
    fn leave(&mut self, item: &Item, stay: Stay, now: Epoch) {
        if let Some(spare) = item.spare {
            self.rooms.release(spare, item.len);
        }
        let Some(holder) = item.holder else { return };
        match stay {
            Stay::First => return,
            Stay::Second => self.copies.add_second(item.sample, now, item.there, holder.tier),
            Stay::No => self.rooms.release(holder, item.len),
        }
        if !item.is_settled {
            self.copies.set_first(item.sample, None);
        }
    }

    fn arrive(&mut self, item: &Item, arrival: &Arrival, now: Epoch) {
        let held = self.rooms.take(arrival.node, item.len);
        match arrival.second {
            Some(gap) => self.copies.add_second(item.sample, now, gap, held.tier),
            None => self.copies.set_first(item.sample, Some(held)),
        }
        if arrival.from != Some(held.tier) {
            self.traffic.written(held, self.setting.sizes[item.sample.0 as usize]);
        }
    }
}

/// The part of an epoch that is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    pub(super) done: u32,
    pub(super) all: u32,
}

impl Progress {
    fn share_of(self, bytes: u64) -> u64 {
        let share = u128::from(bytes) * u128::from(self.done) / u128::from(self.all.max(1));
        u64::try_from(share).expect("no more than the whole")
    }
}

/// The decision about a copy on a node that did not read the sample now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    First,
    Second,
    No,
}

/// A second copy that would save a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SecondCopy {
    gap: Gap,
    item: usize,
    node: NodeId,
}

/// A copy that a reader writes from staging. The soonest come first, into the fastest tier; of
/// equal ones those that lie in the fastest tier already, so that they get their old room again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    gap: Gap,
    was_out: bool,
    from: Option<TierId>,
    item: usize,
    node: NodeId,
    second: Option<Gap>,
}

impl Arrival {
    fn of(item: &Item, number: usize, node: NodeId, second: Option<Gap>) -> Self {
        let before = item.holder.filter(|holder| holder.node == node).or(item.spare);
        let from = before.filter(|held| held.node == node).map(|held| held.tier);
        let (was_out, gap) = (from.is_none(), item.gap_at(node));
        Self { gap, was_out, from, item: number, node, second }
    }
}
