//! The metrics of a manager and its job. docs/metrics.md lists them; a test compares the names.

use std::collections::BTreeMap;

use prometheus_client::registry::Unit;
use tierfeed_core::{
    fleet::{
        Fleet, Node, Notice, Progress, State,
        members::{PeerLink, Standing},
    },
    id::{Epoch, NodeId},
    order::Spec,
    units::{Bytes, Nanoseconds},
};

use super::{Families, Family, FamilyKind, Labels, Value, seconds, view::count};
use crate::observe::observed::ObservedEntry;

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
        let groups = [
            about(job, fleet),
            self.counted(),
            nodes(fleet),
            told(fleet),
            by_node(fleet),
            by_peer(fleet),
        ];
        Families(groups.into_iter().flatten().collect())
    }

    fn counted(&self) -> Vec<Family> {
        let help = "Messages of agents and users";
        let mut messages = Family::new("manager_messages", help, None, FamilyKind::Counter);
        for (kind, count) in &self.messages {
            messages.add(vec![("kind", (*kind).to_owned())], Value::Count(*count));
        }
        vec![
            messages,
            count("manager_plans", "Schedules that were given to agents", self.plans),
            count("manager_refused", "Agents that could not take part", self.refused),
            count("manager_nodes_lost", "Nodes that fell silent", self.lost),
            count("manager_nodes_back", "Silent nodes that came back", self.back),
        ]
    }
}

fn about(job: &str, fleet: &Fleet) -> Vec<Family> {
    let mut build = Family::new("build", "The version of tierfeed", None, FamilyKind::Info);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    build.add(vec![("version", version)], Value::Present);
    let mut about = Family::new("job", "The job and its rule of retention", None, FamilyKind::Info);
    let policy = fleet.settings().policy.name().to_owned();
    about.add(vec![("job", job.to_owned()), ("policy", policy)], Value::Present);
    vec![build, about]
}

fn nodes(fleet: &Fleet) -> Vec<Family> {
    let gauge = |name, help| Family::new(name, help, None, FamilyKind::Gauge);
    let mut nodes = gauge("manager_nodes", "Nodes that joined, by how they stand");
    for state in State::ALL {
        let count = fleet.nodes().filter(|(_, node)| node.state == state).count();
        nodes.add(vec![("state", state.name().to_owned())], Value::Count(count as u64));
    }
    let mut world = gauge("manager_nodes_wanted", "Nodes of the job");
    world.add(Labels::new(), Value::Count(fleet.settings().order.world.nodes.into()));
    let mut epoch = gauge("manager_epoch", "The epoch of the node that is farthest behind");
    let order = &fleet.settings().order;
    let epochs = fleet.nodes().map(|(_, node)| epoch_of(order, node.progress.batches));
    epoch.add(Labels::new(), Value::Count(epochs.min().unwrap_or(order.start.epoch.0).into()));
    let mut draining = gauge("manager_draining", "1 once the job was asked to end");
    draining.add(Labels::new(), Value::Count(fleet.is_draining().into()));
    let mut lent = gauge("manager_lent_chunks", "Chunks of CXL memory that workloads hold");
    let chunks = fleet.nodes().map(|(_, node)| u64::from(node.lent.lent())).sum();
    lent.add(Labels::new(), Value::Count(chunks));
    vec![nodes, world, epoch, draining, lent]
}

/// Sums over the nodes' last reports: gauges, because a restarted node counts from 0.
fn told(fleet: &Fleet) -> Vec<Family> {
    let sum = |of: fn(&Progress) -> u64| {
        let of_node = |(_, node): (_, &Node)| of(&node.progress);
        fleet.nodes().map(of_node).fold(0, u64::saturating_add)
    };
    let gauge = |name, help, unit, value| {
        let mut family = Family::new(name, help, unit, FamilyKind::Gauge);
        family.add(Labels::new(), value);
        family
    };
    let count = |name, help, value| gauge(name, help, None, Value::Count(value));
    let bytes =
        |name, help, Bytes(value)| gauge(name, help, Some(Unit::Bytes), Value::Count(value));
    let stall = Value::Seconds(seconds(Nanoseconds(sum(|it| it.stall.0))));
    let help = "Time for which trainers waited, summed over ranks, as the nodes told last";
    vec![
        count("job_batches", "Batches handed over, as the nodes told last", sum(|it| it.batches)),
        count("job_samples", "Samples in them", sum(|it| it.samples)),
        bytes("job_handed_over", "Bytes in them", Bytes(sum(|it| it.handed_over.0))),
        bytes("job_cold_read", "Bytes read from the cold store", Bytes(sum(|it| it.cold_read.0))),
        gauge("job_stall", help, Some(Unit::Seconds), stall),
        count("job_faults", "Operations that failed", sum(|it| it.faults)),
    ]
}

