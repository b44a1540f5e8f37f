//! The default policy against every choice there is, where there are few enough to try them all.
//!
//! Orders that a trainer publishes: all sequences of up to eight uses of four samples, over all ways to
//! split up to four samples' room into one to three tiers. Nothing reads less, however it looks ahead.
//! Such orders may repeat samples, and the default policy decides them by Belady's rule with bypass.
//! Computed orders: all triples of permutations of four samples, and many seeds of six and eight.
//! Nothing reads less, and batches miss alike to a sample. Where they do not, a sample would have to
//! come before another has left; choices that exchange samples of one batch are not counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use tierfeed_core::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step, TierId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        future_accesses::{FutureAccesses, Publication},
        policy::{self, Aim, Kind, Read, Setting},
        replay::Replay,
        residency::Residency,
    },
    units::Bytes,
};

/// The length of every sample where sizes do not matter.
const LEN: u64 = 64;

/// The smallest dataset that is worth a proof.
const SAMPLES: u32 = 4;

const ONE_RANK: World = World { nodes: 1, ranks_per_node: 1 };

fn spec(shuffle: Shuffle, samples: u32, epochs: u32) -> Spec {
    Spec {
        samples,
        shuffle,
        seed: 0,
        epochs,
        drop_last: false,
        batch_size: 1,
        world: ONE_RANK,
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

fn setting(order: Spec, sizes: Arc<[Bytes]>, tiers: &[u64]) -> Setting {
    let capacities = tiers.iter().map(|tier| Bytes(*tier)).collect();
    Setting { order, node: NodeId(0), sizes, capacities, aim: Aim::default() }
}

fn equal(order: Spec, tiers: &[u64]) -> Setting {
    let tiers: Vec<_> = tiers.iter().map(|samples| samples * LEN).collect();
    setting(order, vec![Bytes(LEN); order.samples as usize].into(), &tiers)
}

/// All ways to split room for up to `most` samples into one, two or three tiers, empty ones included.
fn tierings(most: u64) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    for first in 0..=most {
        all.push(vec![first]);
        for second in 0..=most - first {
            all.push(vec![first, second]);
            all.extend((0..=most - first - second).map(|third| vec![first, second, third]));
        }
    }
    all
}

fn assert_books_hold(residency: &Residency) {
    for (tier, level) in residency.tiers().zip(residency.levels()) {
        let of_tier = (0_u32..).map(SampleId).take(residency.samples());
        let lies = of_tier.filter(|sample| residency.tier_of(*sample) == Some(tier));
        let used: u64 = lies.map(|sample| residency.len_of(sample).0).sum();
        assert!(
            used == level.used.0 && level.used <= level.capacity,
            "{tier:?}: {used}, {level:?}"
        );
    }
}

mod published {
    use super::*;

    const SETS: usize = 1 << SAMPLES;

    fn fits(set: usize, room: u64) -> bool {
        u64::from(set.count_ones()) <= room
    }

    /// The least cost of each set, from the least cost of each set before.
    fn step(before: [u32; SETS], cost: impl Fn(usize, usize) -> Option<u32>) -> [u32; SETS] {
        let mut after = [u32::MAX; SETS];
        for (from, least) in before.into_iter().enumerate().filter(|(_, it)| *it != u32::MAX) {
            for (to, known) in after.iter_mut().enumerate() {
                *known = cost(from, to).map_or(*known, |cost| (*known).min(least + cost));
            }
        }
        after
    }

    /// The fewest cold reads of a schedule that may fetch any sample at any time, keep `room` of them as
    /// long as it likes, and holds no other sample but the one in use.
    fn fewest(order: &[u32], room: u64) -> u32 {
        // By set of samples that are kept, as bits.
        let mut least = [u32::MAX; SETS];
        least[0] = 0;
        for sample in order {
            let read = 1 << sample;
            let fetch = |from: usize, to: usize| fits(to, room).then(|| (to & !from).count_ones());
            let mut ready = step(least, fetch);
            for (set, cold) in ready.iter_mut().enumerate() {
                *cold = cold.saturating_add(u32::from(set & read == 0));
            }
            let keep =
                |from: usize, to: usize| (to & !(from | read) == 0 && fits(to, room)).then_some(0);
            least = step(ready, keep);
        }
        least.into_iter().min().expect("there are sets")
    }

    /// All orders of `len` uses; long ones only up to the names of the samples.
    fn orders(len: usize) -> Vec<Vec<u32>> {
        let mut orders = vec![Vec::new()];
        for _ in 0..len {
            let longer = |order: Vec<u32>| {
                let new = order.iter().max().map_or(0, |max| max + 1).min(SAMPLES - 1);
                let last = if len > 5 { new } else { SAMPLES - 1 };
                (0..=last).map(move |sample| [&order[..], &[sample]].concat())
            };
            orders = orders.into_iter().flat_map(longer).collect();
        }
        orders
    }

    /// The tier that serves each read of a published order; the number of tiers for a cold read.
    fn served(order: &[u32], tiers: &[u64]) -> Vec<usize> {
        let samples = SAMPLES.max(u32::try_from(order.len()).expect("at most 8"));
        let setting = equal(spec(Shuffle::Published, samples, 1), tiers);
        let mut policy = policy::build(Kind::Gap, &setting);
        let mut future = FutureAccesses::new(setting.order, setting.node, policy.lookahead());
        let mut residency = Residency::new(setting.sizes, setting.capacities);
        let published: Vec<_> = order.iter().copied().map(SampleId).collect();
        assert_eq!(future.publish(Rank(0), Epoch(0), published.into()), Publication::New);
        let mut served = Vec::new();
        for (step, sample) in (0..).zip(order) {
            let batch = BatchId { epoch: Epoch(0), step: Step(step), rank: Rank(0) };
            let (sample, at) = (SampleId(*sample), future.read_of(batch, 0));
            served.push(residency.tier_of(sample).map_or(tiers.len(), |tier| usize::from(tier.0)));
            policy.read(Read { sample, at }, &future, &mut residency);
            assert!(
                residency.levels().iter().all(|level| level.used <= level.capacity),
                "{order:?}"
            );
        }
        assert_books_hold(&residency);
        served
    }

    #[test]
    fn no_schedule_has_fewer_cold_reads_whatever_the_tiers() {
        let tierings = tierings(u64::from(SAMPLES));
        assert_eq!(tierings.len(), 5 + 15 + 35);
        let mut cases = 0;
        for order in (1..=8).flat_map(orders) {
            let fewest: Vec<_> = (0..=4).map(|room| fewest(&order, room)).collect();
            for tiers in &tierings {
                let served = served(&order, tiers);
                let mut room = 0;
                for (tier, samples) in tiers.iter().enumerate() {
                    room += samples;
                    let below = served.iter().filter(|at| **at > tier).count();
                    let fewest = fewest[usize::try_from(room).unwrap()] as usize;
                    assert_eq!(below, fewest, "{order:?} in {tiers:?}: beyond the first {room}");
                }
                cases += 1;
            }
        }
        // 4 + 16 + .. + 4^5 orders with names, and Stirling's numbers without.
        assert_eq!(cases, 55 * (1_364 + 187 + 715 + 2_795));
    }
}

mod computed {
    use super::*;

    struct Seen {
        reads: Vec<(BatchId, usize)>,
        cold: BTreeMap<(Step, Rank), u64>,
        /// The samples in a tier at the end of the epoch, as bits.
        kept: u32,
    }

    impl Seen {
        fn cold(&self) -> u64 {
            self.cold.values().sum()
        }

        fn spread(&self) -> u64 {
            spread(&self.cold)
        }

        fn order(&self) -> impl Iterator<Item = usize> {
            self.reads.iter().map(|(_, sample)| *sample)
        }
    }

    fn spread(cold: &BTreeMap<(Step, Rank), u64>) -> u64 {
        let (least, most) = (cold.values().min(), cold.values().max());
        most.zip(least).map_or(0, |(most, least)| most - least)
    }

    fn replay(kind: Kind, setting: &Setting) -> Vec<Seen> {
        let mut replay = Replay::new(kind, setting);
        let mut epochs = Vec::new();
        loop {
            let mut seen = Seen { reads: Vec::new(), cold: BTreeMap::new(), kept: 0 };
            let see = &mut |batch: BatchId, sample: SampleId, tier: Option<TierId>| {
                let sample = sample.0 as usize;
                let cold = if tier.is_none() { setting.sizes[sample].0 } else { 0 };
                seen.reads.push((batch, sample));
                *seen.cold.entry((batch.step, batch.rank)).or_default() += cold;
            };
            if replay.epoch_seen(see).is_none() {
                return epochs;
            }
            assert_books_hold(replay.residency());
            let samples = 0..setting.order.samples;
            let lies = samples.filter(|it| replay.residency().tier_of(SampleId(*it)).is_some());
            seen.kept = lies.map(|sample| 1 << sample).sum();
            epochs.push(seen);
        }
    }

    /// The least spread of the batches of `next`, over all choices of `room` samples that stay after `now`
    /// and come and go only when they are read, none before there is room, and none for another of the same
    /// batch.
    fn least_spread(before: u32, now: &Seen, next: &Seen, room: u32) -> u64 {
        let sets = 0..1_u32 << now.reads.len();
        let can_be = |after: &u32| {
            let mut kept = before;
            let of = |samples: u32| {
                let reads = next.reads.iter().filter(move |(_, sample)| samples & 1 << sample != 0);
                reads.map(|(batch, _)| *batch).collect::<BTreeSet<_>>()
            };
            after.count_ones() == room
                && of(after & !before).is_disjoint(&of(before & !after))
                && now.order().all(|sample| {
                    kept = kept & !(1 << sample) | after & 1 << sample;
                    kept.count_ones() <= room
                })
        };
        let spread_of = |after: u32| {
            let mut cold = BTreeMap::new();
            for (batch, sample) in &next.reads {
                let missed = u64::from(after & 1 << sample == 0);
                *cold.entry((batch.step, batch.rank)).or_default() += missed * LEN;
            }
            spread(&cold)
        };
        sets.filter(can_be).map(spread_of).min().expect("what was kept may stay")
    }

    /// Epochs in which a batch misses more than another by more than a sample.
    #[derive(Debug, Default)]
    struct Uneven {
        of: u32,
        all: u32,
        /// Epochs in which some choice would have avoided it.
        avoidable: u32,
    }

    /// Checks one run of equal samples against every other.
    fn check(setting: &Setting, epochs: &[Seen], uneven: &mut Uneven) {
        let room: u64 = setting.capacities.iter().map(|capacity| capacity.0 / LEN).sum();
        let samples = u64::from(setting.order.samples);
        assert_eq!(epochs[0].cold(), samples * LEN, "every sample is read");
        for at in 1..epochs.len() {
            let (now, next) = (&epochs[at - 1], &epochs[at]);
            let case = || {
                let orders: Vec<Vec<_>> =
                    epochs.iter().map(|seen| seen.order().collect()).collect();
                format!("epoch {at} of {orders:?} in {:?}: {:?}", setting.capacities, next.cold)
            };
            assert_eq!(next.cold(), (samples - room) * LEN, "{}", case());
            assert!(next.spread() <= 2 * LEN, "{}", case());
            uneven.of += 1;
            if next.spread() > LEN {
                uneven.all += 1;
                let before = if at == 1 { 0 } else { epochs[at - 2].kept };
                let least =
                    least_spread(before, now, next, u32::try_from(room).expect("a few samples"));
                uneven.avoidable += u32::from(least < next.spread());
            }
        }
    }

    fn computed(samples: u32, epochs: u32, batch_size: u32, ranks: u32) -> Spec {
        let world = World { nodes: 1, ranks_per_node: ranks };
        Spec { batch_size, world, ..spec(Shuffle::TORCH_DISTRIBUTED, samples, epochs) }
    }

    /// Seeds in which every sequence of `epochs` permutations occurs once.
    fn seeds(epochs: usize, sequences: usize) -> Vec<u64> {
        let order = |seed| {
            let spec = Spec { seed, ..computed(SAMPLES, 1, 1, 1) };
            let order = spec.epoch_of(NodeId(0), Epoch(0)).expect("the job fixes it");
            order.samples().to_vec()
        };
        // A seed and an epoch later is the next seed.
        let orders: Vec<_> = (0..13 * sequences as u64).map(order).collect();
        let mut seen = BTreeSet::new();
        let first =
            orders.windows(epochs).zip(0..).filter(|(orders, _)| seen.insert(orders.to_vec()));
        first.map(|(_, seed)| seed).collect()
    }

    fn try_all(epochs: u32, tierings: &[Vec<u64>], shapes: &[(u32, u32)]) -> Uneven {
        let sequences = 24_usize.pow(epochs);
        let seeds = seeds(epochs as usize, sequences);
        let mut uneven = Uneven::default();
        for (batch_size, ranks) in shapes {
            for tiers in tierings {
                let mut orders = BTreeSet::new();
                for seed in &seeds {
                    let order =
                        Spec { seed: *seed, ..computed(SAMPLES, epochs, *batch_size, *ranks) };
                    let setting = equal(order, tiers);
                    let seen = replay(Kind::Gap, &setting);
                    check(&setting, &seen, &mut uneven);
                    orders.insert(seen.iter().flat_map(Seen::order).collect::<Vec<_>>());
                }
                assert_eq!(orders.len(), sequences, "every sequence of orders");
            }
        }
        uneven
    }

    #[test]
    fn after_every_pair_of_orders_what_fits_is_not_read_and_batches_are_even() {
        let uneven = try_all(2, &tierings(4), &[(1, 1), (2, 1), (1, 2), (2, 2)]);
        assert_eq!((uneven.of, uneven.all), (576 * 55 * 4, 0));
    }

    #[test]
    fn after_every_triple_of_orders_what_fits_is_not_read_and_batches_are_even() {
        // Of four samples one or three that stay are even however they are chosen.
        let uneven = try_all(3, &[vec![2], vec![1, 1]], &[(2, 1), (2, 2)]);
        assert_eq!((uneven.of, uneven.all), (13_824 * 2 * 4, 0));
    }

    #[test]
    fn of_six_and_eight_samples_batches_are_even_unless_what_comes_is_read_before_what_leaves() {
        let mut uneven = Uneven::default();
        for (samples, batch_size, ranks) in [(6, 2, 1), (6, 3, 1), (8, 2, 1), (8, 4, 1), (8, 2, 2)]
        {
            for seed in 0..500 {
                for tiers in [&[2][..], &[3], &[4], &[5], &[2, 2], &[1, 2, 1]] {
                    let order = Spec { seed, ..computed(samples, 4, batch_size, ranks) };
                    let setting = equal(order, tiers);
                    check(&setting, &replay(Kind::Gap, &setting), &mut uneven);
                }
            }
        }
        assert!(uneven.all < uneven.of / 100, "{uneven:?}");
        // Which batches round up to whole samples is decided before it is known when room is made.
        assert!(uneven.avoidable < uneven.of / 2_000, "{uneven:?}");
    }

    #[test]
    fn unequal_samples_fill_each_tier_and_even_each_batch_but_for_less_than_the_largest() {
        let sizes: Arc<[Bytes]> = [64, 128, 192, 320].map(Bytes).into();
        let (total, largest) = (704, 320);
        let mut tierings: Vec<_> = (0..=total / LEN).map(|room| vec![room * LEN]).collect();
        tierings.extend([vec![192, 128], vec![320, 64], vec![64, 320], vec![128, 128, 128]]);
        let seeds = seeds(2, 576);
        for (tiers, (batch_size, ranks)) in
            tierings.iter().flat_map(|tiers| [(1, 1), (2, 1), (2, 2)].map(|shape| (tiers, shape)))
        {
            let room: u64 = tiers.iter().sum();
            let unused_max: u64 = tiers.iter().map(|tier| *tier.min(&(largest - LEN))).sum();
            for seed in &seeds {
                let order = Spec { seed: *seed, ..computed(SAMPLES, 3, batch_size, ranks) };
                let setting = setting(order, Arc::clone(&sizes), tiers);
                for seen in &replay(Kind::Gap, &setting)[1..] {
                    let unused =
                        (seen.cold() + room).checked_sub(total).expect("no more than fits");
                    assert!(unused <= unused_max, "{unused} of {tiers:?}, seed {seed}");
                    let mean = seen.cold() / seen.cold.len() as u64;
                    let off = seen.cold.values().map(|cold| cold.abs_diff(mean)).max();
                    assert!(off < Some(largest), "{:?} of {tiers:?}, seed {seed}", seen.cold);
                }
            }
        }
    }
}

/// Runs that are too large to try every choice.
mod random {
    use super::*;

    fn jobs() -> impl Strategy<Value = Setting> {
        let shape = (1_u32..5, 1_u32..5, 2_u32..7, 1_u32..9, 80_u32..400, any::<u64>());
        let lens = prop::collection::vec(1_u64..40, 400);
        let tiers = prop::collection::vec(0_u64..60, 1..4);
        (shape, lens, tiers).prop_map(|(shape, lens, percents)| {
            let (nodes, ranks_per_node, epochs, batch_size, samples, seed) = shape;
            let world = World { nodes, ranks_per_node };
            let order = spec(Shuffle::TORCH_DISTRIBUTED, samples, epochs);
            let sizes: Vec<_> =
                lens.iter().take(samples as usize).map(|len| Bytes(len * LEN)).collect();
            let total: u64 = sizes.iter().map(|len| len.0).sum();
            let tiers: Vec<_> = percents.iter().map(|percent| total * percent / 100).collect();
            setting(Spec { seed, batch_size, world, ..order }, sizes.into(), &tiers)
        })
    }

    fn cold(kind: Kind, setting: &Setting) -> Vec<u64> {
        let mut replay = Replay::new(kind, setting);
        let mut cold = Vec::new();
        while let Some(served) = replay.epoch() {
            assert_books_hold(replay.residency());
            cold.push(served.cold.bytes.0);
        }
        cold
    }

    /// The largest sample `times` times, for the free end of each tier and for padding.
    fn slack(setting: &Setting, times: u32) -> u64 {
        let largest = setting.sizes.iter().map(|len| len.0).max().expect("there are samples");
        let tiers = setting.capacities.len() as u64;
        let padding = u64::from(setting.order.world.ranks_per_node - 1);
        largest * (2 * tiers + padding) * u64::from(times)
    }

    #[test]
    fn several_nodes_read_little_more_than_what_knows_more_of_the_future() {
        for nodes in 2..5 {
            let (mut gap, mut belady) = (0, 0);
            for seed in 0..8 {
                let order = spec(Shuffle::TORCH_DISTRIBUTED, 240 * nodes, 8);
                let world = World { nodes, ..ONE_RANK };
                let setting = equal(Spec { seed, world, ..order }, &[60 * u64::from(nodes), 20]);
                gap += cold(Kind::Gap, &setting).iter().sum::<u64>();
                belady += cold(Kind::Belady, &setting).iter().sum::<u64>();
            }
            assert!(gap <= belady + belady / 25, "{nodes} nodes: {gap} for {belady}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
            ..ProptestConfig::with_cases(150)
        })]

        #[test]
        fn no_simple_rule_reads_less(setting in jobs()) {
            let gap: u64 = cold(Kind::Gap, &setting).iter().sum();
            for kind in [Kind::Pinned, Kind::Fifo, Kind::Lru] {
                let other: u64 = cold(kind, &setting).iter().sum();
                let most = other + slack(&setting, setting.order.epochs - 1);
                prop_assert!(gap <= most, "{gap} for {other} of {kind}");
            }
        }

        #[test]
        fn one_node_reads_what_does_not_fit(setting in jobs()) {
            let mut setting = setting;
            setting.order.world.nodes = 1;
            let total: u64 = setting.sizes.iter().map(|len| len.0).sum();
            let room: u64 = setting.capacities.iter().map(|tier| tier.0).sum();
            let least = total.saturating_sub(room);
            let most = least + slack(&setting, 1);
            for cold in &cold(Kind::Gap, &setting)[1..] {
                prop_assert!((least..=most).contains(cold), "{cold} for {least}");
            }
        }
    }
}
