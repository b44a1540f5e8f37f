use std::num::NonZeroU32;

use proptest::prelude::*;
use prost::Message;
use tierfeed_core::{
    fleet::{
        Applied, Assignment, Direction, Fleet, Origin, Progress, Registration, Settings,
        TransformProgress,
        schedule::{
            Device, Figures, FoundTier, LinkWindows, Location, Offer, OwnLengths, Role, Schedule,
            ScheduledTier, TransformOffer, TransformSchedule, WriteRates,
        },
    },
    id::{Epoch, NodeId, NumaNode},
    order::{FURTHER_MAX, FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        form::{Form, SampleTime},
        in_place::{Choice, Costs, Pace, Rates, Reason, Way, Wish},
        policy,
    },
    session::{Cycle, Observed, ObservedLink, ObservedTransforms, Supply, staging_depth},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_resource_gatherer::available::{Available, DiskSpace, Load, Pressure, Waiting};

use super::{messages::to_direction, *};
use crate::{
    observe::status::JobStatus,
    schedule::{
        self,
        tests::{offer, terms},
    },
};

const BOTH: &str = "retention-and-look-ahead";

prop_compose! {
    fn any_figures()(
        figures in any::<(Option<u64>, Option<u64>)>(),
        from in any::<String>(),
        is_rough: bool,
    ) -> Figures {
        let (latency, bandwidth) = (figures.0.map(Nanoseconds), figures.1.map(BytesPerSecond));
        Figures { latency, bandwidth, from, is_rough }
    }
}

fn any_location() -> impl Strategy<Value = Location> {
    prop_oneof![
        Just(Location::Memory),
        any::<u32>().prop_map(|node| Location::NumaNode(NumaNode(node))),
        any::<String>().prop_map(Location::Directory),
    ]
}

prop_compose! {
    fn any_found()(
        (kind, location, figures) in (0_usize..4, any_location(), any_figures()),
        (budget, beside) in any::<(u64, u64)>(),
        flags in any::<[bool; 3]>(),
        reads in any::<Option<[u64; 3]>>(),
        writes in any::<Option<(u64, u64)>>(),
    ) -> FoundTier {
        let rate = BytesPerSecond;
        FoundTier {
            kind: Kind::ALL[kind],
            origin: if flags[0] { Origin::Emulated } else { Origin::Real },
            location,
            device: if flags[1] { Device::OfTheDataset } else { Device::Own },
            budget: Bytes(budget),
            beside: Bytes(beside),
            figures,
            pace: if flags[2] { Pace::Imposed } else { Pace::Own },
            reads: reads.map(|[copying, alone, main]| Rates {
                tier_copying: rate(copying),
                tier_alone: rate(alone),
                main_memory: rate(main),
            }),
            writes: writes.map(|(one, two)| WriteRates { one: rate(one), two: rate(two) }),
        }
    }
}

prop_compose! {
    fn any_offer()(
        tiers in prop::collection::vec(any_found(), 0..5),
        cold in any_figures(),
        transform in prop::option::of(any_transform_offer()),
    ) -> Offer {
        Offer { tiers, cold, transform }
    }
}

prop_compose! {
    fn any_scheduled()(
        (offered, copy_threads, cache, staging) in any::<(u32, u32, u64, u64)>(),
        role in prop::sample::select(Role::ALL.to_vec()),
        wish in prop::sample::select(Wish::ALL.to_vec()),
        (is_direct, costs) in any::<(Option<bool>, Option<(u64, u64)>)>(),
        reason in any::<String>(),
    ) -> ScheduledTier {
        let costs = costs.map(|(copied, direct)| Costs {
            copied: Nanoseconds(copied),
            direct: Nanoseconds(direct),
        });
        let direct = is_direct.map(|is_direct| Choice {
            wish,
            way: if is_direct { Way::Direct } else { Way::Copied },
            reason: if is_direct { Reason::Costs } else { Reason::OneLength },
            costs,
        });
        let (cache, staging) = (Bytes(cache), Bytes(staging));
        ScheduledTier { offered, role, cache, staging, copy_threads, direct, reason }
    }
}

fn any_transform() -> impl Strategy<Value = TransformSchedule> {
    let form = prop::sample::select(Form::ALL.to_vec());
    let any = (form, 1_u32.., any::<String>(), any::<Option<u64>>());
    any.prop_map(|(form, threads, reason, lengths)| TransformSchedule {
        form,
        threads: NonZeroU32::new(threads).unwrap(),
        reason,
        lengths,
    })
}

fn any_transform_offer() -> impl Strategy<Value = TransformOffer> {
    let each = prop::option::of(any::<(u64, u64)>());
    let own = prop::option::of(any::<(u64, u64, Option<u64>, Option<u64>)>());
    let texts = any::<[String; 2]>();
    (each, 1_u32.., texts, own).prop_map(|(each, threads, [from, own_unknown], own)| {
        TransformOffer {
            threads: NonZeroU32::new(threads).unwrap(),
            each: each.map(|(prepare, rest)| SampleTime {
                prepare: Nanoseconds(prepare),
                rest: Nanoseconds(rest),
            }),
            from,
            own: own.map(|(mean, deviation, scan, fingerprint)| OwnLengths {
                fingerprint,
                mean: Bytes(mean),
                deviation: Bytes(deviation),
                scan: scan.map(Nanoseconds),
            }),
            own_unknown,
        }
    })
}

prop_compose! {
    fn any_schedule()(
        (generation, first_epoch) in any::<(u32, u32)>(),
        (depth, more) in (1_u32..1 << 31, 0_u32..1 << 31),
        tiers in prop::collection::vec(any_scheduled(), 0..5),
        (chunk, arena, look_ahead) in (1_u64.., any::<u64>(), any::<u64>()),
        (cold, cold_max, cold_threads, tier) in any::<(u32, u32, u32, u32)>(),
        (depth_reason, reason) in any::<(String, String)>(),
        transform in prop::option::of(any_transform()),
    ) -> Schedule {
        Schedule {
            generation,
            first_epoch: Epoch(first_epoch),
            tiers,
            chunk: Bytes(chunk),
            arena: Bytes(arena),
            depth,
            depth_max: depth + more,
            depth_reason,
            windows: LinkWindows { cold, cold_max, cold_threads, tier },
            look_ahead: Bytes(look_ahead),
            reason,
            transform,
        }
    }
}

prop_compose! {
    fn any_registration()(
        node in any::<u32>(),
        (home, incarnation) in any::<(u64, u64)>(),
        offer in any_offer(),
    ) -> Registration {
        Registration { node: NodeId(node), home, incarnation, offer }
    }
}

prop_compose! {
    fn any_assignment()(
        (node, generation) in (0_u32..4, any::<u32>()),
        order: u64,
        policy in prop::sample::select(policy::Kind::ALL.to_vec()),
        schedule in any_schedule(),
    ) -> Assignment {
        let node = NodeId(node);
        Assignment { node, generation, order, policy, schedule }
    }
}

prop_compose! {
    fn any_progress()(
        (batches, samples, handed_over, cold_read) in any::<(u64, u64, u64, u64)>(),
        (stall, faults, page_cache_read) in any::<(u64, u64, u64)>(),
        [tier_read, tier_room] in [(); 2].map(|()| prop::collection::vec((0_usize..4, any::<u64>()), 0..5)),
        applied in prop::collection::vec(any::<(u32, u32)>(), 0..4),
        transforms in prop::option::of(any::<((u32, u32), [u64; 5])>()),
    ) -> Progress {
        let read = |(kind, bytes): (usize, u64)| (Kind::ALL[kind], Bytes(bytes));
        Progress {
            batches,
            samples,
            handed_over: Bytes(handed_over),
            cold_read: Bytes(cold_read),
            page_cache_read: Bytes(page_cache_read),
            tier_read: tier_read.into_iter().map(read).collect(),
            tier_room: tier_room.into_iter().map(read).collect(),
            stall: Nanoseconds(stall),
            faults,
            applied: applied
                .into_iter()
                .map(|(generation, epoch)| Applied { generation, epoch: Epoch(epoch) })
                .collect(),
            transforms: transforms.map(|((workers, waiting), counts)| {
                let [rows, rejected, replaced, worked, trained] = counts;
                let (worked, trained) = (Nanoseconds(worked), Nanoseconds(trained));
                TransformProgress { workers, waiting, rows, rejected, replaced, worked, trained }
            }),
        }
    }
}

prop_compose! {
    fn any_observed()(
        planned in 0..u32::MAX,
        links in prop::collection::vec(any::<(u64, u64, u64, u64, u64, u64)>(), 1..5),
        load in any::<Option<(u32, u32, u64, u64)>>(),
        transforms in any::<[(u64, u64, [u64; 8]); 2]>(),
        cycle in any::<Option<(u64, u64, u64)>>(),
        supply in any::<Option<(u64, u64, u64, u32, u64)>>(),
    ) -> Observed {
        let link = |(bytes, operations, busy, in_flight, responses, response_time)| ObservedLink {
            bytes: Bytes(bytes),
            operations,
            busy: Nanoseconds(busy),
            in_flight: Nanoseconds(in_flight),
            responses,
            response_time: Nanoseconds(response_time),
        };
        let mut links = links.into_iter().map(link);
        Observed {
            planned: Epoch(planned),
            cold: links.next().unwrap(),
            tiers: links.collect(),
            transforms: transforms.map(|(samples, time, quantiles)| ObservedTransforms {
                samples,
                time: Nanoseconds(time),
                quantiles: quantiles.map(Nanoseconds),
            }),
            load: load.map(|(samples, reads, read_len, step_time)| staging_depth::Load {
                samples,
                reads,
                read_len: Bytes(read_len),
                step_time: Nanoseconds(step_time),
            }),
            cycle: cycle.map(|(consumed, busy, idle)| Cycle {
                consumed: Bytes(consumed),
                busy: Nanoseconds(busy),
                idle: Nanoseconds(idle),
            }),
            supply: supply.map(|(epoch, capacity, staged, hits, cold)| Supply {
                epoch: Bytes(epoch),
                capacity: Bytes(capacity),
                staged: Bytes(staged),
                hits,
                cold: BytesPerSecond(cold),
            }),
        }
    }
}

prop_compose! {
    fn any_pressure()(
        percent in (0.0..=100.0_f64, 0.0..=100.0_f64),
        total in any::<(u64, u64)>(),
    ) -> Pressure {
        let waiting = |percent, total| Waiting { percent, total: Nanoseconds(total) };
        Pressure { some: waiting(percent.0, total.0), full: waiting(percent.1, total.1) }
    }
}

prop_compose! {
    fn any_available()(
        host in any::<u64>(),
        cgroup in prop::option::of(any::<u64>()),
        nodes in prop::collection::vec(any::<(u32, u64)>(), 0..5),
        pressure in prop::option::of(any_pressure()),
        load in prop::option::of((0.0..1e6_f64, any::<u32>())),
        disks in prop::collection::vec(("/[a-z/ ]{0,20}", any::<(u64, u64)>()), 0..4),
    ) -> Available {
        let disk = |(path, (free, total)): (String, (u64, u64))| {
            DiskSpace { path: path.into(), free: Bytes(free), total: Bytes(total) }
        };
        Available {
            host: Bytes(host),
            cgroup: cgroup.map(Bytes),
            nodes_free: nodes.into_iter().map(|(id, free)| (NumaNode(id), Bytes(free))).collect(),
            pressure,
            load: load.map(|(one_minute, runnable)| Load { one_minute, runnable }),
            disks: disks.into_iter().map(disk).collect(),
        }
    }
}

fn through_bytes<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #[test]
    fn registrations_survive_the_wire(it in any_registration()) {
        let sent = through_bytes(&pb::RegisterRequest::from(&it));
        prop_assert_eq!(Registration::try_from(sent), Ok(it));
    }

    #[test]
    fn assignments_survive_the_wire(it in any_assignment()) {
        let sent = through_bytes(&pb::RegisterReply::from(&it));
        prop_assert_eq!(assignment(sent, it.node), Ok(it));
    }

    #[test]
    fn progress_survives_the_wire(it in any_progress()) {
        let sent = through_bytes(&pb::Progress::from(&it));
        prop_assert_eq!(Progress::try_from(sent), Ok(it));
    }

    #[test]
    fn what_a_node_has_left_survives_the_wire(it in any_available()) {
        let sent = through_bytes(&pb::Available::from(&it));
        prop_assert_eq!(Available::try_from(sent), Ok(it));
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = pb::RegisterRequest::decode(bytes.as_slice()).map(Registration::try_from);
        let _ = pb::RegisterReply::decode(bytes.as_slice()).map(|it| assignment(it, NodeId(0)));
        let _ = pb::StatusReply::decode(bytes.as_slice()).map(JobStatus::try_from);
        let _ = pb::Available::decode(bytes.as_slice()).map(Available::try_from);
    }
}

