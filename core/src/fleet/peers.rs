//! Which node of a job keeps which sample, if nodes may read from one another.
//!
//! There is one plan for all nodes, from the order alone: every node that computes it gets the
//! same. A sample has one copy in the cluster before any has two, because a copy that saves a cold
//! read is worth more than one that saves a transfer. No copy is moved for its own sake: a copy
//! lies on a node that has read the sample, or stays where it was. So when a node reads a sample
//! that another one holds, the copy may move with the bytes, and it moves if the reader needs it
//! sooner. The remaining room holds second copies, those of the shortest gaps.
//!
//! Decisions are made at the end of each round, a few steps of all ranks, whose samples still lie
//! in staging (`round.rs`). The room that a round frees goes to the most valuable samples that it
//! read, so the rule has no threshold to tune, and misses are spread evenly.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. Every read is served by a tier of the node, or by one peer that holds a copy, or by the cold store.
//! 2. No tier holds more than its capacity.
//! 3. If everything fits and the samples are of one size, no sample that has been read is without a copy.
//! 4. From the second epoch on, the cold reads equal the part of the dataset that does not fit into
//!    all nodes together: for samples of one size, no plan has fewer.
//! 5. A second copy never takes room that a first copy needs.
//!
//! Deliberately absent: the transfer of bytes from node to node.

mod bound;
mod copies;
mod decide;
mod rooms;
mod round;
mod setting;
mod traffic;

use alloc::{vec, vec::Vec};

pub use bound::{least_cold, least_remote, least_remote_of_covering};
pub use setting::{Setting, SettingError};
pub use traffic::{NodeTraffic, Traffic};

use self::{
    copies::{Copies, Gap, Held, Seconds},
    decide::Progress,
    rooms::{Lengths, Rooms},
    round::Item,
};
use crate::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step, TierId},
    order::EpochOrder,
    space::{GRAIN, Space},
    units::Bytes,
};

/// The source of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// A tier of the node that reads.
    Tier(TierId),
    /// Another node that holds a copy.
    Peer(NodeId),
    /// The cold store of the job.
    Cold,
}

/// A job whose nodes share their caches, planned epoch by epoch.
#[derive(Debug)]
pub struct Cluster {
    setting: Setting,
    copies: Copies,
    rooms: Rooms,
    /// Room of each node beyond the dataset's share; `None` if the dataset does not fit.
    surplus: Option<Vec<u64>>,
    /// Bytes of second copies on each node.
    seconds: Vec<u64>,
    /// Bytes that each node will send, as far as this epoch is decided.
    load: Vec<u64>,
    items: Vec<Item>,
    next: Epoch,
    traffic: Traffic,
}

impl Cluster {
    /// A job before its first read, with empty tiers.
    ///
    /// # Errors
    ///
    /// [`SettingError`] names the reason.
    pub fn try_new(setting: Setting) -> Result<Self, SettingError> {
        setting.validate()?;
        let lens = || setting.sizes.iter().map(|len| room_of(*len));
        let lengths = Lengths { min: lens().min().unwrap_or(0), max: lens().max().unwrap_or(0) };
        let rooms = Rooms::new(&setting.capacities, lengths);
        let dataset = lens().fold(0, u64::saturating_add);
        let surplus = rooms.total().checked_sub(dataset).map(|surplus| rooms.shares_of(surplus));
        let nodes = setting.capacities.len();
        let seconds = match &surplus {
            Some(_) if nodes > 1 => Seconds::Possible,
            _ => Seconds::Impossible,
        };
        let tiers = setting.capacities.iter().map(Vec::len).max().unwrap_or(0);
        let mut cluster = Self {
            copies: Copies::new(setting.order.all_samples(), setting.ahead, seconds),
            rooms,
            surplus: surplus.filter(|_| seconds == Seconds::Possible),
            seconds: vec![0; nodes],
            load: vec![0; nodes],
            items: Vec::new(),
            next: setting.order.start.epoch,
            traffic: Traffic::none(nodes, tiers),
            setting,
        };
        for ahead in 0..=cluster.setting.ahead {
            cluster.learn(Epoch(cluster.next.0.saturating_add(ahead)));
        }
        Ok(cluster)
    }

    /// Plans the next epoch; `None` after the last one and for an order that only the trainer
    /// knows.
    pub fn epoch(&mut self) -> Option<&Traffic> {
        self.epoch_seen(&mut |_, _, _| {})
    }

