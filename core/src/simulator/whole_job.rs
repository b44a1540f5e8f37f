//! Simulates all nodes of a job that share what they hold, step by step.
//!
//! A session of each node would be exact, and for a thousand nodes take hours and terabytes. So this walks
//! the order of the whole job once, and does what the policy does with each read: the holder of a sample is
//! that of the agents ([`Partition`]), it changes with the memberships that the manager makes
//! ([`crate::fleet::members`]), and a node keeps a sample that it holds when it reads it, in the fastest tier with
//! room. So the bytes of each node by source are those of a session of each. Times come from a simpler
//! model than that of a session ([`pace`]), in which all nodes wait for each other in every step.
//!
//! Deliberately absent: other policies, which share nothing; room for samples to come; memory that other
//! programs take; transfers that fail; the time in which the loss of a node is noticed.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. Cold bytes, bytes from other nodes and bytes from tiers are those of a session of each node.
//! 2. What a node receives, others send, and every read has one source.
//! 3. No tier holds more than its room.

mod pace;
mod setting;
mod timeline;

use alloc::{collections::VecDeque, sync::Arc, vec, vec::Vec};
use core::ops::ControlFlow;

pub use pace::{Link, Slowest, Times};
pub use setting::{
    Change, ChangeKind, Links, NODES_MAX, Setting, SettingError, Tier, Transforming,
};
pub use timeline::Felt;

