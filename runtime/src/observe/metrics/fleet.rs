//! The metrics of a manager and its job. docs/metrics.md lists them; a test compares the names.

use std::collections::BTreeMap;

use prometheus_client::metrics::MetricType::{Counter, Gauge};
use tierfeed_core::{
    fleet::{
        Fleet, Node, Notice, Progress, State,
        members::{PeerLink, Standing},
    },
    id::{Epoch, NodeId},
    order::Spec,
    units::Nanoseconds,
};

use super::{Families, Value, labelled, one};
use crate::observe::observed::{LinkEntry, ObservedEntry};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagerCounters {
    /// By kind of call.
    messages: BTreeMap<&'static str, u64>,
    plans: u64,
    refused: u64,
    lost: u64,
    back: u64,
}

impl ManagerCounters {
    pub fn count_message(&mut self, kind: &'static str) {
        *self.messages.entry(kind).or_default() += 1;
    }

    pub fn count_registration<T, E>(&mut self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.plans += 1,
            Err(_) => self.refused += 1,
        }
    }

    pub fn count_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::NodeLost { .. } => self.lost += 1,
            Notice::NodeBack { .. } => self.back += 1,
            Notice::Revised { .. } | Notice::Over => (),
        }
    }

    #[must_use]
    pub fn families(&self, job: &str, fleet: &Fleet) -> Families {
        let mut to = Families::default();
        to.version();
        to.about(job, fleet.settings().policy.name());
        self.counted(&mut to);
        nodes(fleet, &mut to);
        told(fleet, &mut to);
        by_node(fleet, &mut to);
        by_peer(fleet, &mut to);
        to
    }

    fn counted(&self, to: &mut Families) {
        let messages = self.messages.iter().map(|(kind, count)| labelled([("kind", kind)], count));
        to.add(Counter, "manager_messages", "Messages of agents and users", messages);
        let help = "Schedules that were given to agents";
        to.add(Counter, "manager_plans", help, one(self.plans));
        let help = "Agents that could not take part";
        to.add(Counter, "manager_refused", help, one(self.refused));
        to.add(Counter, "manager_nodes_lost", "Nodes that fell silent", one(self.lost));
        let help = "Silent nodes that came back";
        to.add(Counter, "manager_nodes_back", help, one(self.back));
    }
}

fn nodes(fleet: &Fleet, to: &mut Families) {
    let order = &fleet.settings().order;
    let states = State::ALL.map(|state| {
        let count = fleet.nodes().filter(|(_, node)| node.state == state).count();
        labelled([("state", state.name())], count as u64)
    });
    to.add(Gauge, "manager_nodes", "Nodes that joined, by how they stand", states);
    to.add(Gauge, "manager_nodes_wanted", "Nodes of the job", one(order.world.nodes));
    let epochs = fleet.nodes().map(|(_, node)| epoch_of(order, node.progress.batches));
    let epoch = epochs.min().unwrap_or(order.start.epoch.0);
    let help = "The epoch of the node that is farthest behind";
    to.add(Gauge, "manager_epoch", help, one(epoch));
    let help = "1 once the job was asked to end";
    to.add(Gauge, "manager_draining", help, one(fleet.is_draining()));
    let lent: u64 = fleet.nodes().map(|(_, node)| u64::from(node.lent.lent())).sum();
    let help = "Chunks of CXL memory that workloads hold";
    to.add(Gauge, "manager_lent_chunks", help, one(lent));
}

/// Sums over the nodes' last reports: gauges, because a restarted node counts from 0.
fn told(fleet: &Fleet, to: &mut Families) {
    let sum = |of: fn(&Progress) -> u64| {
        let of_node = |(_, node): (_, &Node)| of(&node.progress);
        fleet.nodes().map(of_node).fold(0, u64::saturating_add)
    };
    let help = "Batches handed over, as the nodes told last";
    to.add(Gauge, "job_batches", help, one(sum(|it| it.batches)));
    to.add(Gauge, "job_samples", "Samples in them", one(sum(|it| it.samples)));
    to.add(Gauge, "job_handed_over_bytes", "Bytes in them", one(sum(|it| it.handed_over.0)));
    let help = "Bytes read from the cold store";
    to.add(Gauge, "job_cold_read_bytes", help, one(sum(|it| it.cold_read.0)));
    let help = "Time for which trainers waited, summed over ranks, as the nodes told last";
    to.add(Gauge, "job_stall_seconds", help, one(Nanoseconds(sum(|it| it.stall.0))));
    to.add(Gauge, "job_faults", "Operations that failed", one(sum(|it| it.faults)));
}