    /// As [`Self::epoch`]; calls `see` with every read, in order, and its source.
    pub fn epoch_seen(
        &mut self,
        see: &mut dyn FnMut(BatchId, SampleId, Served),
    ) -> Option<&Traffic> {
        let (epoch, spec) = (self.next, self.setting.order);
        let order = self.order(epoch)?;
        self.traffic.start();
        self.copies.start();
        self.load.fill(0);
        let (steps, mut first) = (spec.steps_in(epoch), 0);
        while first < steps {
            let end = first.saturating_add(self.setting.round_steps.max(1)).min(steps);
            for step in (first..end).map(Step) {
                self.step(&order, epoch, step, see);
            }
            let all = spec.samples_per_rank_in(epoch);
            let done = end.saturating_mul(spec.batch_size).min(all);
            self.close_round(epoch, Progress { done, all });
            first = end;
        }
        self.learn(Epoch(epoch.0.saturating_add(self.setting.ahead + 1)));
        self.next = Epoch(epoch.0 + 1);
        let nodes = (0..spec.world.nodes).map(NodeId);
        self.traffic.kept(nodes.map(|node| (self.rooms.used(node), self.seconds[node.0 as usize])));
        Some(&self.traffic)
    }

    fn learn(&mut self, epoch: Epoch) {
        let order = self.order(epoch);
        self.copies.learn(epoch, order.as_ref(), &self.setting.order);
    }

    /// An epoch of the run, if the job fixes its order.
    fn order(&self, epoch: Epoch) -> Option<EpochOrder> {
        let spec = self.setting.order;
        if epoch.0 < spec.epochs { spec.epoch(epoch) } else { None }
    }

    fn step(
        &mut self,
        order: &EpochOrder,
        epoch: Epoch,
        step: Step,
        see: &mut dyn FnMut(BatchId, SampleId, Served),
    ) {
        let world = self.setting.order.world;
        for rank in (0..world.ranks()).map(Rank) {
            let (batch, node) =
                (BatchId { epoch, step, rank }, NodeId(rank.0 / world.ranks_per_node));
            for sample in order.batch(rank, step) {
                let served = self.serve(sample, node, epoch);
                see(batch, sample, served);
                if self.copies.is_first_read(sample) {
                    self.traffic.distinct.add(self.setting.sizes[sample.0 as usize]);
                    self.note(sample, node, epoch);
                }
            }
        }
    }

    /// The source of a read: the fastest copy of the node itself, else the peer that has sent
    /// least.
    fn serve(&mut self, sample: SampleId, node: NodeId, now: Epoch) -> Served {
        let len = self.setting.sizes[sample.0 as usize];
        let mut peer: Option<NodeId> = None;
        for held in self.copies.held(sample, now) {
            if held.node == node {
                self.traffic.tier(node, held.tier, len);
                return Served::Tier(held.tier);
            }
            if peer.is_none_or(|peer| self.traffic.sent(held.node) < self.traffic.sent(peer)) {
                peer = Some(held.node);
            }
        }
        if let Some(peer) = peer {
            self.traffic.transfer(peer, node, len);
            Served::Peer(peer)
        } else {
            self.traffic.cold(node, len);
            Served::Cold
        }
    }

    /// Records a sample that must be decided at the end of the round.
    fn note(&mut self, sample: SampleId, reader: NodeId, now: Epoch) {
        if now.0 + 1 >= self.setting.order.epochs {
            return;
        }
        let holder = self.copies.first(sample);
        let spare = self.copies.take_second(sample, now);
        let len = room_of(self.setting.sizes[sample.0 as usize]);
        let here = self.copies.gap(sample, reader, now);
        let there = holder.map_or(Gap::FAR, |holder| self.copies.gap(sample, holder.node, now));
        if spare.is_some() {
            self.seconds[reader.0 as usize] -= len;
        }
        let waiting = self.copies.take_soonest_second(sample, now);
        if let Some(held) = waiting {
            self.seconds[held.node.0 as usize] -= len;
            self.copies.set_first(sample, Some(held));
        }
        let place = Some(self.choose(holder, reader, [here, there], len));
        let is_settled = waiting.is_some();
        self.items.push(Item {
            sample,
            len,
            reader,
            holder,
            spare,
            here,
            there,
            place,
            is_settled,
        });
    }

    /// The one of two nodes that reads sooner; on a tie, the one that has less to send.
    fn choose(
        &mut self,
        holder: Option<Held>,
        reader: NodeId,
        [here, there]: [Gap; 2],
        len: u64,
    ) -> NodeId {
        let holder = holder.map_or(reader, |holder| holder.node);
        let load = |node: NodeId| self.load[node.0 as usize];
        let is_lighter = here == there && load(reader) < load(holder);
        let (node, gap) = if here < there || is_lighter { (reader, here) } else { (holder, there) };
        if gap != Gap::NEXT {
            self.load[node.0 as usize] += len;
        }
        node
    }
}

/// Bytes that a sample takes in a tier; never zero, so that only a tier can hold it.
fn room_of(len: Bytes) -> u64 {
    Space::rounded(len).0.max(GRAIN)
}

#[cfg(test)]
mod tests;
