//! Which node of a job holds which sample, if the nodes share their tiers: one copy of each sample, as many
//! as fit.
//!
//! A pure function of the order, the lengths of the samples and the room of every node, so each agent computes
//! it for itself, without messages. A sample is held by the node that reads it first while that node has room; it is
//! never moved. A [`Membership`] says which nodes there are from an epoch on. A node that comes back with empty
//! tiers holds what it reads first of the samples that no node holds.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. No node holds more than its room, and none holds a sample that it has not read.
//! 2. Agents that know the same memberships compute the same holders. When each was told does not matter.
//! 3. Of samples of one length, nodes of equal room hold as many as fit into all of them together after
//!    the first epoch.

use alloc::{sync::Arc, vec, vec::Vec};

use serde::{Deserialize, Serialize};

use crate::{
    id::{Epoch, NodeId, Rank, SampleId, Step},
    order::{EpochOrder, Spec},
    space::Space,
    units::Bytes,
};

/// The node of a sample that no node holds. A node of this number, the last of 65,536, shares nothing.
const NO_NODE: u16 = u16::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The room of its tiers for retained samples; 0 if the node is gone.
    #[serde(rename = "room_bytes")]
    pub room: Bytes,
    /// Identifies the process that works as this node: another process has empty tiers. Zero if nothing is
    /// known of the node: its former entry then stands.
    pub process: u64,
}

/// The nodes from an epoch on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Counts the memberships of the job, from 0.
    pub generation: u32,
    #[serde(rename = "from_epoch")]
    pub from: Epoch,
    /// By node number.
    pub nodes: Arc<[Member]>,
}

/// The node that holds each sample, at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders(Arc<Vec<u16>>);

impl Holders {
    #[must_use]
    pub fn of(&self, sample: SampleId) -> Option<NodeId> {
        let node = self.0.get(sample.0 as usize).copied().filter(|node| *node != NO_NODE)?;
        Some(NodeId(node.into()))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    process: u64,
    room: u64,
    used: u64,
}

impl Node {
    fn free(&self) -> u64 {
        self.room.saturating_sub(self.used)
    }
}

/// The samples of a job, divided among its nodes epoch by epoch.
#[derive(Debug)]
pub struct Partition {
    order: Spec,
    sizes: Arc<[Bytes]>,
    /// The least room that a sample takes, so that the search for samples that fit ends early.
    least: u64,
    alone: Vec<Node>,
    memberships: Vec<Membership>,
    holders: Holders,
    nodes: Vec<Node>,
    next: Epoch,
}

impl Partition {
    /// The state before the first read, with one node known: a node knows its own room before it is told of
    /// others.
    #[must_use]
    pub fn new(order: Spec, sizes: Arc<[Bytes]>, node: NodeId, room: Bytes) -> Self {
        let rooms = sizes.iter().filter(|len| len.0 > 0).map(|len| Space::rounded(*len).0);
        let mut alone = vec![Node::default(); order.world.nodes as usize];
        if let Some(node) = alone.get_mut(node.0 as usize) {
            node.room = room.0;
        }
        Self {
            order,
            least: rooms.min().unwrap_or(u64::MAX),
            holders: Holders(Arc::new(Vec::new())),
            nodes: Vec::new(),
            memberships: Vec::new(),
            next: order.start.epoch,
            sizes,
            alone,
        }
    }

    /// Records a membership. One that holds for epochs that are divided already divides them anew. A later
    /// one for the same epochs replaces it, also on nodes that were told of both.
    pub fn follow(&mut self, membership: Membership) {
        let replaces = |new: &Membership, old: &Membership| {
            new.generation > old.generation && new.from <= old.from
        };
        if self.memberships.iter().any(|known| replaces(known, &membership)) {
            return;
        }
        self.memberships.retain(|known| !replaces(&membership, known));
        if membership.from < self.next {
            self.next = self.order.start.epoch;
        }
        let later = |other: &Membership| other.generation >= membership.generation;
        let at = self.memberships.iter().position(later).unwrap_or(self.memberships.len());
        let is_known =
            self.memberships.get(at).is_some_and(|it| it.generation == membership.generation);
        if !is_known {
            self.memberships.insert(at, membership);
        }
    }

    /// The holders once an epoch was read. For millions of samples that takes some tenths of a second for
    /// each epoch in which a sample finds room.
    pub fn after(&mut self, epoch: Epoch) -> Holders {
        if self.next == self.order.start.epoch {
            self.nodes.clone_from(&self.alone);
            self.holders = Holders(Arc::new(vec![NO_NODE; self.sizes.len()]));
        }
        while self.next <= epoch {
            self.enter(self.next);
            self.divide(self.next);
            self.next.0 += 1;
        }
        self.holders.clone()
    }