proptest! {
    #[test]
    fn what_a_node_observed_survives_the_wire(observed in any_observed()) {
        let sent = through_bytes(&pb::Observed::from(&observed));
        prop_assert_eq!(Observed::try_from(sent.clone()), Ok(observed.clone()));
        let without = Observed { transforms: Default::default(), ..observed };
        let none = through_bytes(&pb::Observed::from(&without));
        prop_assert_eq!(none.transforms.len(), 0);
        prop_assert_eq!(Observed::try_from(none), Ok(without));
        let mut short = sent;
        short.transforms.iter_mut().for_each(|it| _ = it.quantile_ns.pop());
        prop_assert!(short.transforms.is_empty() || Observed::try_from(short).is_err());
    }
}

#[test]
fn directions_survive_the_wire() {
    let all = [Direction::Continue, Direction::Drain, Direction::Superseded, Direction::Unknown];
    for direction in all {
        let reply = pb::ReportReply { direction: from_direction(direction).into(), schedule: None };
        assert_eq!(to_direction(&reply), Ok(direction));
    }
    let error = to_direction(&pb::ReportReply { direction: 9, schedule: None }).unwrap_err();
    assert_eq!(error, WireError::Unknown { field: "direction", value: "9".into() });
}

#[test]
fn names_of_another_version_are_refused_by_name() {
    let tier = pb::FoundTier { kind: "tape".into(), ..pb::FoundTier::default() };
    let error = FoundTier::try_from(tier).unwrap_err();
    let message = "tier.kind is \"tape\"; manager and agent must have the same version";
    assert_eq!(error.to_string(), message);
    let reply = pb::RegisterReply { policy: "gap".into(), ..pb::RegisterReply::default() };
    let error = assignment(reply, NodeId(0)).unwrap_err();
    assert_eq!(error, WireError::Missing { field: "schedule" });
}