fn by_node(fleet: &Fleet, to: &mut Families) {
    let mut of_each = |name, help, value: fn(&Node) -> Value| {
        let series = fleet.nodes().map(|(id, node)| (vec![label("node", id)], value(node)));
        to.add(Gauge, name, help, series);
    };
    of_each("node_up", "1 for a node that is alive", |it| (it.state == State::Alive).into());
    of_each("node_batches", "Batches that its trainers took", |it| it.progress.batches.into());
    let help = "Time for which its trainers waited, summed over ranks";
    of_each("node_stall_seconds", help, |it| it.progress.stall.into());
    let help = "Bytes that it read from the cold store";
    of_each("node_cold_read_bytes", help, |it| it.progress.cold_read.into());
    of_each("node_faults", "Operations that failed on it", |it| it.progress.faults.into());
    let rates = fleet.nodes().flat_map(|(id, node)| {
        let observed = node.observed.as_ref();
        let links = observed.map(|it| ObservedEntry::of(it, &node.schedule, &node.offer).links);
        let rate = move |link: LinkEntry| {
            Some((vec![label("node", id), ("link", link.name)], link.bytes_per_s?.into()))
        };
        links.unwrap_or_default().into_iter().filter_map(rate)
    });
    let help = "Bytes that a link of the node gave a second while anything ran";
    to.add(Gauge, "node_link_rate_bytes", help, rates);
}

fn by_peer(fleet: &Fleet, to: &mut Families) {
    let mut of_each = |name, help, value: fn(&PeerLink) -> Option<Value>| {
        let links = |(id, _)| fleet.peer_links(id).iter().map(move |link| (id, link));
        let series = fleet.nodes().flat_map(links).filter_map(|(id, link)| {
            Some((vec![label("node", id), label("peer", link.peer)], value(link)?))
        });
        to.add(Gauge, name, help, series);
    };
    let help = "Bytes that it read from a peer";
    of_each("node_peer_received_bytes", help, |link| Some(link.received.into()));
    of_each("node_peer_sent_bytes", "Bytes that it sent to a peer", |link| Some(link.sent.into()));
    let help = "Bytes a second that come from a peer";
    of_each("node_peer_rate_bytes", help, |link| Some(link.rate?.0.into()));
    let help = "Reads of a peer that failed, late ones included";
    of_each("node_peer_failures", help, |link| Some(link.failures.into()));
    let help = "1 for a peer that is read from, 0 for one that is too slow or fails";
    of_each("node_peer_asked", help, |link| match link.standing {
        Standing::Gone => None,
        standing => Some((standing == Standing::Asked).into()),
    });
}

fn label(name: &'static str, id: NodeId) -> (&'static str, String) {
    (name, id.0.to_string())
}

/// The epoch of a node whose ranks took `batches` batches together.
fn epoch_of(order: &Spec, batches: u64) -> u32 {
    let ranks = u64::from(order.world.ranks_per_node);
    let mut left = batches;
    for epoch in order.start.epoch.0..order.epochs {
        let steps = u64::from(order.steps_in(Epoch(epoch))) * ranks;
        if left < steps {
            return epoch;
        }
        left -= steps;
    }
    order.epochs.saturating_sub(1)
}

#[cfg(test)]
pub(super) mod tests {
    use tierfeed_core::{
        fleet::{Registration, Settings, first_schedule, members::PeerReport},
        order::{FurtherDatasets, Position, Shuffle, World},
        retention::policy,
        session::{Observed, ObservedLink},
        units::{Bytes, BytesPerSecond},
    };

    use super::*;
    use crate::observe::metrics::tests::{documented, names};

