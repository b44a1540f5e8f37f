//! What the simulator says about caching, against what must hold for every cache.

mod adjusted;
mod faults;
mod phases;

use alloc::{sync::Arc, vec, vec::Vec};
use core::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::{
    id::{NodeId, TierId},
    latency_quantiles::{LatencyQuantiles, PerMillion},
    order::{FurtherDataset, FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{form::SampleTime, policy},
    session::{
        Adaptation, Form, LookAhead, OnError, StallCause, Windows, assignment::Assignment,
        staging_depth,
    },
    throughput::Throughput,
    tier::{Buffer, Kind},
    units::BytesPerSecond,
};

const CHUNK: Bytes = Bytes::mib(1);

/// Photographs as they come: 20 to 200 KiB.
fn photographs(count: u32) -> Arc<[Bytes]> {
    let size = |i: u64| 20_000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
    (0..u64::from(count)).map(|i| Bytes(size(i))).collect()
}

fn settings(policy: policy::Kind, samples: u32, ranks: u32, tiers: Vec<Buffer>) -> Settings {
    Settings {
        order: Spec {
            samples,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: 3,
            drop_last: false,
            batch_size: 8,
            world: World { nodes: 1, ranks_per_node: ranks },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        node: NodeId(0),
        sizes: photographs(samples),
        tiers,
        chunk: CHUNK,
        policy,
        staged_batches: 4,
        staged_batches_max: 0,
        arena: Bytes::mib(8),
        on_error: OnError::Fail,
        windows: Windows::default(),
        aim: policy::Aim::default(),
        in_place_tiers: Vec::new(),
        transform: None,
        first_room: Bytes(0),
        look_ahead: LookAhead::Off,
    }
}

fn model(tiers: usize) -> Model {
    let speed =
        |latency, rate| Speed { latency: Nanoseconds(latency), bandwidth: BytesPerSecond(rate) };
    Model {
        cold_threads: None,
        cold_burst: Nanoseconds(0),
        cold: speed(1_000_000, 100_000_000),
        tiers: vec![speed(350, 20_000_000_000); tiers],
        step_time: Nanoseconds(5_000_000),
        pause: None,
        transforms: None,
        head_start: Nanoseconds(0),
    }
}

fn total(settings: &Settings) -> u64 {
    settings.sizes.iter().map(|len| len.0).sum()
}

fn share(settings: &Settings, percent: u64) -> u32 {
    u32::try_from(total(settings) * percent / 100 / CHUNK.0).unwrap()
}

fn with_half_cached(policy: policy::Kind) -> (Settings, Outcome) {
    let mut settings = settings(policy, 500, 2, Vec::new());
    settings.tiers = vec![
        Buffer { kind: Kind::CxlMemory, chunks_max: share(&settings, 40) },
        Buffer { kind: Kind::Scratch, chunks_max: share(&settings, 10) },
    ];
    let outcome = simulate(&settings, &model(2));
    (settings, outcome)
}

#[test]
fn gap_reads_the_least_that_any_policy_can() {
    let (settings, outcome) = with_half_cached(policy::Kind::Gap);
    assert_eq!(outcome.epochs[0].read.cold.0, total(&settings));
    for epoch in &outcome.epochs[1..] {
        let (cold, minimal) = (epoch.read.cold.0, epoch.minimal_cold.0);
        assert!(cold >= minimal, "fewer cold bytes than possible: {cold} < {minimal}");
        assert!(cold * 100 <= minimal * 101, "{cold} is more than 1 % above {minimal}");
    }
}

fn chief_cause(outcome: &Outcome) -> StallCause {
    let mut causes = StallBreakdown::default();
    for epoch in &outcome.epochs {
        assert_eq!(epoch.causes.total(), epoch.stall);
        causes.add(&epoch.causes);
    }
    assert!(causes.total().0 > 0);
    causes.parts().max_by_key(|(_, part)| *part).unwrap().0
}

#[test]
fn a_stall_is_put_down_to_what_is_too_slow() {
    let tier = |percent: u64| {
        let mut settings = settings(policy::Kind::Gap, 500, 2, Vec::new());
        let chunks_max = share(&settings, percent);
        settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max }; 2];
        settings
    };
    let slow = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(20_000_000) };
    let mut cold = model(2);
    cold.cold = slow;
    assert_eq!(chief_cause(&simulate(&tier(20), &cold)), StallCause::Cold);
    let mut second = model(2);
    second.tiers[1] = slow;
    // The slow tier gets a copy of what it keeps in the first epoch, and is read in the others.
    let outcome = simulate(&tier(60), &second);
    let chief = chief_cause(&outcome);
    assert!([StallCause::Tier(TierId(1)), StallCause::Keep].contains(&chief), "{chief:?}");
    assert_eq!(
        chief_cause(&Outcome { epochs: outcome.epochs[1..].to_vec(), ..outcome }),
        StallCause::Tier(TierId(1))
    );
}

