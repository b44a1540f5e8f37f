//! How fast a session decides: samples per second on one core, the simulator's clock included.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierfeed_core::{
    id::NodeId,
    order::{Position, Shuffle, Spec, World},
    policy,
    session::{OnError, Settings, Windows},
    simulator::{Model, simulate},
    tier::{Buffer, Kind, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

const SAMPLES: u32 = 20_000;
const EPOCHS: u32 = 3;

fn settings(policy: policy::Kind) -> Settings {
    let chunk = Bytes::mib(512);
    Settings {
        order: Spec {
            samples: SAMPLES,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: EPOCHS,
            drop_last: false,
            batch_size: 64,
            world: World { nodes: 1, ranks_per_node: 4 },
            start: Position::START,
        },
        node: NodeId(0),
        sizes: (0..u64::from(SAMPLES)).map(|i| Bytes(60_000 + i * 7919 % 110_000)).collect(),
        tiers: vec![Buffer { kind: Kind::CxlMemory, chunks_max: 2 }],
        chunk,
        policy,
        staged_batches: 4,
        arena: Bytes::mib(64),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: policy::Aim::default(),
    }
}

fn sessions(criterion: &mut Criterion) {
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    let model = Model {
        cold: speed(1_000_000, 1_000_000_000),
        tiers: vec![speed(350, 20_000_000_000)],
        step_time: Nanoseconds(50_000_000),
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

criterion_group!(benches, sessions);
criterion_main!(benches);
