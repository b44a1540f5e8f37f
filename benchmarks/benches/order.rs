//! How fast an epoch's order is computed on one core, and against the plain loop.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierfeed_core::{
    id::{Epoch, NodeId, Rank, Step},
    order::{
        FurtherDatasets, Position, Shuffle, Spec, World,
        block::Block,
        mosaic::{Algorithm, Mosaic},
        tf, torch,
    },
};

/// The samples of ImageNet-1k.
const SAMPLES: u32 = 1_281_167;
/// The samples of ImageNet-21k: their order is larger than any cache.
const MANY_SAMPLES: u32 = 14_197_122;

/// The promise of a second for 14 million samples.
const SHUFFLE_MAX: Duration = Duration::from_secs(1);
/// Ten times what an epoch of ImageNet-1k took when it was measured.
const EPOCH_MAX: Duration = Duration::from_millis(50);

/// Fails the bench if the best of three turns takes longer than `most`.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn assert_within<T>(most: Duration, what: &str, run: impl Fn() -> T) {
    let turn = || {
        let start = Instant::now();
        black_box(run());
        start.elapsed()
    };
    let best = (0..3).map(|_| turn()).min().expect("three turns");
    assert!(best <= most, "{what} took {best:?}, at most {most:?} is promised");
}

fn spec(samples: u32, shuffle: Shuffle) -> Spec {
    Spec {
        samples,
        shuffle,
        seed: 42,
        epochs: 90,
        drop_last: false,
        batch_size: 256,
        world: World { nodes: 1, ranks_per_node: 8 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

/// Words whose cost is next to nothing: what is measured is the swaps. It is `SplitMix64`.
fn cheap_word(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    u32::try_from((mixed ^ mixed >> 27) >> 32).expect("shifted to 32 bits")
}

/// The textbook form of Fisher-Yates.
fn plain_loop(samples: u32) -> Vec<u32> {
    let mut items: Vec<u32> = (0..samples).collect();
    let mut state = 42;
    for i in 0..samples - 1 {
        let other = i + cheap_word(&mut state) % (samples - i);
        items.swap(i as usize, other as usize);
    }
    items
}

/// The shuffle of 14 million samples that is promised in less than a second, beside the loop that waits for
/// memory at every swap although its random words are cheaper.
fn shuffle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shuffle of 14.2 million");
    group.throughput(Throughput::Elements(u64::from(MANY_SAMPLES))).sample_size(10);
    group.bench_function("plain loop", |bencher| bencher.iter(|| plain_loop(MANY_SAMPLES)));
    let order = spec(MANY_SAMPLES, Shuffle::TORCH_DISTRIBUTED);
    group.bench_function("torch-distributed", |bencher| {
        bencher.iter(|| order.epoch(black_box(Epoch(3))));
    });
    group.finish();
    assert_within(SHUFFLE_MAX, "a shuffle of 14.2 million", || order.epoch(black_box(Epoch(3))));
}

fn every_order() -> [Shuffle; 8] {
    [
        Shuffle::Sequential,
        Shuffle::TORCH_DISTRIBUTED,
        Shuffle::TorchRandom(torch::Random {
            generator: torch::Generator::Loader,
            workers: torch::Workers::PerEpoch,
            version: None,
        }),
        Shuffle::TfShuffle(tf::Buffered {
            buffer: 10_000,
            global_seed: tf::DEFAULT_GRAPH_SEED,
            reshuffle: tf::Reshuffle::EachIteration,
        }),
        Shuffle::TfIndex(tf::Index { second: tf::SecondSeed::Epoch }),
        Shuffle::Grain,
        Shuffle::Mosaic(Mosaic {
            algorithm: Algorithm::Py1e,
            shard: 1_000,
            canonical_nodes: 1,
            block: 1 << 18,
        }),
        Shuffle::Block(Block { shard: 1_000, window: 100_000 }),
    ]
}

fn epochs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order");
    group.throughput(Throughput::Elements(u64::from(SAMPLES))).sample_size(10);
    for shuffle in every_order() {
        let mut order = spec(SAMPLES, shuffle);
        if matches!(shuffle, Shuffle::TorchRandom(_)) {
            order.world.ranks_per_node = 1;
        }
        group.bench_function(shuffle.name(), |bencher| {
            bencher.iter(|| order.epoch(black_box(Epoch(3))));
        });
    }
    let order = spec(SAMPLES, Shuffle::TORCH_DISTRIBUTED);
    group.bench_function("of a node", |bencher| {
        bencher.iter(|| order.epoch_of(NodeId(0), black_box(Epoch(3))));
    });
    group.finish();
    assert_within(EPOCH_MAX, "the order of an epoch", || order.epoch(black_box(Epoch(3))));
}

fn batches(criterion: &mut Criterion) {
    let order = spec(SAMPLES, Shuffle::TORCH_DISTRIBUTED);
    let epoch = order.epoch(Epoch(0)).expect("computed orders have every epoch");
    let mut group = criterion.benchmark_group("batch");
    group.throughput(Throughput::Elements(256));
    group.bench_function("of one rank and step", |bencher| {
        bencher.iter(|| epoch.batch(Rank(3), black_box(Step(100))).map(|it| it.0).sum::<u32>());
    });
    group.finish();
}

criterion_group!(benches, shuffle, epochs, batches);
criterion_main!(benches);
