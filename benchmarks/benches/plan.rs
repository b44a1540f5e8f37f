//! How fast plans are made: decisions per second on one core, and what a manager of many nodes spends.
//!
//! - `plan`: a session in the simulator, its clock included, by policy.
//! - `simulate`: the same with `gap` and two tiers on a slow cold store, without and with look-ahead; an
//!   element is a read.
//! - `decide`: `gap` alone. Orders are expanded and planned as in a job; an element is a read of a sample
//!   by the node, with the decision about it. On several nodes each read bears the permutation of the whole
//!   dataset and the next uses in all epochs that are looked into.
//! - `roofline`: what no plan can do without, an element each: to read the state of a sample in the order of an
//!   epoch, and to draw the permutation for a read of a node (one of eight draws eight samples for each of its
//!   reads).
//! - `fleet`: all agents of a job register and get their schedules; an element is an agent.
//! - `agent of 1024 nodes`: what one of them computes for an epoch of 14 million samples with `partitioned`: what its
//!   ranks read, and who holds what after it; an element is a sample of the dataset.
//!
//! Of memory `decide` takes, for each sample of the dataset and beside its size (8 bytes):
//!
//! | what | bytes |
//! |---|---|
//! | state of the plan (`u32` place, `u32` grains, `u32` uses, three `u8`, padding) | 16 |
//! | tier of the sample (`u8`) | 1 |
//! | order of the node in an epoch (`u32`), over the number of nodes | 4 for each epoch held |
//! | permutation that is being drawn (`u32`) | 4, for a moment |
//!
//! One node holds three epochs, and a fourth for the moment in which the next is drawn: 37 bytes, or 12.3 a
//! sample and epoch held. Of 1,024 nodes each takes 21 bytes a sample of the dataset, and 4 for each of its
//! own reads in the epochs held.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tierfeed_core::{
    fleet::{
        self, Fleet, Origin, Registration,
        first_schedule::{self, ScheduleInputs},
        schedule::{Device, Figures, FoundTier, Location, Offer},
    },
    id::{Epoch, NodeId, SampleId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        in_place::{SampleLengths, SpeedOrigin, Verify},
        partition::{Member, Membership, Partition},
        policy,
        replay::Replay,
    },
    session::{LookAhead, OnError, Settings, Windows},
    simulator::{Model, simulate},
    tier::{Buffer, Kind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

const SAMPLES: u32 = 20_000;
const EPOCHS: u32 = 3;

/// The promise for a job of 1,024 nodes.
const FLEET_MAX: Duration = Duration::from_secs(2);
/// A fifth of what was measured on one node of a loaded machine.
const DECISIONS_PER_S_MIN: u64 = 1_000_000;

/// As many as ImageNet-1K has.
const IMAGENET: u32 = 1_281_167;

fn order(samples: u32, epochs: u32, world: World) -> Spec {
    Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 42,
        epochs,
        drop_last: false,
        batch_size: 256,
        world,
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

fn sizes(samples: u32) -> Arc<[Bytes]> {
    (0..u64::from(samples)).map(|i| Bytes(60_000 + i * 7919 % 110_000)).collect()
}

fn settings(policy: policy::Kind) -> Settings {
    let chunk = Bytes::mib(512);
    Settings {
        order: Spec {
            batch_size: 64,
            ..order(SAMPLES, EPOCHS, World { nodes: 1, ranks_per_node: 4 })
        },
        node: NodeId(0),
        sizes: sizes(SAMPLES),
        tiers: vec![Buffer { kind: Kind::CxlMemory, chunks_max: 2 }],
        chunk,
        policy,
        staged_batches: 4,
        staged_batches_max: 0,
        arena: Bytes::mib(64),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn sessions(criterion: &mut Criterion) {
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    let model = Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(1_000_000, 1_000_000_000),
        tiers: vec![speed(350, 20_000_000_000)],
        step_time: Nanoseconds(50_000_000),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    };
    let mut group = criterion.benchmark_group("plan");
    group.throughput(Throughput::Elements(u64::from(SAMPLES * EPOCHS))).sample_size(10);
    for policy in policy::Kind::ALL {
        let settings = settings(policy);
        group.bench_function(policy.name(), |bencher| {
            bencher.iter(|| simulate(&settings, &model));
        });
    }
    group.finish();
}

/// A job that keeps 30 % of its dataset and waits for its cold store.
fn simulations(criterion: &mut Criterion) {
    const SAMPLES: u32 = 100_000;
    let sizes = sizes(SAMPLES);
    let chunk = Bytes::mib(512);
    let total = sizes.iter().map(|len| len.0).sum::<u64>();
    let tier = |kind, percent: u64| {
        let chunks_max = u32::try_from(total * percent / 100 / chunk.0).expect("a few gigabytes");
        Buffer { kind, chunks_max }
    };
    let tiers = vec![tier(Kind::CxlMemory, 20), tier(Kind::Scratch, 10)];
    let order = order(SAMPLES, EPOCHS, World { nodes: 1, ranks_per_node: 8 });
    let arena = Bytes::mib(160);
    let off = Settings { order, sizes, tiers, arena, ..settings(policy::Kind::Gap) };
    let ahead = Settings { look_ahead: LookAhead::Auto, ..off.clone() };
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    let model = Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(1_000_000, 200_000_000),
        tiers: vec![speed(350, 20_000_000_000); 2],
        step_time: Nanoseconds(235_000_000),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    };
    let mut group = criterion.benchmark_group("simulate");
    group.throughput(Throughput::Elements(u64::from(SAMPLES * EPOCHS))).sample_size(10);
    for (name, settings) in [("without look-ahead", off), ("with look-ahead", ahead)] {
        group.bench_function(name, |bencher| bencher.iter(|| simulate(&settings, &model)));
    }
    group.finish();
}

/// The two parts of a plan that wait for memory or cannot be left out.
fn roofline(criterion: &mut Criterion) {
    let states = vec![[1_u32; 4]; IMAGENET as usize];
    let one = order(IMAGENET, 4, World { nodes: 1, ranks_per_node: 8 });
    let eight = Spec { world: World { nodes: 8, ranks_per_node: 8 }, ..one };
    let reads = |order: Spec| {
        let of_node = order.epoch_of(NodeId(0), Epoch(1)).expect("the order is computed");
        of_node.samples().to_vec()
    };
    let of_node = reads(one);
    let mut group = criterion.benchmark_group("roofline");
    group.sample_size(10).throughput(Throughput::Elements(of_node.len() as u64));
    group.bench_function("state of a sample", |bencher| {
        let state = |sample: &SampleId| u64::from(states[sample.0 as usize][0]);
        bencher.iter(|| std::hint::black_box(of_node.iter().map(state).sum::<u64>()));
    });
    for (nodes, order) in [(1, one), (8, eight)] {
        group.throughput(Throughput::Elements(reads(order).len() as u64));
        group.bench_function(format!("permutation/{nodes} nodes"), |bencher| {
            bencher.iter(|| std::hint::black_box(order.epoch_of(NodeId(0), Epoch(2))));
        });
    }
    group.finish();
}

/// Node 0 of a job that can keep 29.6 % of its dataset on each node, as 40 of 135 GB.
fn decisions(criterion: &mut Criterion) {
    let sizes = sizes(IMAGENET);
    let capacity = sizes.iter().map(|len| len.0).sum::<u64>() / 1000 * 296;
    let mut group = criterion.benchmark_group("decide");
    group.sample_size(10);
    for (nodes, epochs) in [(1, 4), (8, 20)] {
        let setting = policy::Setting {
            order: order(IMAGENET, epochs, World { nodes, ranks_per_node: 8 }),
            node: NodeId(0),
            sizes: Arc::clone(&sizes),
            capacities: vec![Bytes(capacity)],
            aim: policy::Aim::default(),
        };
        let decided = || {
            let mut replay = Replay::new(policy::Kind::Gap, &setting);
            std::iter::from_fn(|| replay.epoch()).map(|served| served.total().samples).sum::<u64>()
        };
        group.throughput(Throughput::Elements(decided()));
        group.bench_function(format!("gap/{nodes} nodes"), |bencher| bencher.iter(decided));
        if nodes == 1 {
            let reads = decided();
            let most = Duration::from_millis(reads * 1000 / DECISIONS_PER_S_MIN);
            assert_within(most, "the decisions of one node", decided);
        }
    }
    group.finish();
}

/// A tier with figures, so that it is classified.
fn found(kind: Kind) -> FoundTier {
    FoundTier {
        kind,
        origin: Origin::Real,
        location: Location::Memory,
        device: Device::Own,
        budget: Bytes::mib(65_536),
        beside: Bytes(0),
        figures: Figures {
            latency: Some(Nanoseconds(300)),
            bandwidth: Some(BytesPerSecond(20_000_000_000)),
            from: "bench".to_owned(),
            is_rough: false,
        },
        pace: SpeedOrigin::Own,
        reads: None,
        writes: None,
    }
}

/// 1,024 nodes of 8 ranks join a job of 14 million samples and 90 epochs.
fn registrations(criterion: &mut Criterion) {
    const NODES: u32 = 1024;
    let order = order(14_000_000, 90, World { nodes: NODES, ranks_per_node: 8 });
    let policy = policy::Kind::Gap;
    let settings = fleet::Settings { order, policy, lost_after: Nanoseconds(10_000_000_000) };
    let inputs = ScheduleInputs {
        ranks: 8,
        batch: Bytes::mib(32),
        batch_samples: 256,
        sample: Bytes(115_000),
        cold_threads: NonZeroU32::MIN,
        reads_at_first: NonZeroU32::MIN,
        step_time: None,
        depth_max: None,
        chunk: None,
        policy,
        stay: policy.stay(order.shuffle),
        verify: Verify::Shared,
        lengths: SampleLengths::Several,
        modes: BTreeMap::new(),
        limits_writes: false,
        look_ahead: LookAhead::Auto,
        phases: None,
        transform: None,
    };
    let agent = |node| Registration {
        node: NodeId(node),
        home: u64::from(node),
        incarnation: u64::from(node),
        offer: Offer {
            tiers: Kind::ALL.map(found).to_vec(),
            cold: Figures::none(),
            transform: None,
        },
    };
    let join = || {
        let mut fleet = Fleet::new(settings);
        for node in 0..NODES {
            let registration = agent(node);
            let schedule = first_schedule::of(&inputs, &registration.offer).expect("a batch fits");
            let assignment = fleet.handle_registration(registration, schedule, Nanoseconds(0));
            std::hint::black_box(assignment.expect("the world has this node"));
        }
        fleet
    };
    let mut group = criterion.benchmark_group("fleet");
    group.throughput(Throughput::Elements(u64::from(NODES)));
    group.bench_function("1024 nodes", |bencher| bencher.iter(join));
    group.finish();
    assert_within(FLEET_MAX, "the registrations of 1,024 nodes", join);
}

/// One agent of 1,024 nodes of 8 ranks that keep a tenth of the dataset more than fits into all of them.
fn agent_of_many(criterion: &mut Criterion) {
    const SAMPLES: u32 = 14_000_000;
    const NODES: u32 = 1024;
    let order = order(SAMPLES, 4, World { nodes: NODES, ranks_per_node: 8 });
    let sizes = sizes(SAMPLES);
    let room = Bytes(sizes.iter().map(|len| len.0).sum::<u64>() / u64::from(NODES) * 9 / 10);
    let members = || (0..NODES).map(|_| Member { room, process: 1 }).collect();
    let divided = |epoch: u32| {
        let mut partition = Partition::new(order, Arc::clone(&sizes), NodeId(0), room);
        partition.follow(Membership { generation: 0, from: Epoch(0), nodes: members() });
        partition.after(Epoch(epoch));
        partition
    };
    let mut group = criterion.benchmark_group("agent of 1024 nodes");
    group.sample_size(10).throughput(Throughput::Elements(u64::from(SAMPLES)));
    group.bench_function("its reads of an epoch", |bencher| {
        bencher.iter(|| std::hint::black_box(order.epoch_of(NodeId(17), Epoch(1))));
    });
    group.bench_function("holders, first epoch", |bencher| bencher.iter(|| divided(0)));
    group.bench_function("holders, next epoch", |bencher| {
        let after = |mut partition: Partition| partition.after(Epoch(1));
        bencher.iter_batched(|| divided(0), after, BatchSize::PerIteration);
    });
    group.finish();
}

/// Fails the bench if the best of three turns takes longer than `most`.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn assert_within<T>(most: Duration, what: &str, run: impl Fn() -> T) {
    let turn = || {
        let start = Instant::now();
        std::hint::black_box(run());
        start.elapsed()
    };
    let best = (0..3).map(|_| turn()).min().expect("three turns");
    assert!(best <= most, "{what} took {best:?}, at most {most:?} is promised");
}

criterion_group!(benches, sessions, simulations, decisions, roofline, registrations, agent_of_many);
criterion_main!(benches);