#[test]
fn the_other_policies_read_more() {
    let cold = |policy| {
        let (_, outcome) = with_half_cached(policy);
        outcome.epochs[1..].iter().map(|epoch| epoch.read.cold.0).sum::<u64>()
    };
    let gap = cold(policy::Kind::Gap);
    assert!(gap < cold(policy::Kind::DeepMemory));
    assert!(gap < cold(policy::Kind::Fifo));
    assert!(cold(policy::Kind::Fifo) < cold(policy::Kind::None));
}

#[test]
fn fifo_keeps_what_the_closed_form_says() {
    // FIFO over a shuffled dataset, c = 0.5, two epochs: 9.7 % of all reads hit.
    let mut settings = settings(policy::Kind::Fifo, 4000, 1, Vec::new());
    settings.order.epochs = 2;
    let chunks_max = share(&settings, 50);
    settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max }];
    let outcome = simulate(&settings, &model(1));
    let hits: u64 = outcome.epochs.iter().map(|epoch| epoch.read.from_tier[0].0).sum();
    let per_mille = hits * 1000 / (2 * total(&settings));
    assert!((92..=102).contains(&per_mille), "{per_mille} per mille");
}

#[test]
fn misses_of_gap_are_spread_over_the_epoch() {
    let (settings, outcome) = with_half_cached(policy::Kind::Gap);
    let epoch = &outcome.epochs[2];
    // The trainer computes for 5 ms a step and half of its bytes are cold: reading never stops it
    // for longer than a bunched epoch would, whose first half needs no reading at all.
    let reading = model(2).cold.bandwidth.time_for(epoch.read.cold).0;
    assert!(epoch.duration.0 < reading * 11 / 10, "{} ms", epoch.duration.0 / 1_000_000);
    assert!(settings.arena.0 < epoch.read.cold.0, "staging alone cannot hide a bunch");
}

#[test]
fn equal_inputs_give_equal_plans() {
    let (_, once) = with_half_cached(policy::Kind::DeepMemory);
    let (_, again) = with_half_cached(policy::Kind::DeepMemory);
    assert_eq!(once, again);
    let (_, other) = with_half_cached(policy::Kind::Fifo);
    assert_ne!(once.digest, other.digest);
}

#[test]
fn the_speed_of_a_disk_changes_no_decision() {
    for policy in policy::Kind::ALL {
        let (settings, usual) = with_half_cached(policy);
        let reads = |outcome: &Outcome| -> Vec<_> {
            let epochs = outcome.epochs.iter();
            epochs.map(|it| (it.read.cold, it.read.from_tier.clone())).collect()
        };
        for (cold_part, tier_part) in [(20, 1), (1, 1000), (20, 1000)] {
            let mut slow = model(2);
            slow.cold.bandwidth.0 /= cold_part;
            slow.cold.latency.0 *= cold_part;
            slow.tiers[1].bandwidth.0 /= tier_part;
            let other = simulate(&settings, &slow);
            assert_eq!(reads(&usual), reads(&other), "{policy}, {cold_part}, {tier_part}");
            let took = |outcome: &Outcome| outcome.epochs[0].duration;
            assert!(cold_part == 1 || took(&other) > took(&usual), "{policy}: it is slower");
        }
    }
}

