use std::num::NonZeroU32;

use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use tierfeed_core::{
    fleet::{
        Applied, Fleet, Origin, Settings, State, TransformProgress, first_schedule,
        members::{PeerAddress, PeerLink, Standing},
        schedule::{Location, Offer, OwnLengths, Role, TransformOffer, TransformSchedule},
        training::Cause,
    },
    id::{Epoch, NumaNode},
    order::{FURTHER_MAX, FurtherDatasets, Position, Shuffle, Spec},
    retention::{
        form::{Form, SampleTime},
        partition::{Member, Membership},
        policy,
    },
    session::{Cycle, ObservedLink, ObservedTransforms, Supply, staging_depth},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::available::{DiskSpace, Load, NodeFree, Pressure};

use super::*;
use crate::schedule::tests::{inputs, offer};

fn received<T: DeserializeOwned>(sent: &impl Serialize) -> T {
    serde_json::from_slice(&serde_json::to_vec(sent).unwrap()).unwrap()
}

#[track_caller]
fn survives(call: &Call) {
    assert_eq!(format!("{:?}", received::<Call>(call)), format!("{call:?}"));
}

fn full_offer() -> Offer {
    let mut offer = offer(200);
    offer.tiers[1].origin = Origin::Emulated;
    offer.tiers[1].location = Location::NumaNode(NumaNode(2));
    let (mean, deviation) = (Bytes(5), Bytes(6));
    let own = OwnLengths { fingerprint: Some(u64::MAX), mean, deviation, scan: None };
    let each = SampleTime { prepare: Nanoseconds(7), rest: Nanoseconds(8) };
    offer.transform = Some(TransformOffer {
        each: Some(each),
        own: Some(own),
        ..TransformOffer::of_threads(NonZeroU32::MIN)
    });
    offer
}

fn progress() -> Progress {
    let (worked, trained) = (Nanoseconds(9), Nanoseconds(u64::MAX));
    Progress {
        batches: u64::MAX,
        cold_read: Bytes(3),
        tier_read: Kind::ALL.map(|kind| (kind, Bytes(4))).to_vec(),
        applied: vec![Applied { generation: 1, epoch: Epoch(2) }],
        transforms: Some(TransformProgress {
            workers: 1,
            waiting: 2,
            rows: 3,
            rejected: 4,
            replaced: 5,
            worked,
            trained,
        }),
        ..Progress::default()
    }
}

fn observed() -> Observed {
    let link = ObservedLink { bytes: Bytes(1), operations: 2, ..ObservedLink::default() };
    let transforms = ObservedTransforms { samples: 3, ..ObservedTransforms::default() };
    let (reads, samples) = (4, 5);
    let (read_len, step_time) = (Bytes(6), Nanoseconds(7));
    Observed {
        planned: Epoch(1),
        cold: link,
        tiers: vec![link; 2],
        transforms: [transforms; 2],
        load: Some(staging_depth::Load { samples, reads, read_len, step_time }),
        cycle: Some(Cycle { consumed: Bytes(1), busy: Nanoseconds(2), idle: Nanoseconds(3) }),
        supply: Some(Supply {
            epoch: Bytes(1),
            capacity: Bytes(2),
            staged: Bytes(3),
            hits: 4,
            cold: BytesPerSecond(5),
        }),
    }
}

fn available() -> Available {
    let (some, full) = (Nanoseconds(9000), Nanoseconds(0));
    Available {
        host: Bytes(5),
        cgroup: None,
        nodes_free: vec![NodeFree { numa_node: NumaNode(3), free: Bytes(4) }],
        pressure: Some(Pressure { some_percent: 2.5, some, full_percent: 0.0, full }),
        load: Some(Load { one_minute: 1.5, runnable: 2 }),
        disks: vec![DiskSpace { path: "/nvme".into(), free: Bytes(1), total: Bytes(2) }],
    }
}

#[test]
fn every_call_survives_the_wire() {
    let (node, incarnation) = (NodeId(7), u64::MAX);
    let link = |standing| PeerLink {
        peer: NodeId(1),
        received: Bytes(2),
        sent: Bytes(3),
        in_flight: Bytes(4),
        failures: 5,
        rate: Some(BytesPerSecond(6)),
        round_trip: None,
        standing,
    };
    let report = PeerReport {
        address: "10.0.0.1:700".into(),
        links: Standing::ALL.map(link).to_vec(),
        ..PeerReport::before_it_listens()
    };
    let (available, observed) = (Some(Box::new(available())), Some(Box::new(observed())));
    let schedules = vec![first_schedule::of(&inputs(), &full_offer()).unwrap()];
    let told = Report { node, incarnation, progress: progress(), available, observed, schedules };
    let stage = Stage::Ended(Some(Cause::Asked(10)));
    let summary = NodeSummary::without_report(7, "host".into(), 3, "/report.json".as_ref());
    let offer = full_offer();
    [
        Call::Job,
        Call::Index { offset: u64::MAX },
        Call::Register(Box::new(Registration { node, home: 1, incarnation, offer })),
        Call::Report(Box::new(told)),
        Call::Drained { node, incarnation, progress: progress() },
        Call::Peers { node, incarnation, report },
        Call::Memory { node, incarnation, loan: Loan::Return(3) },
        Call::Drain,
        Call::Status,
        Call::Training { node, stage, summary: Some(Box::new(summary)) },
    ]
    .iter()
    .for_each(survives);
}

#[test]
fn answers_survive_the_wire_as_what_was_asked_for() {
    let transform = TransformSchedule {
        form: Form::Prepared,
        threads: NonZeroU32::MIN,
        reason: "r".into(),
        lengths: Some(1),
    };
    let schedule = first_schedule::of(&inputs(), &full_offer()).unwrap();
    let schedule = Schedule { transform: Some(transform), ..schedule };
    let (node, generation, order) = (NodeId(1), 2, u64::MAX);
    for policy in policy::Kind::ALL {
        let schedule = schedule.clone();
        let it = Assignment { node, generation, order, policy, schedule };
        assert_eq!(received::<Assignment>(&Answer::Assignment(Box::new(it.clone()))), it);
    }
    let directions =
        [Direction::Continue, Direction::Drain, Direction::Superseded, Direction::Unknown];
    for direction in directions {
        assert_eq!(received::<Direction>(&Answer::Direction(direction)), direction);
    }
    let nodes = [Member { room: Bytes(1), process: 2 }].into_iter().collect();
    let peers = Peers {
        generation: 4,
        memberships: vec![Membership { generation: 3, from: Epoch(1), nodes }],
        addresses: vec![PeerAddress { address: "h:1".into(), process: 1 }],
    };
    let all = [
        PeersAnswer::Same { secret: Some([7; 32]) },
        PeersAnswer::Same { secret: None },
        PeersAnswer::Changed(peers),
        PeersAnswer::Unknown,
    ];
    for it in all {
        assert_eq!(received::<PeersAnswer>(&Answer::Peers(it.clone())), it);
    }
    let outlook = Outlook { ends: Some(Cause::Failed(3)), is_over: true };
    let told = Told { outlook, meeting_port: 80 };
    assert_eq!(received::<Told>(&Answer::Told(told)), told);
    received::<()>(&Answer::Done);
    let part = IndexPart { bytes: (0..=255).collect(), whole: 9 };
    assert_eq!(received::<IndexPart>(&Answer::Index(part)).bytes, (0..=255).collect::<Vec<u8>>());
}

/// All values below a value, with the paths to them.
fn leaves(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(all) => {
            all.iter().enumerate().for_each(|(at, it)| leaves(it, &format!("{path}/{at}"), found));
        }
        serde_json::Value::Object(all) => {
            all.iter().for_each(|(key, it)| leaves(it, &format!("{path}/{key}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

proptest! {
    #[test]
    fn no_value_of_a_message_makes_reading_panic(at: prop::sample::Index, kind in 0..6, number: i64) {
        let offer = full_offer();
        let agent = Registration { node: NodeId(1), home: 1, incarnation: 1, offer };
        let mut sent = serde_json::to_value(Call::Register(Box::new(agent))).unwrap();
        let mut paths = Vec::new();
        leaves(&sent, "", &mut paths);
        *sent.pointer_mut(&paths[at.index(paths.len())]).unwrap() = match kind {
            0 => serde_json::Value::Null,
            1 => number.into(),
            2 => u64::MAX.into(),
            3 => (-1.5e300).into(),
            4 => "none".into(),
            _ => serde_json::json!([{}]),
        };
        let _ = serde_json::from_value::<Call>(sent);
    }
}

#[test]
fn what_another_version_says_is_refused_by_name() {
    let schedule = first_schedule::of(&inputs(), &offer(200)).unwrap();
    let error = |field: &str, value: serde_json::Value| {
        let mut sent = serde_json::to_value(&schedule).unwrap();
        *sent.pointer_mut(field).unwrap() = value;
        serde_json::from_value::<Schedule>(sent).unwrap_err().to_string()
    };
    let role = error("/tiers/0/role", "tape".into());
    assert!(role.starts_with("\"tape\" is none of retention-and-look-ahead, "), "{role}");
    for field in ["/chunk", "/depth"] {
        assert_eq!(error(field, 0.into()), "it must not be 0");
    }
    let error = serde_json::from_str::<Call>(r#"{"Memory": {"node": 1, "loan": {"Ask": 1}}}"#);
    assert!(error.unwrap_err().to_string().starts_with("missing field `incarnation`"));
}

/// The bytes that the manager sends to each node before it works: the job file with the path of the index
/// in it, and the schedule.
fn sent_to_each(nodes: u32, samples: u32, epochs: u32) -> Vec<usize> {
    let order = Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: u64::MAX,
        epochs,
        drop_last: false,
        batch_size: 256,
        world: World { nodes, ranks_per_node: 8 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    let mut fleet =
        Fleet::new(Settings { order, policy: policy::Kind::Gap, lost_after: Nanoseconds(1) });
    let job = Answer::Job(JobText {
        name: "imagenet".into(),
        text: include_str!("../../../../configs/imagenet-resnet50.yaml").into(),
        file: format!("/{}", "d".repeat(4094)).into(),
        index_fingerprint: u64::MAX,
        further_fingerprints: vec![u64::MAX; FURTHER_MAX],
        world: World { nodes: u32::MAX, ranks_per_node: u32::MAX },
    });
    let job = serde_json::to_vec(&job).unwrap().len();
    let offer = offer(200);
    let schedule = first_schedule::of(&inputs(), &offer).unwrap();
    let mut join = |node| {
        let (home, offer) = (u64::from(node), offer.clone());
        let agent = Registration { node: NodeId(node), home, incarnation: home, offer };
        let now = Nanoseconds(home);
        let assignment = fleet.handle_registration(agent, schedule.clone(), now).unwrap();
        job + serde_json::to_vec(&assignment).unwrap().len()
    };
    (0..nodes).map(&mut join).collect()
}

#[test]
fn each_of_a_thousand_nodes_is_sent_less_than_a_mebibyte() {
    let sent = sent_to_each(1024, 14_000_000, 90);
    let most = *sent.iter().max().unwrap();
    assert_eq!(sent.len(), 1024);
    assert!(most < 1 << 20, "{most} bytes");
    // Only the node's own number and the fingerprint of the order may take more digits.
    let small = sent_to_each(1, 10_000, 9)[0];
    assert!(most - small <= 24, "{most} bytes, and {small} for a small job");
}

#[test]
fn status_shows_what_nodes_told() {
    let order = Spec {
        samples: 100,
        shuffle: Shuffle::Sequential,
        seed: 0,
        epochs: 3,
        drop_last: false,
        batch_size: 10,
        world: World { nodes: 1, ranks_per_node: 2 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    let mut fleet =
        Fleet::new(Settings { order, policy: policy::Kind::Gap, lost_after: Nanoseconds(1) });
    let mut offer = offer(200);
    offer.tiers[1].origin = Origin::Emulated;
    let schedule = first_schedule::of(&inputs(), &offer).unwrap();
    let agent = Registration { node: NodeId(0), home: 1, incarnation: 2, offer };
    fleet.handle_registration(agent, schedule, Nanoseconds(0)).unwrap();
    fleet.handle_memory_asked(NodeId(0), 2, 3, Nanoseconds(0)).unwrap();
    let tier_read = vec![(Kind::CxlMemory, Bytes(77))];
    let progress = Progress { batches: 4, tier_read, ..Progress::default() };
    fleet.handle_progress(NodeId(0), 2, progress, Nanoseconds(0));
    let left = available();
    let told = |node| (node == NodeId(0)).then_some((&left, Nanoseconds(7)));
    let sent = Answer::Status(Box::new(JobStatus::of("job", &fleet, told)));
    let status: JobStatus = received(&sent);
    assert_eq!((status.job.as_str(), status.batches, status.nodes), ("job", 30, 1));
    let node = &status.joined[0];
    assert_eq!((node.state, node.batches, node.lent_chunks), (State::Alive, 4, 3));
    assert_eq!((node.tiers[1].read_bytes, node.tiers[1].tier.emulated), (77, true));
    let place = "second: 15 GB/s, faster than scratch";
    assert_eq!(
        (node.tiers[1].tier.role, node.tiers[1].tier.decision.as_str()),
        (Role::RetentionAndLookAhead, place)
    );
    assert_eq!((node.schedule.generation, node.schedule.staged_batches), (0, 4));
    let shown = serde_json::to_value(node.available.as_ref().unwrap()).unwrap();
    let expected = serde_json::json!({
        "age_ns": 7,
        "host_bytes": 5,
        "cgroup_bytes": null,
        "numa_nodes": [{ "numa_node": 3, "free_bytes": 4 }],
        "pressure": {
            "some_percent": 2.5, "some_ns": 9000, "full_percent": 0.0, "full_ns": 0
        },
        "load": { "one_minute": 1.5, "runnable_tasks": 2 },
        "directories": [{ "path": "/nvme", "free_bytes": 1, "total_bytes": 2 }],
    });
    assert_eq!(shown, expected);
    let silent = Answer::Status(Box::new(JobStatus::of("job", &fleet, |_| None)));
    assert_eq!(received::<JobStatus>(&silent).joined[0].available, None);
}
