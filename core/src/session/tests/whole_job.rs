//! The simulation of all nodes reads what sessions read that lend each other what they hold, node by node and
//! epoch by epoch, also when one of them is lost.

use core::ops::ControlFlow;

use super::{peers::Cluster, *};
use crate::{
    fleet::members::{Members, PeerReport},
    retention::{form::SampleTime, partition::Membership},
    simulator::{
        TransformCosts,
        whole_job::{
            Change, ChangeKind, Felt, Links, NodeReads, Setting, Tier, Transforming, WholeJob,
        },
    },
    tier::Speed,
    units::BytesPerSecond,
};

const CHUNK: u64 = 1024;
const ALL: Speed = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(0) };

/// A job of some nodes, one of which may be lost.
#[derive(Debug, Clone)]
struct Case {
    settings: Settings,
    lost: Option<Change>,
}

impl Case {
    /// `tiers` are in chunks.
    fn new((nodes, ranks): (u32, u32), samples: u32, tiers: [u32; 2]) -> Self {
        let mut settings = settings(policy::Kind::Partitioned, samples, 1, OnError::Fail);
        settings.order.world = World { nodes, ranks_per_node: ranks };
        settings.order.epochs = 4;
        settings.sizes = (0..samples).map(|it| Bytes(u64::from(1 + it * 37 % 400))).collect();
        settings.tiers =
            tiers.map(|chunks_max| Buffer { kind: TierKind::CxlMemory, chunks_max }).to_vec();
        Self { settings, lost: None }
    }

    fn transformed(mut self, cached: Option<Form>) -> Self {
        let Some(cached) = cached else { return self };
        let lens = || self.settings.sizes.iter().map(|stored| Bytes(300 + stored.0 % 7)).collect();
        let prepared = (cached == Form::Prepared).then(lens);
        self.settings = self.settings.with_transform(Bytes(100), NonZeroU32::MIN, prepared);
        self
    }

    /// `part` is the part of the run after which the node is lost, in thousandths.
    fn lost_at(mut self, node: u32, part: u32) -> Self {
        let order = &self.settings.order;
        let steps = order.steps_per_epoch();
        let at = steps * order.epochs * part.min(999) / 1000;
        let (epoch, step) = (Epoch(at / steps), Step(at % steps));
        let node = NodeId(node % order.world.nodes);
        self.lost = Some(Change { node, epoch, step, kind: ChangeKind::Lost });
        self
    }

    fn room(&self) -> Bytes {
        Bytes(self.settings.tiers.iter().map(|tier| u64::from(tier.chunks_max) * CHUNK).sum())
    }

    fn simulation(&self) -> WholeJob {
        let tier =
            |it: &Buffer| Tier { kind: it.kind, room: it.capacity(Bytes(CHUNK)), speed: ALL };
        let setting = Setting {
            order: self.settings.order,
            sizes: self.settings.sizes.clone(),
            tiers: self.settings.tiers.iter().map(tier).collect(),
            depth: NonZeroU32::new(self.settings.staged_batches).unwrap(),
            links: Links {
                cold: ALL,
                cold_threads: None,
                cold_burst: Nanoseconds(0),
                store: BytesPerSecond(0),
                network: ALL,
            },
            step_time: Nanoseconds(0),
            head_start: Nanoseconds(0),
            pause: None,
            transforming: self.settings.transform.as_ref().map(|it| Transforming {
                cached: it.cached,
                stored: Arc::clone(&it.stored),
                threads: it.threads,
                costs: TransformCosts::of_mean(SampleTime::default(), Bytes(1)),
            }),
            changes: self.lost.into_iter().collect(),
        };
        WholeJob::try_new(setting).unwrap()
    }

    fn simulated(&self) -> Vec<Vec<NodeReads>> {
        let mut job = self.simulation();
        let epochs = (0..self.settings.order.epochs).map(Epoch);
        let played = epochs.map(|epoch| {
            let order = self.settings.order.epoch(epoch).unwrap();
            match job.epoch::<()>(&order, &mut || ControlFlow::Continue(())) {
                ControlFlow::Continue(reads) => reads.nodes,
                ControlFlow::Break(()) => panic!("it was not to be ended"),
            }
        });
        played.collect()
    }
}

struct Job {
    cluster: Cluster,
    members: Members,
    told: u32,
    is_gone: Vec<bool>,
}

impl Job {
    fn start(case: &Case) -> Self {
        let order = case.settings.order;
        // Epochs are divided when all ranks have staged a step, as in the simulator.
        let node =
            |node| Play::with_jobs(&Settings { node, ..case.settings.clone() }, Some(Vec::new()));
        let nodes: Vec<_> = (0..order.world.nodes).map(NodeId).map(node).collect();
        let is_gone = vec![false; nodes.len()];
        let cluster = Cluster { nodes, receiving: Vec::new() };
        let mut job = Self { cluster, members: Members::new(order), told: 0, is_gone };
        job.report(case.room());
        for node in (0..order.world.nodes).map(NodeId) {
            job.cluster.nodes.iter_mut().for_each(|it| it.tell(Event::PeerFound { node }));
        }
        job.tell();
        job
    }