    /// Two nodes with two ranks each: 100 samples are 5 steps an epoch.
    fn order() -> Spec {
        Spec {
            samples: 100,
            shuffle: Shuffle::Sequential,
            seed: 0,
            epochs: 3,
            drop_last: false,
            batch_size: 5,
            world: World { nodes: 2, ranks_per_node: 2 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        }
    }

    fn fleet() -> Fleet {
        Fleet::new(Settings {
            order: order(),
            policy: policy::Kind::Gap,
            lost_after: Nanoseconds(10),
        })
    }

    fn register(fleet: &mut Fleet, counters: &mut ManagerCounters, home: u64) {
        let node = NodeId(u32::try_from(home).unwrap() - 1);
        let offer = crate::schedule::tests::offer(None);
        let schedule = first_schedule::of(&crate::schedule::tests::inputs(), &offer).unwrap();
        let agent = Registration { node, home, incarnation: home, offer };
        counters.count_message("register");
        counters.count_registration(&fleet.handle_registration(agent, schedule, Nanoseconds(0)));
    }

    #[test]
    fn the_documentation_names_the_metrics_of_a_manager() {
        let text = ManagerCounters::default().families("resnet", &fleet()).text();
        assert_eq!(documented("Metrics of a manager"), names(&text));
    }

    /// The metrics of a job whose node observed its cold store, and reads from another node.
    pub(in super::super) fn text() -> String {
        let (mut fleet, mut counters) = (fleet(), ManagerCounters::default());
        register(&mut fleet, &mut counters, 1);
        let (bytes, busy) = (Bytes(500), Nanoseconds(1_000_000_000));
        let cold =
            ObservedLink { bytes, operations: 1, busy, in_flight: busy, ..ObservedLink::default() };
        let (planned, tiers) = (Epoch(0), Vec::new());
        let transforms = Default::default();
        let observed =
            Observed { planned, cold, tiers, transforms, load: None, cycle: None, supply: None };
        fleet.handle_observed(NodeId(0), observed);
        let link = PeerLink {
            peer: NodeId(1),
            received: Bytes(30),
            sent: Bytes(20),
            in_flight: Bytes(0),
            failures: 4,
            rate: Some(BytesPerSecond(900)),
            round_trip: None,
            standing: Standing::Slow,
        };
        let report = PeerReport {
            address: "10.0.0.1:1".into(),
            room: Bytes(1),
            generation: 0,
            divided: Epoch(0),
            links: vec![link],
        };
        fleet.handle_peer_report(NodeId(0), 1, report, Nanoseconds(0)).unwrap();
        counters.families("resnet", &fleet).text()
    }

    #[test]
    fn the_links_of_a_node_are_told_by_their_rates() {
        has(&text(), "tierfeed_node_link_rate_bytes{node=\"0\",link=\"cold-store\"} 500");
    }

    #[test]
    fn the_links_between_nodes_are_told() {
        let has = |name: &str, value| {
            has(&text(), &format!("tierfeed_node_peer_{name}{{node=\"0\",peer=\"1\"}} {value}"));
        };
        has("received_bytes", 30);
        has("sent_bytes", 20);
        has("rate_bytes", 900);
        has("failures", 4);
        has("asked", 0);
    }

    #[track_caller]
    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
    }

    #[test]
    fn nodes_plans_messages_and_losses_are_counted() {
        let (mut fleet, mut counters) = (fleet(), ManagerCounters::default());
        (1..=3).for_each(|home| register(&mut fleet, &mut counters, home));
        let progress = Progress { batches: 11, cold_read: Bytes(70), ..Progress::default() };
        fleet.handle_progress(NodeId(0), 1, progress, Nanoseconds(20));
        counters.count_message("report");
        fleet.handle_tick(Nanoseconds(21));
        while let Some(notice) = fleet.poll_notice() {
            counters.count_notice(&notice);
        }
        let text = counters.families("resnet", &fleet).text();
        has(&text, "tierfeed_manager_nodes{state=\"alive\"} 1");
        has(&text, "tierfeed_manager_nodes{state=\"lost\"} 1");
        has(&text, "tierfeed_manager_nodes_wanted 2");
        has(&text, "tierfeed_manager_messages_total{kind=\"register\"} 3");
        has(&text, "tierfeed_manager_messages_total{kind=\"report\"} 1");
        has(&text, "tierfeed_manager_plans_total 2");
        has(&text, "tierfeed_manager_refused_total 1");
        has(&text, "tierfeed_manager_nodes_lost_total 1");
        has(&text, "tierfeed_manager_nodes_back_total 0");
        has(&text, "tierfeed_manager_epoch 0");
        has(&text, "tierfeed_manager_draining 0");
        has(&text, "tierfeed_node_up{node=\"0\"} 1");
        has(&text, "tierfeed_node_up{node=\"1\"} 0");
        has(&text, "tierfeed_node_batches{node=\"0\"} 11");
        has(&text, "tierfeed_node_cold_read_bytes{node=\"0\"} 70");
        has(&text, "tierfeed_job_batches 11");
        has(&text, "tierfeed_job_cold_read_bytes 70");
        has(&text, "tierfeed_job_info{job=\"resnet\",policy=\"gap\"} 1");
    }

    #[test]
    fn a_job_that_was_asked_to_end_says_so() {
        let (mut fleet, counters) = (fleet(), ManagerCounters::default());
        fleet.handle_drain();
        has(&counters.families("resnet", &fleet).text(), "tierfeed_manager_draining 1");
    }

    #[test]
    fn the_epoch_is_that_of_the_batches_of_all_ranks_of_a_node() {
        let epochs = [0, 9, 10, 19, 20, 29, 30, 1000].map(|batches| epoch_of(&order(), batches));
        assert_eq!(epochs, [0, 0, 1, 1, 2, 2, 2, 2], "and the last one stays");
    }
}
