//! Reads add up, times are near those of sessions, and each limit shows. Bytes are compared with sessions that lend
//! each other in `session/tests/whole_job.rs`.

use core::{convert::Infallible, num::NonZeroU32};

use proptest::prelude::*;

use super::*;
use crate::{
    latency_quantiles::LatencyQuantiles,
    order::{FurtherDatasets, Position, Shuffle, World},
    retention::{
        form::SampleTime,
        partition::Member,
        policy::{self, Aim},
    },
    session::{LookAhead, OnError, Settings, Windows},
    simulator::{LinkModel, Machine, Peers, TransformCosts, simulate_on},
    tier::{Buffer, Speed},
    units::BytesPerSecond,
};

const CHUNK: Bytes = Bytes::mib(1);
const UNLIMITED: Speed = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(0) };

fn rate(bandwidth: u64) -> Speed {
    Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(bandwidth) }
}

/// Nodes that keep `mib` MiB each of 600 photographs; their cold store gives each 50 MB/s.
fn setting(nodes: u32, mib: u64) -> Setting {
    let size = |i: u64| 20_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
    let order = Spec {
        samples: 600,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 42,
        epochs: 4,
        drop_last: false,
        batch_size: 5,
        world: World { nodes, ranks_per_node: 2 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    Setting {
        order,
        sizes: (0..600).map(|i| Bytes(size(i))).collect(),
        tiers: vec![Tier { kind: Kind::MainMemory, room: Bytes::mib(mib), speed: rate(0) }],
        depth: NonZeroU32::new(4).unwrap(),
        links: Links {
            cold: rate(50_000_000),
            cold_threads: None,
            cold_burst: Nanoseconds(0),
            store: BytesPerSecond(0),
            network: UNLIMITED,
        },
        step_time: Nanoseconds(10_000_000),
        pause: None,
        transforming: None,
        head_start: Nanoseconds(0),
        changes: Vec::new(),
    }
}

fn played(setting: &Setting) -> Vec<EpochReads> {
    let mut job = WholeJob::try_new(setting.clone()).unwrap();
    let epochs = (0..setting.order.epochs).map(Epoch);
    let played = epochs.map(|epoch| {
        let order = setting.order.epoch(epoch).unwrap();
        let step = &mut || ControlFlow::<Infallible>::Continue(());
        let ControlFlow::Continue(reads) = job.epoch(&order, step);
        reads
    });
    played.collect()
}

fn lost(node: u32, epoch: u32, step: u32) -> Change {
    let kind = ChangeKind::Lost;
    Change { node: NodeId(node), epoch: Epoch(epoch), step: Step(step), kind }
}

fn sum(reads: &EpochReads, part: impl Fn(&NodeReads) -> Amount) -> u64 {
    reads.nodes.iter().map(|node| part(node).bytes.0).sum()
}

proptest! {
    #[test]
    fn every_read_has_one_source_and_no_tier_is_overfull(
        nodes in 2_u32..6,
        mib in 0_u64..12,
        (node, epoch, step) in (0_u32..6, 0_u32..4, 0_u32..10),
        comes_back in any::<bool>(),
    ) {
        let mut setting = setting(nodes, mib);
        let change = lost(node % nodes, epoch, step);
        setting.changes.push(change);
        if comes_back && epoch < 3 {
            let kind = ChangeKind::Back;
            setting.changes.push(Change { kind, epoch: Epoch(epoch + 1), ..change });
        }
        let mut job = WholeJob::try_new(setting.clone()).unwrap();
        for epoch in (0..setting.order.epochs).map(Epoch) {
            let order = setting.order.epoch(epoch).unwrap();
            let step = &mut || ControlFlow::<Infallible>::Continue(());
            let ControlFlow::Continue(reads) = job.epoch(&order, step);
            let demand: u64 = (0..setting.order.world.ranks()).map(Rank).flat_map(|rank| {
                let steps = (0..setting.order.steps_in(epoch)).map(Step);
                let order = &order;
                steps.flat_map(move |step| order.batch(rank, step))
            }).map(|sample| setting.sizes[sample.0 as usize].0).sum();
            prop_assert_eq!(sum(&reads, NodeReads::demand), demand, "invariant 2");
            prop_assert_eq!(sum(&reads, |it| it.sent), sum(&reads, |it| it.received), "invariant 2");
            let rooms = job.free.iter().zip(setting.tiers.iter().cycle());
            prop_assert!(rooms.clone().all(|(free, tier)| *free <= tier.room.0), "invariant 3");
            let used: u64 = rooms.map(|(free, tier)| tier.room.0 - free).sum();
            let there = (0..).zip(&job.tier_of).filter(|(_, tier)| **tier != OUT);
            let held: u64 = there.map(|(at, _)| Space::rounded(setting.sizes[at]).0).sum();
            prop_assert_eq!(used, held, "invariant 3");
        }
    }
}

/// The time of every epoch in the slowest of the sessions of all nodes, each simulated alone.
fn sessions(setting: &Setting) -> Vec<u64> {
    let nodes = setting.order.world.nodes;
    let room = setting.tiers[0].room;
    let link = |speed: Speed| LinkModel { threads: setting.links.cold_threads, ..speed.into() };
    let mut slowest = vec![0; setting.order.epochs as usize];
    for node in (0..nodes).map(NodeId) {
        let chunks_max = u32::try_from(room.0 / CHUNK.0).unwrap();
        let settings = Settings {
            order: setting.order,
            node,
            sizes: Arc::clone(&setting.sizes),
            tiers: vec![Buffer { kind: Kind::MainMemory, chunks_max }],
            chunk: CHUNK,
            policy: policy::Kind::Partitioned,
            staged_batches: setting.depth.get(),
            staged_batches_max: 0,
            arena: Bytes::mib(16),
            on_error: OnError::Fail,
            windows: Windows::default(),
            aim: Aim::default(),
            in_place_tiers: Vec::new(),
            transform: None,
            first_room: Bytes(0),
            look_ahead: LookAhead::Off,
        };
        let member = Member { room, process: 1 };
        let machine = Machine {
            cold: LinkModel { burst: setting.links.cold_burst, ..link(setting.links.cold) },
            tiers: vec![setting.tiers[0].speed.into()],
            peers: Some(Peers {
                link: setting.links.network.into(),
                members: (0..nodes).map(|_| member).collect(),
            }),
            transforms: None,
            step_time: LatencyQuantiles::constant(setting.step_time),
            pause: setting.pause,
            head_start: setting.head_start,
            seed: 0,
        };
        for (slowest, epoch) in slowest.iter_mut().zip(simulate_on(&settings, &machine).epochs) {
            *slowest = epoch.duration.0.max(*slowest);
        }
    }
    slowest
}

#[test]
fn times_are_near_those_of_the_slowest_session() {
    let threads = NonZeroU32::new(4);
    let slow_answers = Speed { latency: Nanoseconds(8_000_000), ..UNLIMITED };
    let cases = [
        ("cold bandwidth", Links { cold: rate(50_000_000), ..setting(2, 8).links }, 8),
        (
            "cold latency",
            Links { cold: slow_answers, cold_threads: threads, ..setting(2, 8).links },
            8,
        ),
        ("network", Links { network: rate(30_000_000), ..setting(2, 40).links }, 40),
    ];
    for (what, links, mib) in cases {
        let setting = Setting { links, ..setting(2, mib) };
        let of_sessions = sessions(&setting);
        for (reads, session) in played(&setting).iter().zip(of_sessions) {
            let (whole, epoch) = (reads.times.duration.0, reads.epoch.0);
            assert!(reads.times.stall.0 > 0, "{what}, epoch {epoch}: nothing was waited for");
            // A session alone does not wait for the other node from step to step.
            let is_near = whole * 100 >= session * 97 && whole * 100 <= session * 110;
            assert!(is_near, "{what}, epoch {epoch}: {whole} ns, of sessions {session} ns");
        }
    }
}

#[test]
fn a_head_start_and_a_burst_shorten_the_first_epoch() {
    let first = |setting: &Setting| played(setting)[0].times.duration.0;
    let plain = setting(2, 8);
    let ahead = Setting { head_start: Nanoseconds(300_000_000), ..plain.clone() };
    let links = Links { cold_burst: Nanoseconds(60_000_000), ..plain.links };
    let burst = Setting { links, ..plain.clone() };
    let (plain, ahead, burst) = (first(&plain), first(&ahead), first(&burst));
    assert!(ahead < plain && burst < plain, "{plain} ns, {ahead} ns, {burst} ns");
}

#[test]
fn a_burst_makes_no_answer_come_sooner() {
    let slow_answers = Speed { latency: Nanoseconds(8_000_000), ..UNLIMITED };
    let threads = NonZeroU32::new(4);
    let links = Links { cold: slow_answers, cold_threads: threads, ..setting(2, 8).links };
    let plain = Setting { links, ..setting(2, 8) };
    let links = Links { cold_burst: Nanoseconds(60_000_000), ..links };
    let burst = Setting { links, ..plain.clone() };
    let durations =
        |setting| played(setting).iter().map(|it| it.times.duration).collect::<Vec<_>>();
    assert_eq!(durations(&burst), durations(&plain));
    assert_eq!(sessions(&burst), sessions(&plain));
}

#[test]
fn the_link_that_is_too_slow_is_named() {
    let fast = Setting { links: Links { cold: UNLIMITED, ..setting(3, 8).links }, ..setting(3, 8) };
    let links = fast.links;
    let named = |links: Links, node: Speed| {
        let tier = Tier { speed: node, ..fast.tiers[0] };
        let setting = Setting { links, tiers: vec![tier], ..fast.clone() };
        played(&setting)[1].slowest.map(|slowest| (slowest.link, slowest.node.is_some()))
    };
    let cold = Links { cold: rate(10_000_000), ..links };
    let store = Links { store: BytesPerSecond(10_000_000), ..links };
    let network = Links { network: rate(10_000_000), ..links };
    assert_eq!(named(links, UNLIMITED), None);
    assert_eq!(named(cold, UNLIMITED), Some((Link::Cold, true)));
    assert_eq!(named(store, UNLIMITED), Some((Link::Store, false)));
    let by_network = named(network, UNLIMITED).map(|it| it.0);
    assert!(matches!(by_network, Some(Link::Receiving | Link::Sending)), "{by_network:?}");
    assert_eq!(named(links, rate(10_000_000)), Some((Link::Tier(TierId(0)), true)));
}

#[test]
fn what_a_lost_node_held_is_read_cold_until_others_with_room_hold_it() {
    let whole = setting(3, 30);
    let dataset: u64 = whole.sizes.iter().map(|len| len.0).sum();
    let before = played(&whole);
    assert_eq!([0, 1].map(|at| sum(&before[at], |it| it.cold)), [dataset, 0]);
    let losing = Setting { changes: vec![lost(1, 1, 2)], ..whole.clone() };
    let job = WholeJob::try_new(losing.clone()).unwrap();
    let felt = job.changes().next().unwrap();
    assert_eq!(felt.from, (Epoch(1), Step(5)), "four batches are staged ahead, one is in use");
    assert_eq!(felt.membership.as_ref().unwrap().from, Epoch(2), "half of epoch 1 is not staged");
    let after = played(&losing);
    let of_others = |at: usize| sum(&after[at], |it| it.cold) - sum(&after[at], |it| it.unattended);
    let of_lost = sum(&after[1], |it| it.lost);
    // Once half of an epoch is staged the nodes go by the next one: what a node will hold then it keeps now.
    assert!(of_lost > 0 && of_others(1) > of_lost && of_lost > of_others(1) / 4);
    assert!(of_others(2) > of_others(1) / 2, "they fill what it held");
    assert!(of_others(3) < dataset / 10, "what only it read is left: {}", of_others(3));
    let unattended = [1, 2, 3].map(|at| sum(&after[at], |it| it.unattended));
    assert!(unattended[0] < unattended[1], "it has read a part of epoch 1 before");
    assert_eq!(sum(&after[2], |it| it.unattended), after[2].nodes[1].cold.bytes.0);

    let later = Setting { changes: vec![lost(1, 1, 12)], ..whole.clone() };
    let felt = WholeJob::try_new(later).unwrap().changes().next().cloned().unwrap();
    assert_eq!(felt.membership.unwrap().from, Epoch(3), "epoch 2 was divided before");
    let last = Setting { changes: vec![lost(1, 3, 12)], ..whole };
    let felt = WholeJob::try_new(last).unwrap().changes().next().cloned().unwrap();
    assert_eq!(felt.membership, None, "no epoch is left");
}

#[test]
fn a_membership_has_the_nodes_that_are_there() {
    let back = Change { kind: ChangeKind::Back, ..lost(0, 2, 1) };
    let changes = vec![lost(1, 2, 0), back, lost(0, 0, 6), lost(2, 2, 2)];
    let setting = Setting { changes, ..setting(3, 8) };
    let job = WholeJob::try_new(setting).unwrap();
    let memberships = job.changes().filter_map(|felt| felt.membership.as_ref());
    let nodes = memberships.map(|it| {
        let is_there = |node: &Member| (node.room.0 > 0).then_some(node.process);
        (it.from.0, it.nodes.iter().map(is_there).collect::<Vec<_>>())
    });
    let nodes: Vec<_> = nodes.collect();
    assert_eq!(
        nodes,
        [
            (0, vec![None, Some(1), Some(1)]),
            (3, vec![None, None, Some(1)]),
            (3, vec![Some(2), None, Some(1)]),
            (3, vec![Some(2), None, None]),
        ]
    );
}

#[test]
fn trainers_of_a_lost_node_read_nothing_ahead() {
    let fast = Links { cold: rate(100_000_000), ..setting(2, 60).links };
    let setting = Setting { links: fast, ..setting(2, 60) };
    let steps = |reads: &EpochReads| u64::from(reads.steps);
    let before = played(&setting);
    let losing = Setting { changes: vec![lost(0, 1, 0)], ..setting };
    let after = played(&losing);
    assert_eq!(before[2].times.stall.0, 0);
    let reading = BytesPerSecond(100_000_000).time_for(after[2].nodes[0].cold.bytes).0;
    let stall = after[2].times.stall.0;
    assert!(
        stall.abs_diff(reading) <= steps(&after[2]),
        "{stall} ns, to read them takes {reading} ns"
    );
    assert_eq!(after[2].slowest.unwrap().node, Some(NodeId(0)));
}

#[test]
fn what_lies_on_a_disk_is_not_read_by_others() {
    let mut setting = setting(2, 60);
    setting.tiers[0].kind = Kind::Storage;
    let reads = &played(&setting)[1];
    assert_eq!(sum(reads, |it| it.received), 0);
    assert!(sum(reads, |it| it.tiers[0]) > 0);
    assert_eq!(sum(reads, |it| it.cold), sum(reads, |it| it.absent));
}

#[test]
fn changes_that_cannot_happen_are_refused() {
    let refused = |nodes: u32, changes: &[Change]| {
        let setting = Setting { changes: changes.to_vec(), ..setting(nodes, 8) };
        WholeJob::try_new(setting).map(|_| ()).map_err(|error| std::format!("{error}"))
    };
    let back = |change: Change| Change { kind: ChangeKind::Back, ..change };
    for (changes, said) in [
        (vec![lost(3, 1, 0)], "3 nodes, numbered from 0 to 2"),
        (vec![lost(0, 4, 0)], "the epochs 0 to 3"),
        (vec![lost(0, 1, 20)], "the steps 0 to 19"),
        (vec![lost(0, 1, 0), lost(0, 2, 0)], "lost already"),
        (vec![back(lost(0, 1, 0))], "it is there"),
        (vec![lost(0, 2, 0), back(lost(0, 1, 0))], "it is there"),
    ] {
        let error = refused(3, &changes).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(refused(3, &[lost(0, 1, 0), back(lost(0, 2, 0)), lost(1, 2, 0)]), Ok(()));
    assert!(refused(1, &[]).unwrap_err().contains("one node"));
}

#[test]
fn threads_that_transform_are_waited_for_and_the_prepared_form_saves_what_it_saves() {
    let costs = |prepare, rest| {
        let each = SampleTime { prepare: Nanoseconds(prepare), rest: Nanoseconds(rest) };
        TransformCosts::of_mean(each, Bytes(109_000))
    };
    let run = |threads, cached| {
        let mut setting = setting(2, 400);
        setting.links.cold = rate(0);
        let threads = NonZeroU32::new(threads).unwrap();
        let stored = Arc::clone(&setting.sizes);
        let costs = costs(9_000_000, 1_000_000);
        setting.transforming = Some(Transforming { cached, stored, threads, costs });
        if cached == Form::Prepared {
            setting.sizes = setting.sizes.iter().map(|_| Bytes(150_000)).collect();
        }
        let epochs = played(&setting);
        let [first, .., last] = &epochs[..] else { panic!("four epochs") };
        let slowest = last.slowest.map(|slowest| slowest.link);
        (first.times.duration.0 / 1_000_000, last.times.duration.0 / 1_000_000, slowest)
    };
    // Each node has 300 of 600 samples, 10 ms each, in 60 steps of 10 ms.
    let (first, last, slowest) = run(2, Form::Stored);
    assert!(first.abs_diff(1_500) < 80 && last.abs_diff(1_500) < 80, "{first} {last}");
    assert_eq!(slowest, Some(Link::Transforms));
    let (first, last, slowest) = run(16, Form::Stored);
    assert!(first < 640 && last < 640 && slowest.is_none(), "{first} {last} {slowest:?}");
    let (first, last, _) = run(2, Form::Prepared);
    assert!(first > 1_400 && last < 640, "only the first prepares: {first} {last}");
}