    /// Applies the memberships that begin with an epoch; those from before the run begin with the run.
    fn enter(&mut self, epoch: Epoch) {
        let first = self.order.start.epoch;
        let begins = |it: &&Membership| it.from.max(first) == epoch;
        for membership in self.memberships.iter().filter(begins) {
            let mut is_emptied = vec![false; self.nodes.len()];
            for ((node, member), is_emptied) in
                self.nodes.iter_mut().zip(membership.nodes.iter()).zip(&mut is_emptied)
            {
                if member.process == 0 {
                    continue;
                }
                *is_emptied =
                    node.used > 0 && (member.process != node.process || member.room.0 < node.used);
                let used = if *is_emptied { 0 } else { node.used };
                *node = Node { process: member.process, room: member.room.0, used };
            }
            if is_emptied.contains(&true) {
                let holders = Arc::make_mut(&mut self.holders.0);
                let is_lost = |node: u16| is_emptied.get(usize::from(node)) == Some(&true);
                holders.iter_mut().filter(|node| is_lost(**node)).for_each(|node| *node = NO_NODE);
            }
        }
    }

    /// Lets every node hold the samples that it reads first in an epoch, as far as it has room.
    fn divide(&mut self, epoch: Epoch) {
        let is_covered = || {
            let held = self.holders.0.iter().zip(self.sizes.iter());
            held.into_iter().all(|(node, len)| *node != NO_NODE || len.0 == 0)
        };
        if !self.has_room() || is_covered() {
            return;
        }
        let Some(order) = self.order.epoch(epoch) else { return };
        for step in (0..self.order.steps_in(epoch)).map(Step) {
            self.divide_step(&order, step);
            if !self.has_room() {
                return;
            }
        }
    }

    /// Whether a node has room for the shortest sample.
    fn has_room(&self) -> bool {
        self.nodes.iter().any(|node| node.free() >= self.least)
    }

    fn divide_step(&mut self, order: &EpochOrder, step: Step) {
        let world = self.order.world;
        let holders = Arc::make_mut(&mut self.holders.0);
        for rank in (0..world.ranks()).map(Rank) {
            let number = rank.0 / world.ranks_per_node;
            let Some(node) = self.nodes.get_mut(number as usize) else { continue };
            let number = u16::try_from(number).unwrap_or(NO_NODE);
            if number == NO_NODE {
                continue;
            }
            for sample in order.batch(rank, step).map(|sample| sample.0 as usize) {
                let len = self.sizes[sample];
                let room = Space::rounded(len).0;
                if len.0 > 0 && holders[sample] == NO_NODE && node.free() >= room {
                    holders[sample] = number;
                    node.used += room;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::order::{FurtherDatasets, Position, Shuffle, World};

    fn order(samples: u32, nodes: u32, ranks_per_node: u32) -> Spec {
        Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 5,
            epochs: 8,
            drop_last: false,
            batch_size: 3,
            world: World { nodes, ranks_per_node },
            start: Position::START,
            further: FurtherDatasets::NONE,
        }
    }

    fn membership(generation: u32, from: u32, nodes: &[(u64, u64)]) -> Membership {
        let member =
            |(room, process): &(u64, u64)| Member { room: Bytes(*room), process: *process };
        Membership { generation, from: Epoch(from), nodes: nodes.iter().map(member).collect() }
    }

    fn any_nodes() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..3_000, 0_u64..3), 3)
    }