#[test]
fn no_epoch_beats_its_lower_bound_by_more_than_was_staged_before_it() {
    for policy in policy::Kind::ALL {
        let (settings, outcome) = with_half_cached(policy);
        let staged = model(2).cold.bandwidth.time_for(Bytes(2 * settings.arena.0));
        for epoch in &outcome.epochs {
            let head_start = if epoch.epoch.0 == 0 { 0 } else { staged.0 };
            assert!(epoch.duration.0 + head_start >= epoch.lower_bound.0, "{policy}: {epoch:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_byte_is_read_once_per_use(
        samples in 1_u32..120,
        ranks in 1_u32..4,
        chunks in prop::collection::vec(0_u32..6, 0..4),
        policy in prop::sample::select(&policy::Kind::ALL[..]),
        seed: u64,
    ) {
        let tiers: Vec<Buffer> =
            chunks.iter().map(|chunks_max| Buffer { kind: Kind::CxlMemory, chunks_max: *chunks_max }).collect();
        let mut settings = settings(policy, samples, ranks, tiers);
        settings.order.seed = seed;
        let outcome = simulate(&settings, &model(chunks.len()));
        for epoch in &outcome.epochs {
            let from_tiers: u64 = epoch.read.from_tier.iter().map(|bytes| bytes.0).sum();
            prop_assert_eq!(epoch.read.cold.0 + from_tiers, epoch.read.demand.0);
            prop_assert_eq!(epoch.read.samples, u64::from(settings.order.samples_per_rank() * ranks));
        }
    }
}

/// The policy sees the reads of a validation as it sees all others.
#[test]
fn a_validation_that_fits_beside_the_training_set_is_read_cold_once() {
    let validation =
        FurtherDataset { samples: 100, shuffle: Shuffle::Sequential, batch_size: 16, every: 2 };
    for policy in [policy::Kind::Gap, policy::Kind::Pinned, policy::Kind::Lru] {
        let mut settings = settings(policy, 300, 2, Vec::new());
        settings.order.epochs = 4;
        settings.order.further = FurtherDatasets::try_new(&[validation]).unwrap();
        settings.sizes = photographs(400);
        let chunks_max = share(&settings, 120);
        settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max }];
        let outcome = simulate(&settings, &model(1));
        let training: u64 = settings.sizes[..300].iter().map(|len| len.0).sum();
        let cold: Vec<_> = outcome.epochs.iter().map(|epoch| epoch.read.cold.0).collect();
        assert_eq!(cold, [training, total(&settings) - training, 0, 0], "{policy}");
    }
}

/// 500 samples: two ranks read 96 of epoch 1, then four go on.
#[test]
fn a_run_that_starts_in_an_epoch_reads_the_rest_of_it() {
    let mut settings = settings(policy::Kind::Gap, 500, 2, Vec::new());
    settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max: share(&settings, 40) }];
    let start = settings.order.position_after(Epoch(1), 6);
    assert_eq!(start, Position { epoch: Epoch(1), samples: 96 });
    settings.order = Spec { start, world: World { nodes: 1, ranks_per_node: 4 }, ..settings.order };
    let epochs = simulate(&settings, &model(1)).epochs;
    let steps: Vec<_> = epochs.iter().map(|epoch| epoch.steps).collect();
    assert_eq!(steps, [0, 13, 16]);
    let samples: Vec<_> = epochs.iter().map(|epoch| epoch.read.samples).collect();
    assert_eq!(samples, [0, 404, 500]);
    let whole = total(&settings);
    let bytes: Vec<_> = epochs.iter().map(|epoch| epoch.read.demand.0).collect();
    assert!(bytes[0] == 0 && bytes[1] < whole && bytes[2] == whole, "{bytes:?} of {whole}");
    assert_eq!(epochs[1].read.cold, epochs[1].read.demand, "nothing was kept before the start");
    assert!(epochs[2].read.cold < epochs[2].read.demand);
}