fn by_node(fleet: &Fleet) -> Vec<Family> {
    let label = |id: NodeId| ("node", id.0.to_string());
    let of_each = |name, help, unit, value: fn(&Node) -> Value| {
        let mut family = Family::new(name, help, unit, FamilyKind::Gauge);
        for (id, node) in fleet.nodes() {
            family.add(vec![label(id)], value(node));
        }
        family
    };
    let bytes = || Some(Unit::Bytes);
    let help = "Bytes that a link of the node gave a second while anything ran";
    let mut rates = Family::new("node_link_rate", help, bytes(), FamilyKind::Gauge);
    for (id, node) in fleet.nodes() {
        let Some(observed) = &node.observed else { continue };
        for link in ObservedEntry::of(observed, &node.schedule, &node.offer).links {
            let Some(rate) = link.bytes_per_s else { continue };
            rates.add(vec![label(id), ("link", link.name)], Value::Count(rate));
        }
    }
    vec![
        of_each("node_up", "1 for a node that is alive", None, |node| {
            Value::Count((node.state == State::Alive).into())
        }),
        of_each("node_batches", "Batches that its trainers took", None, |node| {
            Value::Count(node.progress.batches)
        }),
        of_each(
            "node_stall",
            "Time for which its trainers waited, summed over ranks",
            Some(Unit::Seconds),
            |node| Value::Seconds(seconds(node.progress.stall)),
        ),
        of_each("node_cold_read", "Bytes that it read from the cold store", bytes(), |node| {
            Value::Count(node.progress.cold_read.0)
        }),
        of_each("node_faults", "Operations that failed on it", None, |node| {
            Value::Count(node.progress.faults)
        }),
        rates,
    ]
}

fn by_peer(fleet: &Fleet) -> Vec<Family> {
    let of_each = |name, help, unit, value: fn(&PeerLink) -> Option<Value>| {
        let mut family = Family::new(name, help, unit, FamilyKind::Gauge);
        for (id, _) in fleet.nodes() {
            for link in fleet.peer_links(id) {
                let labels = [("node", id), ("peer", link.peer)];
                let labels = labels.map(|(name, id)| (name, id.0.to_string()));
                value(link).into_iter().for_each(|value| family.add(labels.to_vec(), value));
            }
        }
        family
    };
    let bytes = || Some(Unit::Bytes);
    vec![
        of_each("node_peer_received", "Bytes that it read from a peer", bytes(), |link| {
            Some(Value::Count(link.received.0))
        }),
        of_each("node_peer_sent", "Bytes that it sent to a peer", bytes(), |link| {
            Some(Value::Count(link.sent.0))
        }),
        of_each("node_peer_rate", "Bytes a second that come from a peer", bytes(), |link| {
            link.rate.map(|rate| Value::Count(rate.0))
        }),
        of_each(
            "node_peer_failures",
            "Reads of a peer that failed, late ones included",
            None,
            |link| Some(Value::Count(link.failures)),
        ),
        of_each(
            "node_peer_asked",
            "1 for a peer that is read from, 0 for one that is too slow or fails",
            None,
            |link| {
                let is_asked = link.standing == Standing::Asked;
                (link.standing != Standing::Gone).then(|| Value::Count(is_asked.into()))
            },
        ),
    ]
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
        fleet::{Registration, Settings, members::PeerReport},
        order::{FurtherDatasets, Position, Shuffle, World},
        retention::policy,
        session::{Observed, ObservedLink},
        units::BytesPerSecond,
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
        let schedule = crate::schedule::of(&crate::schedule::tests::inputs(), &offer).unwrap();
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