#[test]
fn shares_and_loads_that_cannot_be_are_refused_by_name() {
    for percent in [f64::NAN, f64::INFINITY, -1.0, 100.5] {
        let pressure = pb::Pressure { full_percent: percent, ..pb::Pressure::default() };
        let sent = pb::Available { pressure: Some(pressure), ..pb::Available::default() };
        let error = Available::try_from(sent).unwrap_err();
        assert!(matches!(error, WireError::Unknown { field: "pressure", .. }), "{percent}");
    }
    for one_minute in [f64::NAN, f64::INFINITY, -0.5] {
        let load = pb::Load { one_minute, runnable_tasks: 1 };
        let sent = pb::Available { load: Some(load), ..pb::Available::default() };
        let error = Available::try_from(sent).unwrap_err();
        assert!(matches!(error, WireError::Unknown { field: "load", .. }), "{one_minute}");
    }
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
    let job = pb::JobReply {
        text: include_str!("../../../../configs/imagenet-resnet50.yaml").into(),
        file: format!("/{}", "d".repeat(4094)),
        index_fingerprint: u64::MAX,
        further_fingerprints: vec![u64::MAX; FURTHER_MAX],
        nodes: u32::MAX,
        ranks_per_node: u32::MAX,
    };
    let offer = offer(200);
    let schedule = schedule::of(&terms(), &offer).unwrap();
    let mut join = |node| {
        let (home, offer) = (u64::from(node), offer.clone());
        let agent = Registration { node: NodeId(node), home, incarnation: home, offer };
        let now = Nanoseconds(home);
        let assignment = fleet.handle_registration(agent, schedule.clone(), now).unwrap();
        job.encode_to_vec().len() + pb::RegisterReply::from(&assignment).encode_to_vec().len()
    };
    (0..nodes).map(&mut join).collect()
}