fn spread(quantiles: &[(u32, u64)]) -> LatencyQuantiles {
    let quantile = |(share, time): &(u32, u64)| (PerMillion(*share), Nanoseconds(*time));
    LatencyQuantiles::measured(&quantiles.iter().map(quantile).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_step_takes_as_long_as_its_slowest_rank() {
    // 5 ms, but every tenth takes 50: nine steps of ten of one rank, four of ten of eight.
    let step_time = spread(&[(900_000, 5_000_000), (900_001, 50_000_000), (1_000_000, 50_000_000)]);
    let unlimited = Speed { latency: Nanoseconds(0), bandwidth: BytesPerSecond(0) };
    let computed = |ranks: u32, seed| {
        let settings = settings(policy::Kind::None, 1600 * ranks, ranks, Vec::new());
        let machine = Machine {
            cold: unlimited.into(),
            tiers: Vec::new(),
            peers: None,
            transforms: None,
            step_time: step_time.clone(),
            seed,
            pause: None,
            head_start: Nanoseconds(0),
        };
        let epochs = simulate_on(&settings, &machine).epochs;
        assert!(epochs.iter().all(|epoch| epoch.duration == epoch.lower_bound));
        epochs.iter().map(|epoch| epoch.duration.0).sum::<u64>() / 600 / 1000
    };
    let mean = |one_in_ten_fast: f64| 50_000.0 - 45_000.0 * one_in_ten_fast;
    for (ranks, fast) in [(1, 0.9), (8, 0.9_f64.powi(8))] {
        let simulated = f64::from(u32::try_from(computed(ranks, 1)).unwrap());
        let expected = mean(fast);
        assert!((simulated - expected).abs() < 3000.0, "{simulated} us instead of {expected}");
    }
    assert_eq!(computed(2, 1), computed(2, 1));
    assert_ne!(computed(2, 1), computed(2, 2));
}

#[test]
fn what_an_agent_reads_before_the_training_begins_is_not_waited_for() {
    let settings = settings(policy::Kind::Gap, 320, 2, Vec::new());
    let after = |head_start| {
        simulate(&settings, &Model { head_start: Nanoseconds(head_start), ..model(0) })
    };
    let (at_once, later) = (after(0), after(2_000_000_000));
    assert!(at_once.first_stall > Nanoseconds(0));
    assert_eq!(later.first_stall, Nanoseconds(0), "two seconds fill what is staged");
    for (at_once, later) in at_once.epochs.iter().zip(&later.epochs) {
        assert_eq!(at_once.read.cold, later.read.cold);
        assert!(later.lower_bound <= later.duration, "the head start is no part of the epoch");
    }
    assert!(later.epochs[0].duration < at_once.epochs[0].duration);
}

#[test]
fn threads_and_slow_reads_cost_what_the_closed_form_says() {
    // 96 samples a step, 10 ms each at any size, on 8 threads: 120 ms a step, compute 5 ms.
    let settings = settings(policy::Kind::None, 960, 12, Vec::new());
    let machine = |threads| Machine {
        cold: LinkModel {
            throughput: Throughput::constant(BytesPerSecond(0)),
            latency: LatencyQuantiles::constant(Nanoseconds(10_000_000)),
            threads: NonZeroU32::new(threads),
            burst: Nanoseconds(0),
        },
        ..Machine::from(&model(0))
    };
    let duration = |threads| {
        let epochs = simulate_on(&settings, &machine(threads)).epochs;
        epochs.iter().map(|epoch| epoch.duration.0).sum::<u64>() / 1_000_000
    };
    assert!((3600..3640).contains(&duration(8)), "{} ms", duration(8));
    assert!((1800..1840).contains(&duration(16)), "{} ms", duration(16));
}

/// Rates of a disk that needs many reads to be fast, and of a server that gets slower with many.
fn curves() -> [LinkModel; 3] {
    let link = |points: &[(u32, u64)], latency| LinkModel {
        throughput: table(points),
        latency: LatencyQuantiles::constant(Nanoseconds(latency)),
        threads: None,
        burst: Nanoseconds(0),
    };
    [
        link(&[(1, 50_000_000), (8, 400_000_000), (32, 900_000_000), (256, 950_000_000)], 0),
        link(&[(1, 100_000_000), (8, 500_000_000), (24, 600_000_000), (128, 150_000_000)], 0),
        link(&[(1, 200_000_000), (2, 200_000_000)], 20_000_000),
    ]
}

fn table(points: &[(u32, u64)]) -> Throughput {
    let point =
        |(threads, rate): &(u32, u64)| (NonZeroU32::new(*threads).unwrap(), BytesPerSecond(*rate));
    Throughput::measured(&points.iter().map(point).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_window_that_is_measured_is_about_as_good_as_the_best_one() {
    let mut settings = settings(policy::Kind::None, 6000, 4, Vec::new());
    settings.arena = Bytes::mib(64);
    settings.staged_batches = 16;
    for cold in curves() {
        let machine = Machine {
            cold,
            step_time: LatencyQuantiles::constant(Nanoseconds(1_000)),
            ..Machine::from(&model(0))
        };
        let took = |windows: Windows| {
            let epochs = simulate_on(&Settings { windows, ..settings.clone() }, &machine).epochs;
            // The first epoch is the one in which it learns.
            epochs[1..].iter().map(|epoch| epoch.duration.0).sum::<u64>()
        };
        let window = |cold| NonZeroU32::new(cold).unwrap();
        let fixed = |cold| Windows { cold: window(cold), ..Windows::default() };
        let best = [1, 2, 4, 8, 16, 24, 32, 64, 128, 256].map(|cold| took(fixed(cold)));
        let best = best.into_iter().min().unwrap();
        // An agent starts with 16. From far above a crowd's limit the way down is longer than this run.
        for first in [1, 16, 64] {
            let adaptation = Adaptation::Measured { max: window(256) };
            let measured = took(Windows { adaptation, ..fixed(first) });
            assert!(
                measured <= best * 120 / 100,
                "{first}: {measured} ns, best {best} ns: {machine:?}"
            );
        }
    }
}

#[test]
fn however_threads_are_divided_the_same_bytes_are_read() {
    let mut settings = settings(policy::Kind::Fifo, 800, 4, Vec::new());
    settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max: share(&settings, 40) }];
    settings.windows = Windows { cold: NonZeroU32::new(8).unwrap(), ..settings.windows };
    let run = |assignment| {
        let mut settings = settings.clone();
        settings.windows.assignment = assignment;
        let mut machine = Machine::from(&model(1));
        machine.cold.threads = NonZeroU32::new(8);
        simulate_on(&settings, &machine)
    };
    let outcomes = Assignment::ALL.map(run);
    let read = |outcome: &Outcome| -> Vec<_> {
        outcome.epochs.iter().map(|epoch| (epoch.read.cold, epoch.read.from_tier.clone())).collect()
    };
    assert_eq!(read(&outcomes[0]), read(&outcomes[1]));
    assert_eq!(read(&outcomes[0]), read(&outcomes[2]));
    let took = |outcome: &Outcome| outcome.epochs.iter().map(|it| it.duration.0).sum::<u64>();
    let times = outcomes.each_ref().map(took);
    assert!(outcomes[0].digest != outcomes[1].digest, "a division makes a difference");
    // One pool is never slower than the same threads divided, beyond what was staged ahead.
    assert!(times[0] <= times[1] * 101 / 100 && times[0] <= times[2] * 101 / 100, "{times:?}");
}

#[test]
fn staging_of_the_depth_that_was_reckoned_hides_slow_reads() {
    let latency = spread(&[(500_000, 1_000_000), (990_000, 4_000_000), (1_000_000, 40_000_000)]);
    let throughput = Throughput::constant(BytesPerSecond(1_000_000_000));
    let threads = NonZeroU32::new(8).unwrap();
    let link = staging_depth::Link { throughput: &throughput, latency: &latency, threads };
    let mut settings = settings(policy::Kind::None, 4000, 2, Vec::new());
    settings.arena = Bytes::mib(64);
    let step_time = Nanoseconds(12_000_000);
    let read_len = Bytes(total(&settings) / 4000);
    let load = staging_depth::Load { samples: 16, reads: 16, read_len, step_time };
    let depth = staging_depth::least(&load, &link, None, PerMillion(999_000), 64).unwrap();
    let machine = Machine {
        cold: LinkModel {
            throughput: throughput.clone(),
            latency: latency.clone(),
            threads: Some(threads),
            burst: Nanoseconds(0),
        },
        tiers: Vec::new(),
        peers: None,
        transforms: None,
        step_time: LatencyQuantiles::constant(step_time),
        seed: 5,
        pause: None,
        head_start: Nanoseconds(0),
    };
    let mut stalled = |staged_batches| {
        settings.staged_batches = staged_batches;
        let epochs = simulate_on(&settings, &machine).epochs;
        // The first batch of a run is never there; its wait is no matter of depth.
        epochs[1..].iter().map(|epoch| epoch.stall.0 / 1000).sum::<u64>()
    };
    // 500 steps of 12 ms: one in a thousand may wait, for the longest read at most.
    assert!(stalled(depth.batches) <= 40_000, "{depth:?}: {} us", stalled(depth.batches));
    assert!(stalled(2) > 4 * 40_000, "{} us with two batches", stalled(2));
}

#[test]
fn threads_that_are_short_are_what_ranks_wait_for_and_two_wait_half_as_long_as_one() {
    let run = |threads| {
        let mut settings = settings(policy::Kind::Gap, 400, 1, Vec::new());
        settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max: share(&settings, 150) }];
        let threads = NonZeroU32::new(threads).unwrap();
        let settings = settings.with_transform(Bytes(100_000), threads, None);
        let each = SampleTime { prepare: Nanoseconds(4_000_000), rest: Nanoseconds(1_000_000) };
        let stored = Bytes(total(&settings) / 400);
        let transforms = Some(TransformCosts::of_mean(each, stored));
        simulate(&settings, &Model { transforms, ..model(1) })
    };
    let (one, two) = (run(1), run(2));
    assert_eq!(chief_cause(&one), StallCause::Transforming);
    // 400 samples of 5 ms each, and steps of 5 ms for 8 of them.
    let epoch = |outcome: &Outcome| outcome.epochs[2].duration.0 / 1_000_000;
    assert!((1_990..2_060).contains(&epoch(&one)), "{} ms", epoch(&one));
    assert!((995..1_060).contains(&epoch(&two)), "{} ms", epoch(&two));
    let count = one.epochs[2].read.transforms[Form::Stored as usize];
    assert_eq!((count.samples, count.made), (400, Bytes(40_000_000)));
    assert!((1_990_000_000..2_010_000_000).contains(&count.time.0), "{count:?}");
}

