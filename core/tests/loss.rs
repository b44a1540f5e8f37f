//! What of a tier no sample lies in, at steady state, with photographs of the sizes of `ImageNet`.
//!
//! Tiers are tight: the dataset is several times as large, so that every policy fills what it gets. What
//! is lost is rounding, what is free although a sample was turned away, and what was turned away because
//! it would have lain in too many pieces.

use std::sync::Arc;

use tierfeed_core::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step, TierId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        cache::{Cache, Change},
        future_accesses::FutureAccesses,
        policy::{self, Aim, Kind, Read, Setting},
        wear::Wear,
    },
    space::PIECES_MAX,
    tier::{self, Buffer},
    units::Bytes,
};

const SAMPLES: u32 = 24_000;

const CHUNK: Bytes = Bytes::mib(512);

/// In thousandths of a tier.
const LOST_MAX: u64 = 30;

/// Lognormal lengths with a mean of about 110 KiB and a long tail, as `ImageNet` has them.
fn sizes() -> Arc<[Bytes]> {
    let mut state = 42_u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(state >> 32).expect("32 bits are left")) / f64::from(u32::MAX)
    };
    let mut size = || {
        // The sum of twelve is close enough to a normal distribution.
        let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let len = (11.5 + 0.55 * normal).exp();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
        let len = len as u64;
        Bytes(len.clamp(1_000, 16 << 20))
    };
    (0..SAMPLES).map(|_| size()).collect()
}

/// A node that reads the whole dataset in each epoch.
struct Node {
    cache: Cache,
    future: FutureAccesses,
    sizes: Arc<[Bytes]>,
    buffers: Vec<Buffer>,
}

#[derive(Debug)]
struct State {
    lost_per_mille: u64,
    samples: usize,
    pieces_mean: f64,
    pieces_max: usize,
}

impl Node {
    fn new(kind: Kind, tiers: &[(tier::Kind, u32)], writes: Vec<Option<Bytes>>) -> Self {
        let sizes = sizes();
        let order = Spec {
            samples: SAMPLES,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 5,
            epochs: 8,
            drop_last: false,
            batch_size: 1,
            world: World { nodes: 1, ranks_per_node: 1 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        };
        let buffers: Vec<Buffer> = tiers
            .iter()
            .map(|(kind, chunks_max)| Buffer { kind: *kind, chunks_max: *chunks_max })
            .collect();
        let capacities = buffers.iter().map(|buffer| buffer.capacity(CHUNK)).collect();
        let aim = Aim { writes_per_epoch: writes.clone(), ..Aim::default() };
        let setting =
            Setting { order, node: NodeId(0), sizes: Arc::clone(&sizes), capacities, aim };
        let policy = policy::build(kind, &setting);
        let future = FutureAccesses::new(order, NodeId(0), policy.lookahead());
        let cache = Cache::new(&buffers, CHUNK, Arc::clone(&sizes), policy);
        Self { cache: cache.with_wear(Wear::within(writes)), future, sizes, buffers }
    }

    /// Returns the bytes that were written to each tier.
    fn epoch(&mut self, epoch: u32) -> Vec<u64> {
        let epoch = Epoch(epoch);
        self.future.prepare(epoch);
        let mut written = vec![0; self.buffers.len()];
        for step in (0..SAMPLES).map(Step) {
            let batch = BatchId { epoch, step, rank: Rank(0) };
            let sample = self.future.batch(batch).expect("the epoch is prepared")[0];
            let at = self.future.read_of(batch, 0);
            self.cache.read(Read { sample, at }, &self.future);
            for change in self.cache.take_changes() {
                if let Change::Kept { sample, to } | Change::Demoted { sample, to, .. } = change {
                    written[usize::from(to.tier.0)] += self.sizes[sample.0 as usize].0;
                }
            }
        }
        written
    }

    fn state(&self, tier: u8) -> State {
        let capacity = self.buffers[usize::from(tier)].capacity(CHUNK).0;
        let places = (0..SAMPLES).map(SampleId).filter_map(|sample| {
            let place = self.cache.place(sample)?;
            (place.tier == TierId(tier))
                .then_some((self.sizes[sample.0 as usize].0, place.pieces.len()))
        });
        let places: Vec<(u64, usize)> = places.collect();
        let held: u64 = places.iter().map(|(len, _)| len).sum();
        let pieces: usize = places.iter().map(|(_, pieces)| pieces).sum();
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let pieces_mean = pieces as f64 / places.len().max(1) as f64;
        State {
            lost_per_mille: (capacity - held) * 1000 / capacity,
            samples: places.len(),
            pieces_mean,
            pieces_max: places.iter().map(|(_, pieces)| *pieces).max().unwrap_or(0),
        }
    }
}

/// Plays some epochs and checks the tiers after each but the first.
fn check(kind: Kind, tiers: &[(tier::Kind, u32)], epochs: u32) {
    let mut node = Node::new(kind, tiers, Vec::new());
    for epoch in 0..epochs {
        node.epoch(epoch);
        for (tier, _) in (0_u8..).zip(tiers) {
            let state = node.state(tier);
            if epoch > 0 {
                assert!(state.lost_per_mille <= LOST_MAX, "{kind:?}, tier {tier}: {state:?}");
                assert!(state.samples > 1_000 && state.pieces_max <= PIECES_MAX, "{state:?}");
                assert!(state.pieces_mean < 6.0, "{kind:?}, tier {tier}: {state:?}");
            }
        }
    }
}

#[test]
fn the_default_policy_loses_less_than_three_hundredths() {
    check(Kind::Gap, &[(tier::Kind::CxlMemory, 1)], 4);
    check(Kind::Gap, &[(tier::Kind::MainMemory, 1), (tier::Kind::Storage, 2)], 4);
}

#[test]
fn tiers_between_which_samples_sink_lose_less_than_three_hundredths() {
    let tiers = [(tier::Kind::MainMemory, 1), (tier::Kind::CxlMemory, 1), (tier::Kind::Storage, 1)];
    check(Kind::Fifo, &tiers, 3);
    check(Kind::Lru, &tiers[1..], 3);
}

#[test]
fn no_epoch_writes_more_than_its_budget() {
    let budget = Bytes::mib(100);
    let tiers = [(tier::Kind::MainMemory, 1), (tier::Kind::Storage, 1)];
    for kind in [Kind::Gap, Kind::Fifo] {
        let mut node = Node::new(kind, &tiers, vec![None, Some(budget)]);
        let written: Vec<u64> = (0..3).map(|epoch| node.epoch(epoch)[1]).collect();
        assert!(written.iter().all(|bytes| *bytes <= budget.0), "{kind:?}: {written:?}");
        assert!(written[0] > budget.0 / 2, "{kind:?}: {written:?}: it is used");
    }
}