    proptest! {
        #[test]
        fn nodes_hold_what_they_read_and_no_more_than_fits(
            samples in 6_u32..80,
            ranks in 1_u32..3,
            first in any_nodes(),
            second in any_nodes(),
            from in 0_u32..5,
            through in 0_u32..8,
        ) {
            let order = order(samples, 3, ranks);
            let sizes: Arc<[Bytes]> =
                (0..u64::from(samples)).map(|sample| Bytes(sample * 37 % 300)).collect();
            let log = [membership(0, 0, &first), membership(1, from, &second)];
            let new = || Partition::new(order, Arc::clone(&sizes), NodeId(1), Bytes(900));

            let mut known = new();
            log.clone().into_iter().for_each(|it| known.follow(it));
            let holders = known.after(Epoch(through));

            let mut late = new();
            log.into_iter().rev().for_each(|it| {
                late.after(Epoch(through));
                late.follow(it);
            });
            prop_assert_eq!(&late.after(Epoch(through)), &holders, "invariant 2");

            let read = |node: u32| -> BTreeSet<SampleId> {
                let epochs = (0..=through).map(|epoch| order.epoch(Epoch(epoch)).unwrap());
                epochs.flat_map(|epoch| {
                    let ranks: Vec<_> = order.world.ranks_of(NodeId(node)).collect();
                    let steps = (0..order.steps_per_epoch()).map(Step);
                    let batches = steps.flat_map(|step| ranks.clone().into_iter().map(move |rank| (rank, step)));
                    batches.flat_map(|(rank, step)| epoch.batch(rank, step)).collect::<Vec<_>>()
                }).collect()
            };
            for node in 0..3_u32 {
                let held: Vec<_> = (0..samples)
                    .map(SampleId)
                    .filter(|sample| holders.of(*sample) == Some(NodeId(node)))
                    .collect();
                let used: u64 =
                    held.iter().map(|sample| Space::rounded(sizes[sample.0 as usize]).0).sum();
                // A later membership for the same epochs takes the place of the first.
                let told = [&first].into_iter().filter(|_| from > 0);
                let told = told.chain([&second].into_iter().filter(|_| from <= through));
                let mut room = told.map(|nodes| nodes[node as usize]).filter(|(_, process)| *process > 0);
                let room = room.next_back().map_or(if node == 1 { 900 } else { 0 }, |(room, _)| room);
                prop_assert!(used <= room, "invariant 1: node {} holds {} of {}", node, used, room);
                let read = read(node);
                prop_assert!(held.iter().all(|sample| read.contains(sample)), "invariant 1");
            }
        }

        #[test]
        fn who_was_told_of_a_membership_that_another_replaced_computes_the_same(
            samples in 6_u32..80,
            (first, second, third) in (any_nodes(), any_nodes(), any_nodes()),
            from in 1_u32..5,
        ) {
            let sizes: Arc<[Bytes]> = (0..samples).map(|_| Bytes(64)).collect();
            let new = || Partition::new(order(samples, 3, 1), Arc::clone(&sizes), NodeId(1), Bytes(900));
            let log = [(0, 0, first), (1, from, second), (2, from, third)];
            let log = log.map(|(generation, from, nodes)| membership(generation, from, &nodes));
            let (mut told_of_both, mut told_late) = (new(), new());
            log.iter().cloned().for_each(|it| told_of_both.follow(it));
            [0, 2].into_iter().for_each(|it| told_late.follow(log[it].clone()));
            prop_assert_eq!(told_of_both.after(Epoch(7)), told_late.after(Epoch(7)));
        }

        #[test]
        fn equal_nodes_hold_as_many_samples_as_fit(
            (nodes, each) in (1_u32..5, 1_u32..20),
            room in 0_u32..25,
        ) {
            let samples = nodes * each;
            let order = order(samples, nodes, 1);
            let sizes = vec![Bytes(64); samples as usize];
            let mut partition = Partition::new(order, sizes.into(), NodeId(0), Bytes(0));
            let nodes_of = vec![(u64::from(room) * 64, 1); nodes as usize];
            partition.follow(membership(0, 0, &nodes_of));
            let holders = partition.after(Epoch(0));
            let held = (0..samples).filter(|it| holders.of(SampleId(*it)).is_some()).count();
            prop_assert_eq!(held, (nodes * room).min(samples) as usize, "invariant 3");
        }
    }

    #[test]
    fn what_a_node_loses_is_held_again_by_those_who_read_it_first() {
        let order = order(90, 3, 1);
        let sizes: Arc<[Bytes]> = vec![Bytes(64); 90].into();
        let mut partition = Partition::new(order, sizes, NodeId(0), Bytes(0));
        partition.follow(membership(0, 0, &[(20 * 64, 1); 3]));
        let before = partition.after(Epoch(2));
        let held = |holders: &Holders, node| {
            (0..90).filter(|it| holders.of(SampleId(*it)) == Some(NodeId(node))).count()
        };
        partition.follow(membership(1, 3, &[(20 * 64, 1), (20 * 64, 2), (20 * 64, 1)]));
        let after = partition.after(Epoch(3));
        assert_eq!([0, 1, 2].map(|node| held(&before, node)), [20; 3]);
        assert_ne!(before, after, "the node that restarted holds others");
        assert_eq!([0, 2].map(|node| held(&after, node)), [20; 2], "the others keep theirs");
        let refilled = held(&after, 1);
        assert!(
            (10..=20).contains(&refilled),
            "it read 30, of which half had no holder: {refilled}"
        );
    }
}