/// A job of one rank with two threads, whose samples take 3 ms on average.
fn transforming(rare: LatencyQuantiles, staged_max: u32) -> Outcome {
    let mut settings = settings(policy::Kind::Gap, 800, 1, Vec::new());
    settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max: share(&settings, 150) }];
    settings.order.epochs = 4;
    settings.staged_batches_max = staged_max;
    settings.arena = Bytes::mib(80);
    let settings = settings.with_transform(Bytes(100_000), NonZeroU32::new(2).unwrap(), None);
    let prepare = StepCost { each: rare, kib: Nanoseconds(0) };
    let rest = LatencyQuantiles::constant(Nanoseconds(0));
    let transforms = Some(TransformCosts { prepare, rest });
    let step_time = Nanoseconds(20_000_000);
    simulate(&settings, &Model { step_time, transforms, ..model(1) })
}

/// One sample of 200 takes 0.2 s, ten steps; the others 2 ms.
fn rarely_slow() -> LatencyQuantiles {
    let ms = |share, ms: u64| (PerMillion(share), Nanoseconds(ms * 1_000_000));
    let quantiles = [ms(995_000, 2), ms(995_001, 200), ms(1_000_000, 200)];
    LatencyQuantiles::measured(&quantiles).unwrap()
}

#[test]
fn where_times_of_transforms_spread_more_is_staged_so_that_slow_samples_delay_no_batch() {
    let stall = |outcome: &Outcome| outcome.epochs[2..].iter().map(|it| it.stall.0).sum::<u64>();
    let (usual, deep) = (transforming(rarely_slow(), 4), transforming(rarely_slow(), 24));
    assert_eq!(chief_cause(&usual), StallCause::Transforming);
    let (usual, deep) = (stall(&usual), stall(&deep));
    assert!(usual > 500_000_000 && deep * 10 < usual, "{usual} ns as usual, {deep} ns deeper");
    let even = LatencyQuantiles::constant(Nanoseconds(3_000_000));
    let [one, other] = [4, 24].map(|most| transforming(even.clone(), most));
    assert_eq!(one.digest, other.digest, "the same mean without the spread asks for no more");
}