use self::{pace::Pace, timeline::Timeline};
use super::Pause;
use crate::{
    id::{Epoch, NodeId, Rank, SampleId, Step, TierId},
    order::{EpochOrder, Spec},
    retention::{
        form::Form,
        partition::{Holders, Partition},
        replay::Amount,
    },
    space::Space,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

/// The tier of a sample that its holder does not have.
const OUT: u8 = u8::MAX;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeReads {
    /// From its own tiers, fastest first.
    pub tiers: Vec<Amount>,
    pub received: Amount,
    /// Reads of other nodes from this one.
    pub sent: Amount,
    pub cold: Amount,
    /// The part of `cold` that a lost node held.
    pub lost: Amount,
    /// The part of `cold` that its holder does not have, or has on a disk.
    pub absent: Amount,
    /// The part of `cold` that trainers read themselves because their node is lost.
    pub unattended: Amount,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochReads {
    pub epoch: Epoch,
    /// Steps of each rank.
    pub steps: u32,
    /// By node number.
    pub nodes: Vec<NodeReads>,
    /// The cold bytes that no policy can avoid, of nodes that are there when the epoch begins.
    pub minimal_cold: Bytes,
    pub times: Times,
    /// The link that the training waited for longest; `None` if it did not wait.
    pub slowest: Option<Slowest>,
}

/// Simulated epoch by epoch.
#[derive(Debug)]
pub struct WholeJob {
    order: Spec,
    sizes: Arc<[Bytes]>,
    dataset: u64,
    tiers: Vec<Tier>,
    partition: Partition,
    holders: Option<Holders>,
    /// The tier of its holder in which each sample lies.
    tier_of: Vec<u8>,
    /// Of every tier of every node, node by node.
    free: Vec<u64>,
    is_gone: Vec<bool>,
    changes: VecDeque<Felt>,
    reads: Vec<NodeReads>,
    pace: Pace,
    step_time: Nanoseconds,
    pause: Option<Pause>,
    transforming: Option<Transforming>,
    depth: u32,
    steps: u64,
    next: Epoch,
    divided: Epoch,
}

impl WholeJob {
    /// A job before its first read, with empty tiers and all nodes there.
    pub fn try_new(setting: Setting) -> Result<Self, SettingError> {
        let changes = setting.validated()?;
        let room = Bytes(setting.tiers.iter().fold(0, |sum, it| sum.saturating_add(it.room.0)));
        let timeline = Timeline::of(&setting, room, &changes);
        let pace = Pace::new(&setting);
        let Setting { order, sizes, tiers, step_time, pause, transforming, depth, .. } = setting;
        let mut partition = Partition::new(order, Arc::clone(&sizes), NodeId(0), room);
        timeline.first.into_iter().for_each(|membership| partition.follow(membership));
        let nodes = order.world.nodes as usize;
        let rooms = tiers.iter().map(|tier| tier.room.0);
        Ok(Self {
            dataset: sizes.iter().fold(0, |sum, len| sum.saturating_add(len.0)),
            partition,
            holders: None,
            tier_of: vec![OUT; sizes.len()],
            free: rooms.cycle().take(tiers.len() * nodes).collect(),
            is_gone: vec![false; nodes],
            changes: timeline.changes.into(),
            reads: Vec::new(),
            pace,
            step_time,
            pause,
            transforming,
            steps: 0,
            next: order.first(Rank(0)).epoch,
            divided: order.start.epoch,
            depth: depth.get(),
            order,
            sizes,
            tiers,
        })
    }

    /// The changes that were not felt yet, in order.
    pub fn changes(&self) -> impl Iterator<Item = &Felt> {
        self.changes.iter()
    }

    #[must_use]
    pub fn next(&self) -> Epoch {
        self.next
    }

    /// Simulates the next epoch, whose order is `order`. `step` is called after each step, and may end the
    /// simulation.
    pub fn epoch<B>(
        &mut self,
        order: &EpochOrder,
        step: &mut dyn FnMut() -> ControlFlow<B>,
    ) -> ControlFlow<B, EpochReads> {
        let (epoch, steps) = (self.next, self.order.steps_in(self.next));
        let none =
            NodeReads { tiers: vec![Amount::default(); self.tiers.len()], ..NodeReads::default() };
        self.reads = vec![none; self.is_gone.len()];
        let minimal = self.room_there();
        self.hold(self.divided.max(epoch));
        let leads_on = self.leads_on(steps);
        for number in (0..steps).map(Step) {
            self.follow_changes(epoch, number);
            self.read_step(order, number);
            if number == leads_on && epoch.0 + 1 < self.order.epochs {
                self.hold(Epoch(epoch.0 + 1));
            }
            self.steps += 1;
            let pause = self.pause.filter(|it| self.steps.is_multiple_of(it.every.get().into()));
            let compute = self.step_time.0.saturating_add(pause.map_or(0, |pause| pause.time.0));
            let is_gone = &self.is_gone;
            self.pace.end_step(Nanoseconds(compute), |node| is_gone[node]);
            step()?;
        }
        self.next.0 += 1;
        let (times, slowest) = self.pace.end_epoch();
        let nodes = core::mem::take(&mut self.reads);
        let minimal_cold = self.minimal_cold(&nodes, minimal);
        ControlFlow::Continue(EpochReads { epoch, steps, nodes, minimal_cold, times, slowest })
    }

    /// The room of the nodes that are there; 0 before the first read.
    fn room_there(&self) -> u64 {
        if self.next <= self.order.first(Rank(0)).epoch {
            return 0;
        }
        let each = self.tiers.iter().fold(0_u64, |sum, tier| sum.saturating_add(tier.room.0));
        let nodes = self.is_gone.iter().filter(|is_gone| !**is_gone).count();
        each.saturating_mul(nodes as u64)
    }

    fn minimal_cold(&self, nodes: &[NodeReads], room: u64) -> Bytes {
        let demand = nodes.iter().map(NodeReads::demand).fold(Amount::default(), |sum, of| {
            Amount { samples: sum.samples + of.samples, bytes: Bytes(sum.bytes.0 + of.bytes.0) }
        });
        let demand = match &self.transforming {
            // What comes from nodes is as long as they hold it: every sample counts as stored.
            Some(Transforming { stored, cached: Form::Prepared, .. }) => {
                let all = stored.iter().map(|len| u128::from(len.0)).sum::<u128>();
                u128::from(demand.samples) * all / (stored.len() as u128).max(1)
            }
            _ => u128::from(demand.bytes.0),
        };
        let missing = u128::from(self.dataset.saturating_sub(room));
        let part = demand * missing / u128::from(self.dataset.max(1));
        Bytes(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// The last step that is read before the next epoch is divided: half of the epoch is staged then.
    fn leads_on(&self, steps: u32) -> Step {
        let at_once = if self.steps == 0 { self.depth.min(steps).saturating_sub(1) } else { 0 };
        Step((steps / 2).max(at_once))
    }

    /// Applies the changes that the batches of a step feel first.
    fn follow_changes(&mut self, epoch: Epoch, step: Step) {
        let is_felt = |felt: &Felt| felt.from <= (epoch, step);
        while self.changes.front().is_some_and(is_felt) {
            let Some(felt) = self.changes.pop_front() else { return };
            let node = felt.change.node.0 as usize;
            self.is_gone[node] = felt.change.kind == ChangeKind::Lost;
            self.empty(felt.change.node);
            if let Some(membership) = felt.membership {
                let is_divided = membership.from <= self.divided;
                self.partition.follow(membership);
                if is_divided {
                    self.hold(self.divided);
                }
            }
        }
    }

    fn empty(&mut self, node: NodeId) {
        let Some(holders) = &self.holders else { return };
        for (sample, tier) in (0..).map(SampleId).zip(&mut self.tier_of) {
            if *tier != OUT && holders.of(sample) == Some(node) {
                *tier = OUT;
            }
        }
        let first = node.0 as usize * self.tiers.len();
        let free = &mut self.free[first..first + self.tiers.len()];
        free.iter_mut().zip(&self.tiers).for_each(|(free, tier)| *free = tier.room.0);
    }

    /// Divides an epoch among the nodes. A node gives up samples that it does not hold any more.
    fn hold(&mut self, epoch: Epoch) {
        self.divided = epoch;
        let holders = self.partition.after(epoch);
        let Some(before) = self.holders.replace(holders.clone()).filter(|it| *it != holders) else {
            return;
        };
        for (sample, tier) in (0..).map(SampleId).zip(&mut self.tier_of) {
            let Some(holder) = before.of(sample).filter(|_| *tier != OUT) else { continue };
            if holders.of(sample) != Some(holder) {
                let at = holder.0 as usize * self.tiers.len() + usize::from(*tier);
                self.free[at] += Space::rounded(self.sizes[sample.0 as usize]).0;
                *tier = OUT;
            }
        }
    }

    fn read_step(&mut self, order: &EpochOrder, step: Step) {
        let Some(holders) = self.holders.clone() else { return };
        let world = self.order.world;
        for rank in (0..world.ranks()).map(Rank) {
            let node = (rank.0 / world.ranks_per_node) as usize;
            for sample in order.batch(rank, step) {
                self.read(node, sample, &holders);
            }
        }
    }

    fn read(&mut self, node: usize, sample: SampleId, holders: &Holders) {
        let len = self.sizes[sample.0 as usize];
        let stored = self.stored(sample);
        if self.is_gone[node] {
            self.reads[node].unattended.add(stored);
            return self.read_cold(node, stored);
        }
        let Some(holder) = holders.of(sample).map(|holder| holder.0 as usize) else {
            return self.read_cold(node, stored);
        };
        let tier = self.tier_of[sample.0 as usize];
        if holder == node {
            return match tier {
                OUT => {
                    self.read_cold(node, stored);
                    self.keep(node, sample, len);
                }
                tier => self.read_tier(node, TierId(tier), len),
            };
        }
        if self.is_gone[holder] {
            self.reads[node].lost.add(stored);
            return self.read_cold(node, stored);
        }
        if tier == OUT || self.tiers[usize::from(tier)].kind == Kind::Storage {
            self.reads[node].absent.add(stored);
            return self.read_cold(node, stored);
        }
        self.reads[node].received.add(len);
        self.reads[holder].sent.add(len);
        self.pace.load(node, Link::Receiving, len);
        self.pace.load(holder, Link::Sending, len);
        self.pace.load(holder, Link::Tier(TierId(tier)), len);
        self.transform_held(node, len);
    }

    fn stored(&self, sample: SampleId) -> Bytes {
        let stored = self.transforming.as_ref().map_or(&self.sizes, |it| &it.stored);
        stored[sample.0 as usize]
    }

    fn read_cold(&mut self, node: usize, stored: Bytes) {
        self.reads[node].cold.add(stored);
        self.pace.load(node, Link::Cold, stored);
        if let Some(transforming) = &self.transforming {
            self.pace.transform(node, transforming.costs.mean(Form::Stored, stored));
        }
    }

    /// Transforms a sample that came in the form in which nodes hold it.
    fn transform_held(&mut self, node: usize, len: Bytes) {
        if let Some(transforming) = &self.transforming {
            self.pace.transform(node, transforming.costs.mean(transforming.cached, len));
        }
    }

    fn read_tier(&mut self, node: usize, tier: TierId, len: Bytes) {
        self.reads[node].tiers[usize::from(tier.0)].add(len);
        self.pace.load(node, Link::Tier(tier), len);
        self.transform_held(node, len);
    }

    fn keep(&mut self, node: usize, sample: SampleId, len: Bytes) {
        let needed = Space::rounded(len).0;
        let first = node * self.tiers.len();
        let free = &mut self.free[first..first + self.tiers.len()];
        let Some(tier) = free.iter().position(|free| *free >= needed) else { return };
        free[tier] -= needed;
        let tier = u8::try_from(tier).unwrap_or(OUT);
        self.tier_of[sample.0 as usize] = tier;
        self.pace.load(node, Link::Tier(TierId(tier)), len);
    }
}

impl NodeReads {
    #[must_use]
    pub fn demand(&self) -> Amount {
        let mut demand = self.received;
        for amount in self.tiers.iter().chain([&self.cold]) {
            demand.samples += amount.samples;
            demand.bytes.0 += amount.bytes.0;
        }
        demand
    }
}

#[cfg(test)]
mod tests;
