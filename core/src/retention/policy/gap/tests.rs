//! The cold reads of the policy, compared with lower bounds.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec,
    vec::Vec,
};

use proptest::prelude::*;

use super::Gap;
use crate::{
    id::{BatchId, Epoch, NodeId, Rank, SampleId, Step, TierId},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        future_accesses::FutureAccesses,
        policy::{Aim, Kind, Need, Policy, Preparation, Read, Saves, Setting},
        replay::Replay,
        residency::Residency,
    },
    units::Bytes,
};

const ONE_NODE: World = World { nodes: 1, ranks_per_node: 8 };

/// Tiers that hold `percents` of a dataset of `sizes`.
fn setting(sizes: Arc<[Bytes]>, world: World, epochs: u32, percents: &[u64]) -> Setting {
    let total: u64 = sizes.iter().map(|len| len.0).sum();
    Setting {
        order: Spec {
            samples: u32::try_from(sizes.len()).unwrap(),
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 7,
            epochs,
            drop_last: false,
            batch_size: 32,
            world,
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes,
        capacities: percents.iter().map(|percent| Bytes(total * percent / 100)).collect(),
        aim: Aim::default(),
    }
}

fn equal(samples: usize) -> Arc<[Bytes]> {
    vec![Bytes(1 << 16); samples].into()
}

/// Lengths from a tenth to twice of 64 KiB.
fn unequal(samples: u64) -> Arc<[Bytes]> {
    let size = |i: u64| 6_400 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 124_600;
    (0..samples).map(|i| Bytes(size(i) / 64 * 64)).collect()
}

fn share(part: u64, whole: u64) -> f64 {
    f64::from(u32::try_from(part).unwrap()) / f64::from(u32::try_from(whole).unwrap())
}

fn cold_by_batch(setting: &Setting) -> Vec<BTreeMap<(Step, Rank), u64>> {
    let mut replay = Replay::new(Kind::Gap, setting);
    let mut epochs = Vec::new();
    let sizes = Arc::clone(&setting.sizes);
    loop {
        let mut cold = BTreeMap::new();
        let see = &mut |batch: BatchId, sample: SampleId, tier: Option<TierId>| {
            let len = if tier.is_none() { sizes[sample.0 as usize].0 } else { 0 };
            *cold.entry((batch.step, batch.rank)).or_default() += len;
        };
        if replay.epoch_seen(see).is_none() {
            return epochs;
        }
        epochs.push(cold);
    }
}

#[test]
fn one_node_reads_what_does_not_fit_and_no_more() {
    for (sizes, percents) in [
        (equal(6_000), &[29][..]),
        (equal(6_000), &[10, 5, 40]),
        (unequal(6_000), &[29]),
        (unequal(6_000), &[3, 70]),
    ] {
        let setting = setting(sizes, ONE_NODE, 5, percents);
        let total: u64 = setting.sizes.iter().map(|len| len.0).sum();
        let capacity: u64 = setting.capacities.iter().map(|capacity| capacity.0).sum();
        let epochs = cold_by_batch(&setting);
        // Padding repeats a few samples, whose second read finds them as the first left them.
        assert!(epochs[0].values().sum::<u64>() >= total);
        for cold in &epochs[1..] {
            let cold = cold.values().sum::<u64>();
            assert!(cold >= total - capacity, "{percents:?}: less than can be");
            let most = total - capacity + total / 500;
            assert!(
                cold <= most,
                "{percents:?}: {} of {total} too many",
                cold - (total - capacity)
            );
        }
    }
}

#[test]
fn every_batch_misses_equally_many_bytes() {
    for (sizes, percents) in
        [(equal(9_600), &[29][..]), (equal(9_600), &[10, 19]), (unequal(9_600), &[29])]
    {
        let largest = sizes.iter().map(|len| len.0).max().unwrap();
        let epochs = cold_by_batch(&setting(sizes, ONE_NODE, 5, percents));
        for (epoch, cold) in epochs.iter().enumerate().skip(1) {
            // The last step is shorter.
            let full = cold.iter().filter(|((step, _), _)| step.0 < 37).map(|(_, bytes)| *bytes);
            let mean = full.clone().sum::<u64>() / full.clone().count() as u64;
            let worst = full.map(|bytes| bytes.abs_diff(mean)).max().unwrap();
            assert!(worst < largest, "epoch {epoch} of {percents:?}: {worst} of {largest}");
        }
    }
}

#[test]
fn several_nodes_hit_as_often_as_the_best_rule_could() {
    // Belady's rule over whole runs of 60,000 reads an epoch and node, by another simulator.
    for (nodes, percent, epochs, best) in
        [(3, 5, 10, 0.135), (3, 50, 10, 0.629), (3, 75, 50, 0.873), (8, 20, 50, 0.500)]
    {
        let world = World { nodes, ranks_per_node: 1 };
        let sizes = equal(10_000 * nodes as usize);
        let mut replay = Replay::new(Kind::Gap, &setting(sizes, world, epochs, &[percent]));
        let (mut hits, mut reads) = (0, 0);
        while let Some(served) = replay.epoch() {
            hits += served.tiers[0].samples;
            reads += served.total().samples;
        }
        let ratio = share(hits, reads);
        assert!((ratio - best).abs() < 0.005, "{nodes} nodes, {percent} %: {ratio} for {best}");
    }
}

#[test]
fn the_nearest_gaps_lie_in_the_fastest_tier() {
    let world = World { nodes: 3, ranks_per_node: 1 };
    // h*(0.1), h*(0.2) - h*(0.1), h*(0.5) - h*(0.2); the first epochs fill the tiers.
    let expected = [0.300, 0.167, 0.306];
    let mut shares = Vec::new();
    let mut replay = Replay::new(Kind::Gap, &setting(equal(30_000), world, 30, &[10, 10, 30]));
    for _ in 0..9 {
        let served = replay.epoch().unwrap();
        shares =
            served.tiers.iter().map(|tier| share(tier.samples, served.total().samples)).collect();
    }
    for (share, expected) in shares.iter().zip(expected) {
        assert!((share - expected).abs() < 0.02, "{shares:?}");
    }
}

fn written(setting: &Setting, tier: TierId) -> Vec<usize> {
    let mut replay = Replay::new(Kind::Gap, setting);
    let samples = (0..setting.order.samples).map(SampleId);
    let mut before = vec![None; samples.len()];
    let mut written = Vec::new();
    while replay.epoch().is_some() {
        let now: Vec<_> = samples.clone().map(|it| replay.residency().tier_of(it)).collect();
        let entered =
            now.iter().zip(&before).filter(|(now, before)| now != before && **now == Some(tier));
        written.push(entered.count());
        before = now;
    }
    written
}

#[test]
fn balance_writes_few_samples_anew() {
    let writes = written(&setting(equal(9_600), ONE_NODE, 5, &[29]), TierId(0));
    assert!(writes[0] > 2_700);
    assert!(
        writes[1..4].iter().all(|writes| (1..9_600 * 36 / 1000).contains(writes)),
        "{writes:?}"
    );
}

#[test]
fn a_tier_that_wears_out_is_written_once() {
    let mut setting = setting(equal(9_600), ONE_NODE, 5, &[20, 9]);
    setting.aim.wears = vec![false, true];
    let writes = written(&setting, TierId(1));
    assert!(writes[0] > 850);
    assert_eq!(writes[1..], [0; 4]);
    let epochs = cold_by_batch(&setting);
    // What lies in the other tier still evens out what every batch misses.
    let full = epochs[2].iter().filter(|((step, _), _)| step.0 < 37).map(|(_, bytes)| *bytes >> 16);
    let (least, most) = (full.clone().min().unwrap(), full.max().unwrap());
    assert!(most - least <= 2, "{least} to {most} samples");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Ranks that are not in lock-step ask in another order; the decisions are the same.
    #[test]
    fn the_order_of_ranks_in_an_epoch_does_not_matter(
        seed: u64, percents in prop::collection::vec(1_u64..40, 1..3), nodes in 1_u32..4,
    ) {
        let world = World { nodes, ranks_per_node: 3 };
        let mut setting = setting(unequal(900), world, 4, &percents);
        setting.order.seed = seed;
        let decided = |by_rank: bool| {
            let mut gap = Gap::new(&setting);
            let mut future = FutureAccesses::new(setting.order, NodeId(0), gap.lookahead());
            let capacities = setting.capacities.iter().copied();
            let mut residency = Residency::new(Arc::clone(&setting.sizes), capacities);
            let mut decided = Vec::new();
            for epoch in (0..4).map(Epoch) {
                future.prepare(epoch);
                let steps = (0..setting.order.steps_in(epoch)).map(Step);
                let batch = |step| (0..3).map(move |rank| BatchId { epoch, step, rank: Rank(rank) });
                let mut batches: Vec<_> = steps.flat_map(batch).collect();
                if by_rank {
                    batches.sort_by_key(|batch| (batch.rank, batch.step));
                }
                for batch in batches {
                    for (index, sample) in future.batch(batch).unwrap().iter().enumerate() {
                        let at = future.read_of(batch, index);
                        gap.read(Read { sample: *sample, at }, &future, &mut residency);
                    }
                }
                decided.extend((0..900).map(|it| gap.tables[&epoch].tier_after(SampleId(it))));
            }
            decided
        };
        prop_assert!(decided(false) == decided(true));
    }
}

#[test]
fn where_requests_are_few_the_smallest_stay() {
    let mut setting = setting(unequal(6_000), ONE_NODE, 4, &[29]);
    setting.aim.saves = Saves::Requests;
    let mut lens: Vec<u64> = setting.sizes.iter().map(|len| len.0).collect();
    lens.sort_unstable();
    let mut room = setting.capacities[0].0;
    let fits = |len: &&u64| {
        room = room.saturating_sub(**len);
        room > 0
    };
    let best = lens.iter().take_while(fits).count() as u64;
    let mut replay = Replay::new(Kind::Gap, &setting);
    let hits: Vec<_> = (0..4).map(|_| replay.epoch().unwrap().tiers[0].samples).collect();
    assert_eq!(hits[0], 0);
    for hits in &hits[1..] {
        assert!(hits.abs_diff(best) <= 2, "{hits} requests saved, {best} can be");
    }
    assert!(best > 6_000 * 29 / 100, "small samples are more than their share");
}

#[test]
fn a_tier_is_filled_as_far_as_it_can_be_read_in_time() {
    let mut setting = setting(equal(6_000), ONE_NODE, 4, &[10, 40]);
    setting.aim.useful = vec![setting.capacities[0], Bytes(setting.capacities[1].0 / 4)];
    let mut replay = Replay::new(Kind::Gap, &setting);
    replay.epoch();
    let served = replay.epoch().unwrap();
    let read: Vec<_> = served.tiers.iter().map(|tier| tier.samples).collect();
    assert!(read[0].abs_diff(600) <= 6 && read[1].abs_diff(600) <= 6, "{read:?}");
}

fn written_bytes(setting: &Setting) -> Vec<Vec<u64>> {
    let mut replay = Replay::new(Kind::Gap, setting);
    let epochs = core::iter::from_fn(|| replay.epoch());
    epochs.map(|it| it.written.iter().map(|bytes| bytes.0).collect()).collect()
}

#[test]
fn what_fits_stays_where_it_is() {
    for percents in [&[30, 200][..], &[100], &[60, 0, 40]] {
        let setting = setting(unequal(2_000), ONE_NODE, 5, percents);
        let written = written_bytes(&setting);
        let first: u64 = written[0].iter().sum();
        let total: u64 = setting.sizes.iter().map(|len| len.0).sum();
        assert!(first * 100 >= total * 99, "{percents:?}: {first} of {total}");
        let later: u64 = written[1..].iter().flatten().sum();
        assert!(later * 100 <= total, "{percents:?}: {later} written again");
    }
}

#[test]
fn where_requests_are_few_the_same_samples_stay_in_the_same_tiers() {
    let mut setting = setting(equal(6_000), ONE_NODE, 5, &[30, 30]);
    setting.aim.saves = Saves::Requests;
    let mut replay = Replay::new(Kind::Gap, &setting);
    let first = replay.epoch().unwrap();
    for written in &first.written {
        assert!((1_750..1_850).contains(&(written.0 >> 16)), "{written}");
    }
    for _ in 1..4 {
        assert_eq!(replay.epoch().unwrap().written, [Bytes(0), Bytes(0)]);
    }
}

/// Samples that stay on a node of three after its trainer jumped to another epoch, though they are
/// not used in the epochs looked into from there.
fn left_behind(from: u32, to: u32) -> usize {
    let world = World { nodes: 3, ranks_per_node: 1 };
    let setting = setting(equal(3_000), world, 30, &[30]);
    let mut gap = Gap::new(&setting);
    let mut future = FutureAccesses::new(setting.order, NodeId(0), gap.lookahead());
    let mut residency =
        Residency::new(Arc::clone(&setting.sizes), setting.capacities.iter().copied());
    for epoch in (from - 3..=from).chain([to]).map(Epoch) {
        future.prepare(epoch);
        for step in (0..setting.order.steps_in(epoch)).map(Step) {
            let batch = BatchId { epoch, step, rank: Rank(0) };
            for (index, sample) in future.batch(batch).unwrap().iter().enumerate() {
                let at = future.read_of(batch, index);
                gap.read(Read { sample: *sample, at }, &future, &mut residency);
            }
        }
    }
    let ahead = (to + 1..=to + gap.lookahead()).map(Epoch);
    let used = ahead.flat_map(|epoch| future.epoch(epoch).unwrap().samples().to_vec());
    let used: BTreeSet<_> = used.collect();
    let lies = |sample: &SampleId| residency.tier_of(*sample).is_some();
    (0..3_000).map(SampleId).filter(lies).filter(|it| !used.contains(it)).count()
}

#[test]
fn a_trainer_that_goes_elsewhere_leaves_nothing_behind() {
    assert_eq!(left_behind(5, 12), 0, "forwards");
    assert_eq!(left_behind(15, 3), 0, "backwards");
}

/// Hits of each epoch where the one tier gets another size in the middle of an epoch, and each epoch is
/// planned while the one before is read.
fn hits_with_a_resize(from: u64, to: u64, during: Epoch) -> Vec<usize> {
    let setting = setting(equal(2_000), World { nodes: 1, ranks_per_node: 1 }, 6, &[from]);
    let mut gap = Gap::new(&setting);
    let mut future = FutureAccesses::new(setting.order, NodeId(0), gap.lookahead() + 1);
    let mut residency =
        Residency::new(Arc::clone(&setting.sizes), setting.capacities.iter().copied());
    let mut hits = vec![0; 6];
    for epoch in (0..6).map(Epoch) {
        future.prepare(epoch);
        let steps = setting.order.steps_in(epoch);
        for step in (0..steps).map(Step) {
            if (epoch, step.0) == (during, steps / 2) {
                residency.resize(TierId(0), Bytes((2_000 << 16) * to / 100));
            }
            let batch = BatchId { epoch, step, rank: Rank(0) };
            for (index, sample) in future.batch(batch).unwrap().iter().enumerate() {
                let at = future.read_of(batch, index);
                hits[epoch.0 as usize] += usize::from(residency.tier_of(*sample).is_some());
                gap.read(Read { sample: *sample, at }, &future, &mut residency);
            }
            let next = Epoch(epoch.0 + 1);
            if step.0 == 0
                && next.0 < 6
                && let Preparation::Job(job) = gap.prepare(next, Need::Soon, &future, &residency)
            {
                gap.prepared(job.run());
            }
        }
    }
    hits
}

#[test]
fn room_that_comes_while_an_epoch_runs_is_used_from_then_on() {
    for hits in [hits_with_a_resize(20, 30, Epoch(0)), hits_with_a_resize(20, 30, Epoch(2))] {
        let grown = hits.iter().position(|hits| *hits > 450).unwrap();
        assert!(grown <= 3, "{hits:?}");
        assert!(hits[grown..].iter().all(|hits| *hits >= 595), "{hits:?}");
    }
}

#[test]
fn room_that_goes_costs_no_more_than_it_held() {
    let hits = hits_with_a_resize(30, 20, Epoch(2));
    assert!(hits[3..].iter().all(|hits| *hits >= 395), "{hits:?}");
}
