//! Nodes that share what they hold: each has a session and a data plane of its own, and what one reads from
//! another is there or is read cold.

use alloc::sync::Arc;

use super::*;
use crate::retention::partition::{Member, Membership};

const CHUNK: u64 = 1024;

/// The nodes of a job. Reads from each other end in any order.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Play>,
    pub(super) receiving: Vec<Receiving>,
}

pub(super) struct Receiving {
    node: usize,
    op: OpId,
    operation: Operation,
    from: usize,
    loan: Option<Loan>,
}

fn cluster(samples: u32, nodes: u32, chunks: u32, len: impl Fn(u32) -> u64) -> Cluster {
    let job = |node| {
        let mut settings = settings(policy::Kind::Partitioned, samples, 1, OnError::Fail);
        settings.order.world = World { nodes, ranks_per_node: 1 };
        settings.order.epochs = 4;
        settings.node = NodeId(node);
        settings.sizes = (0..samples).map(|sample| Bytes(len(sample))).collect();
        settings.tiers = vec![Buffer { kind: TierKind::CxlMemory, chunks_max: chunks }];
        settings
    };
    let nodes = (0..nodes).map(|node| Play::new(&job(node))).collect();
    Cluster { nodes, receiving: Vec::new() }
}

impl Cluster {
    fn membership(&self, generation: u32, from: u32, room: u64) -> Event {
        let member = Member { room: Bytes(room), process: 1 };
        let nodes: Arc<[Member]> = self.nodes.iter().map(|_| member).collect();
        Event::Membership(Membership { generation, from: Epoch(from), nodes })
    }

    fn tell_all(&mut self, event: &Event) {
        self.nodes.iter_mut().for_each(|node| node.tell(event.clone()));
    }

    fn find_each_other(&mut self) {
        for number in 0..u32::try_from(self.nodes.len()).unwrap() {
            self.tell_all(&Event::PeerFound { node: NodeId(number) });
        }
    }

    pub(super) fn take_receiving(&mut self, node: usize) {
        let is_receiving = |(_, operation): &_| matches!(operation, Operation::Receive { .. });
        while let Some(at) = self.nodes[node].plane.running.iter().position(is_receiving) {
            let (op, operation) = self.nodes[node].plane.running.swap_remove(at);
            let Operation::Receive { sample, from, .. } = operation else { unreachable!() };
            let from = from.0 as usize;
            let loan = self.nodes[from].session.lend(sample);
            self.receiving.push(Receiving { node, op, operation, from, loan });
        }
    }

    pub(super) fn end_receiving(&mut self, pick: usize, faults: usize) -> bool {
        if self.receiving.is_empty() {
            return false;
        }
        let Receiving { node, op, operation, from, loan } =
            self.receiving.swap_remove(pick % self.receiving.len());
        let Operation::Receive { sample, .. } = operation else { unreachable!() };
        let fails = (pick >> 8) % 100 < faults;
        let outcome = match &loan {
            None => Err(Fault::Vanished),
            Some(_) if fails => Err(Fault::Io),
            Some(_) => Ok(()),
        };
        if let Some(Loan { op, place, .. }) = loan {
            let lender = &mut self.nodes[from];
            let mut there = grains(&place).map(|grain| lender.plane.tiers.get(&grain));
            let sum = lender.plane.cached(sample);
            assert!(there.all(|it| it == Some(&sum)), "what is lent stays: {operation:?}");
            lender.session.end_loan(op, lender.now);
            lender.go_on();
            self.take_receiving(from);
        }
        self.nodes[node].plane.end(&operation, outcome);
        self.nodes[node].tell(Event::Completed { op, outcome });
        self.take_receiving(node);
        true
    }

    fn step(&mut self, pick: usize, faults: usize) -> bool {
        let node = (pick >> 5) % self.nodes.len();
        let is_done = if (pick >> 3).is_multiple_of(3) {
            self.end_receiving(pick >> 16, faults)
        } else {
            self.nodes[node].step(pick >> 7, 0)
        };
        self.take_receiving(node);
        is_done
    }