#[test]
fn each_of_a_thousand_nodes_is_sent_less_than_a_mebibyte() {
    let sent = sent_to_each(1024, 14_000_000, 90);
    let most = *sent.iter().max().unwrap();
    assert_eq!(sent.len(), 1024);
    assert!(most < 1 << 20, "{most} bytes");
    // Only the numbers themselves take more bytes: four for samples and nodes, and the node's own.
    let small = sent_to_each(1, 10_000, 9)[0];
    assert!(most - small <= 8, "{most} bytes, and {small} for a small job");
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
    let schedule = schedule::of(&terms(), &offer).unwrap();
    let agent = Registration { node: NodeId(0), home: 1, incarnation: 2, offer };
    fleet.handle_registration(agent, schedule, Nanoseconds(0)).unwrap();
    fleet.handle_memory_asked(NodeId(0), 2, 3, Nanoseconds(0)).unwrap();
    let tier_read = vec![(Kind::CxlMemory, Bytes(77))];
    let progress = Progress { batches: 4, tier_read, ..Progress::default() };
    fleet.handle_progress(NodeId(0), 2, progress, Nanoseconds(0));
    let left = available();
    let told = |node| (node == NodeId(0)).then_some((&left, Nanoseconds(7)));
    let sent = through_bytes(&status::status_reply("job", &fleet, told));
    let status = JobStatus::try_from(sent).unwrap();
    assert_eq!((status.job.as_str(), status.batches, status.nodes), ("job", 30, 1));
    let node = &status.joined[0];
    assert_eq!((node.state, node.batches, node.lent_chunks), ("alive", 4, 3));
    assert_eq!((node.tiers[1].read_bytes, node.tiers[1].emulated), (77, true));
    let place = "second: 15 GB/s, faster than scratch";
    assert_eq!((node.tiers[1].role, node.tiers[1].decision.as_str()), (BOTH, place));
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
    let silent = through_bytes(&status::status_reply("job", &fleet, |_| None));
    assert_eq!(JobStatus::try_from(silent).unwrap().joined[0].available, None);
}

fn available() -> Available {
    let calm = Waiting { percent: 0.0, total: Nanoseconds(0) };
    let some = Waiting { percent: 2.5, total: Nanoseconds(9000) };
    Available {
        host: Bytes(5),
        cgroup: None,
        nodes_free: vec![(NumaNode(3), Bytes(4))],
        pressure: Some(Pressure { some, full: calm }),
        load: Some(Load { one_minute: 1.5, runnable: 2 }),
        disks: vec![DiskSpace { path: "/nvme".into(), free: Bytes(1), total: Bytes(2) }],
    }
}