    /// Every node that is there reports its progress.
    fn report(&mut self, room: Bytes) {
        for (node, play) in (0..).zip(&self.cluster.nodes) {
            let (address, divided) = (std::format!("{node}"), play.session.divided());
            let report = PeerReport { address, room, generation: 0, divided, links: Vec::new() };
            if !self.is_gone[node as usize] {
                self.members.handle_report(NodeId(node), 1, report);
            }
        }
    }

    fn tell(&mut self) {
        let told = self.told;
        self.told = self.members.peers().generation;
        for it in self.members.peers().memberships.iter().filter(|it| it.generation > told) {
            let there = self.cluster.nodes.iter_mut().zip(&self.is_gone).filter(|it| !it.1);
            there.for_each(|(play, _)| play.tell(Event::Membership(it.clone())));
        }
    }

    fn lose(&mut self, node: NodeId, room: Bytes) -> Option<Membership> {
        self.report(room);
        let before = self.members.peers().generation;
        self.is_gone[node.0 as usize] = true;
        self.members.handle_gone(node);
        for (play, is_gone) in self.cluster.nodes.iter_mut().zip(&self.is_gone) {
            if !is_gone {
                play.tell(Event::PeerLost { node });
            }
        }
        self.tell();
        self.members.peers().memberships.last().filter(|it| it.generation > before).cloned()
    }

    fn there(&self) -> impl Iterator<Item = usize> + use<> {
        let is_gone = self.is_gone.clone();
        (0..is_gone.len()).filter(move |node| !is_gone[*node])
    }

    /// Every node gets the samples that it asked for; none is more than a step ahead.
    fn bring(&mut self) {
        for node in self.there() {
            for rank in 0..self.cluster.nodes[node].trainers.len() {
                while self.cluster.nodes[node].ask(rank) {}
            }
        }
        loop {
            self.there().for_each(|node| self.cluster.take_receiving(node));
            let running = |node: &usize| !self.cluster.nodes[*node].plane.running.is_empty();
            if let Some(node) = self.there().find(running) {
                self.cluster.nodes[node].end_one(0, 0);
            } else if !self.end_jobs() && !self.cluster.end_receiving(0, 0) {
                break;
            }
        }
    }

    /// Returns whether a node had one.
    fn end_jobs(&mut self) -> bool {
        let mut had_one = false;
        for node in self.there() {
            while self.cluster.nodes[node].end_job(0) {
                had_one = true;
            }
        }
        had_one
    }

    /// Every trainer takes its batch of a step, and gives back the one before.
    fn take(&mut self) {
        for node in self.there() {
            let play = &mut self.cluster.nodes[node];
            (0..play.trainers.len()).for_each(|rank| _ = play.take(rank));
        }
        self.end_jobs();
    }

    fn play(&mut self, case: &Case, felt: Option<&Felt>) {
        let order = case.settings.order;
        let steps = order.steps_per_epoch();
        let lost_after = case.lost.map(|it| it.epoch.0 * steps + it.step.0);
        let lose = |job: &mut Self| {
            let membership = job.lose(case.lost.unwrap().node, case.room());
            assert_eq!(membership, felt.unwrap().membership, "as the manager makes it");
        };
        if lost_after == Some(0) {
            lose(self);
        }
        // Trainers ask once their memory is there.
        self.bring();
        for done in 1..=steps * order.epochs {
            self.bring();
            if lost_after == Some(done) {
                lose(self);
            }
            self.take();
        }
    }

    /// The reads of a node in an epoch: from its tiers, from others, cold.
    fn read(&self, node: usize, epoch: usize) -> (Vec<u64>, u64, u64) {
        let read = &self.cluster.nodes[node].session.progress().epochs[epoch];
        (read.from_tier.iter().map(|it| it.0).collect(), read.received.0, read.cold.0)
    }
}

fn assert_equal(case: &Case) {
    let felt = case.simulation().changes().next().cloned();
    let mut job = Job::start(case);
    job.play(case, felt.as_ref());
    for (epoch, nodes) in case.simulated().iter().enumerate() {
        for node in job.there() {
            let reads = &nodes[node];
            let tiers = reads.tiers.iter().map(|amount| amount.bytes.0).collect();
            let simulated = (tiers, reads.received.bytes.0, reads.cold.bytes.0);
            assert_eq!(job.read(node, epoch), simulated, "node {node}, epoch {epoch}");
        }
    }
}

proptest! {
    #[test]
    fn all_nodes_read_what_their_sessions_read(
        world in (2_u32..5, 1_u32..3),
        samples in 160_u32..320,
        tiers in (0_u32..9, 0_u32..9),
        lost in prop::option::of((0_u32..4, 0_u32..1000)),
        form in prop::option::of(prop::sample::select(&Form::ALL[..])),
    ) {
        let case = Case::new(world, samples, [tiers.0, tiers.1]).transformed(form);
        assert_equal(&match lost {
            Some((node, part)) => case.lost_at(node, part),
            None => case,
        });
    }
}