    fn play(&mut self, picks: &[usize], faults: usize) {
        (0..self.nodes.len()).for_each(|node| self.take_receiving(node));
        let mut idle = 0;
        for (i, pick) in picks.iter().cycle().enumerate() {
            let mixed = (pick ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            idle = if self.step(mixed ^ (mixed >> 29), faults) { 0 } else { idle + 1 };
            if idle > 1000 * self.nodes.len() {
                return;
            }
        }
    }

    /// Plays as trainers do that reduce gradients with each other: none is more than a step ahead.
    fn play_in_step(&mut self) {
        let steps = self.nodes[0].expected(0).len();
        for _ in 0..=steps {
            for node in 0..self.nodes.len() {
                while self.nodes[node].ask(0) {}
            }
            loop {
                (0..self.nodes.len()).for_each(|node| self.take_receiving(node));
                let running = |play: &Play| !play.plane.running.is_empty();
                if let Some(node) = self.nodes.iter().position(running) {
                    self.nodes[node].end_one(0, 0);
                } else if !self.end_receiving(0, 0) {
                    break;
                }
            }
            self.nodes.iter_mut().for_each(|node| _ = node.take(0));
        }
    }

    fn sum(&self, epoch: usize, part: impl Fn(&EpochProgress) -> u64) -> u64 {
        self.nodes.iter().map(|node| part(&node.session.progress().epochs[epoch])).sum()
    }

    fn assert_all_read(&self) {
        for (rank, node) in (0..).zip(&self.nodes) {
            assert_eq!(node.trainers[0].got, node.expected(rank), "every batch, in order");
            assert_eq!(node.session.in_flight(), 0);
        }
    }
}

proptest! {
    #[test]
    fn peers_that_fail_come_and_go_lose_no_batch(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        nodes in 2_u32..4,
        chunks in 1_u32..5,
        faults in 0_usize..60,
        changes in prop::collection::vec((0_u32..3, any::<bool>(), 0_u32..4), 0..8),
        room in 0_u64..4_000,
    ) {
        let mut cluster = cluster(50, nodes, chunks, |sample| u64::from(sample * 37 % 400));
        for (generation, (node, is_found, from)) in (0..).zip(changes) {
            for pick in picks.iter().cycle().take(40) {
                cluster.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            let node = NodeId(node);
            let change = if is_found { Event::PeerFound { node } } else { Event::PeerLost { node } };
            cluster.tell_all(&change);
            let membership = cluster.membership(generation, from, room);
            cluster.tell_all(&membership);
            (0..cluster.nodes.len()).for_each(|node| cluster.take_receiving(node));
        }
        cluster.play(&picks, faults);
        cluster.assert_all_read();
    }
}

#[test]
fn after_the_first_epoch_only_what_no_node_holds_is_read_cold() {
    for (nodes, chunks) in [(2, 4), (3, 2), (3, 4), (4, 3), (4, 8)] {
        let samples = 24 * nodes;
        let mut cluster = cluster(samples, nodes, chunks, |_| 256);
        let membership = cluster.membership(0, 0, u64::from(chunks) * CHUNK);
        cluster.tell_all(&membership);
        cluster.find_each_other();
        cluster.play_in_step();
        cluster.assert_all_read();
        let dataset = u64::from(samples) * 256;
        let held = u64::from(nodes * chunks) * CHUNK;
        assert_eq!(cluster.sum(0, |epoch| epoch.cold.0), dataset);
        for epoch in 1..4 {
            let cold = cluster.sum(epoch, |epoch| epoch.cold.0);
            let least = dataset.saturating_sub(held);
            assert_eq!(cold, least, "{nodes} nodes of {chunks} chunks, epoch {epoch}");
            let received = cluster.sum(epoch, |epoch| epoch.received.0);
            let local = cluster.sum(epoch, |epoch| epoch.from_tier[0].0);
            assert_eq!(cold + received + local, dataset);
            assert_eq!(cluster.sum(epoch, |epoch| epoch.unreceived), 0);
        }
    }
}

#[test]
fn what_a_lost_node_holds_is_read_cold_and_nobody_waits_for_it() {
    let mut cluster = cluster(72, 3, 8, |_| 256);
    let membership = cluster.membership(0, 0, 8 * CHUNK);
    cluster.tell_all(&membership);
    cluster.find_each_other();
    cluster.tell_all(&Event::PeerLost { node: NodeId(2) });
    cluster.play_in_step();
    cluster.assert_all_read();
    for epoch in 1..4 {
        let of_node = |node: usize| &cluster.nodes[node].session.progress().epochs[epoch];
        let (own, cold) = (of_node(2).from_tier[0].0, cluster.sum(epoch, |it| it.cold.0));
        assert_eq!(own + cold, 24 * 256, "its third is read by itself or cold");
        assert_eq!(of_node(2).cold.0, 0, "it can ask the others");
        assert_eq!(cluster.sum(epoch, |it| it.unreceived), 0, "nobody asks it");
    }
}

#[test]
fn a_sample_that_a_peer_has_not_is_read_cold() {
    let mut cluster = cluster(48, 2, 8, |_| 256);
    let membership = cluster.membership(0, 0, 8 * CHUNK);
    cluster.tell_all(&membership);
    cluster.find_each_other();
    cluster.nodes[1].tell(Event::Resized { tier: TierId(0), chunks_max: 1 });
    cluster.play_in_step();
    cluster.assert_all_read();
    let missing = cluster.sum(1, |epoch| epoch.unreceived);
    assert!(missing > 0, "the node holds less than it was to");
    assert_eq!(cluster.sum(1, |epoch| epoch.cold.0) / 256, 24 - 4, "a chunk holds 4 samples");
}