#[test]
fn an_epoch_takes_no_less_than_its_transforms_and_hardly_more_where_they_are_short() {
    let lens = || photographs(400).iter().map(|_| Bytes(150_000)).collect();
    for (prepared, threads) in [(None, 1), (None, 2), (Some(lens()), 1)] {
        let mut settings = settings(policy::Kind::Gap, 400, 1, Vec::new());
        settings.tiers = vec![Buffer { kind: Kind::CxlMemory, chunks_max: share(&settings, 60) }];
        let stored = Bytes(total(&settings) / 400);
        let threads = NonZeroU32::new(threads).unwrap();
        let settings = settings.with_transform(Bytes(100_000), threads, prepared);
        let each = SampleTime { prepare: Nanoseconds(6_000_000), rest: Nanoseconds(1_000_000) };
        let transforms = Some(TransformCosts::of_mean(each, stored));
        let outcome = simulate(&settings, &Model { transforms, ..model(1) });
        for epoch in &outcome.epochs[1..] {
            let (bound, time) = (epoch.lower_bound.0, epoch.duration.0);
            assert!(bound > 1_000_000_000 && bound * 100 <= time * 103, "{bound} {time}");
            assert!(time * 100 <= bound * 106, "{threads} threads: {bound} {time}");
        }
    }
}
