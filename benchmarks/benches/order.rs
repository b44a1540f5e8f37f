//! How fast an epoch's order is computed: samples per second on one core.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierfeed_core::{
    id::{Epoch, NodeId, Rank, Step},
    order::{Shuffle, Spec, World},
};

/// ImageNet-1k.
const SAMPLES: u32 = 1_281_167;

fn spec() -> Spec {
    Spec {
        samples: SAMPLES,
        shuffle: Shuffle::TorchDistributed,
        seed: 42,
        epochs: 90,
        drop_last: false,
        batch_size: 256,
        world: World { nodes: 1, ranks_per_node: 8 },
    }
}

fn permutation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order");
    group.throughput(Throughput::Elements(u64::from(SAMPLES))).sample_size(10);
    group.bench_function("torch-distributed", |bencher| {
        bencher.iter(|| spec().epoch(black_box(Epoch(3))));
    });
    let epoch = spec().epoch(Epoch(0)).expect("computed orders have every epoch");
    group.bench_function("steps", |bencher| bencher.iter(|| black_box(&epoch).steps(NodeId(0))));
    group.finish();
}

fn batches(criterion: &mut Criterion) {
    let epoch = spec().epoch(Epoch(0)).expect("computed orders have every epoch");
    let mut group = criterion.benchmark_group("batch");
    group.throughput(Throughput::Elements(256));
    group.bench_function("of one rank and step", |bencher| {
        bencher.iter(|| epoch.batch(Rank(3), black_box(Step(100))).map(|it| it.0).sum::<u32>());
    });
    group.finish();
}

criterion_group!(benches, permutation, batches);
criterion_main!(benches);
