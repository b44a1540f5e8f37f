//! Depths against a queue that is played out, read by read.

use alloc::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::{latency_quantiles::Draws, units::BytesPerSecond};

const MS: u64 = 1_000_000;

fn latency(quantiles: &[(u32, u64)]) -> LatencyQuantiles {
    let quantile = |(share, time): &(u32, u64)| (PerMillion(*share), Nanoseconds(*time));
    LatencyQuantiles::measured(&quantiles.iter().map(quantile).collect::<Vec<_>>()).unwrap()
}

/// The least depth for reads alone.
fn least(
    load: &Load,
    link: &Link<'_>,
    wanted: PerMillion,
    staged_max: u32,
) -> Result<Depth, Shortfall> {
    super::least(load, link, None, wanted, staged_max)
}

fn link<'a>(throughput: &'a Throughput, latency: &'a LatencyQuantiles, threads: u32) -> Link<'a> {
    Link { throughput, latency, threads: NonZeroU32::new(threads).unwrap() }
}

/// Plays the steps of a trainer that takes a batch every `step_time`. Returns the share of batches that
/// were ready.
fn played(load: &Load, link: &Link<'_>, depth: u32, steps: u64) -> f64 {
    let lanes = link.threads.get().min(load.reads);
    let together = Bytes(load.read_len.0 * u64::from(lanes));
    let transfer = link.throughput.at(lanes).time_for(together).0;
    let mut free_at = vec![0_u64; lanes as usize];
    let mut draws = Draws::of(7, u64::from(depth));
    let mut ready = 0_u32;
    let allowed = u64::from(depth - 1) * load.step_time.0;
    for step in 0..steps {
        let placed = step * load.step_time.0;
        let mut last = placed;
        for _ in 0..load.reads {
            let lane = free_at.iter_mut().min().unwrap();
            *lane = (*lane).max(placed) + link.latency.draw(&mut draws).0 + transfer;
            last = last.max(*lane);
        }
        ready += u32::from(last <= placed + allowed);
    }
    f64::from(ready) / f64::from(u32::try_from(steps).unwrap())
}

#[test]
fn without_spread_the_depth_is_the_time_that_a_batch_takes() {
    let throughput = Throughput::constant(BytesPerSecond(1_000_000_000));
    let constant = LatencyQuantiles::constant(Nanoseconds(10 * MS));
    // Eight reads of 1 MB on 8 threads: 10 ms and 8 ms. Steps of 20 ms: one step ahead is enough.
    let link = link(&throughput, &constant, 8);
    let load = |step: u64| Load {
        samples: 8,
        reads: 8,
        read_len: Bytes(1_000_000),
        step_time: Nanoseconds(step * MS),
    };
    let found = least(&load(20), &link, PerMillion::ALL, 100).unwrap();
    assert_eq!(found, Depth { batches: 2, in_time: PerMillion::ALL });
    let too_slow = least(&load(18), &link, PerMillion::ALL, 100).unwrap_err();
    let (busy, step_time) = (Nanoseconds(18 * MS), Nanoseconds(18 * MS));
    assert_eq!(too_slow, Shortfall::TooSlow { busy, step_time });
}

#[test]
fn where_there_are_more_threads_than_reads_several_steps_are_read_at_a_time() {
    let throughput = Throughput::constant(BytesPerSecond(1_000_000_000));
    let constant = LatencyQuantiles::constant(Nanoseconds(30 * MS));
    let load =
        Load { samples: 2, reads: 2, read_len: Bytes(40_000), step_time: Nanoseconds(10 * MS) };
    let depth =
        |threads| least(&load, &link(&throughput, &constant, threads), PerMillion::ALL, 100);
    assert!(matches!(depth(2), Err(Shortfall::TooSlow { .. })), "30 ms in each step");
    assert!(matches!(depth(4), Err(Shortfall::TooSlow { .. })), "30 ms in two steps");
    for threads in [8, 9, 64] {
        let found = depth(threads).unwrap();
        assert_eq!(found.batches, 5, "30 ms and more are in time four steps of 10 ms ahead");
    }
}

#[test]
fn nothing_to_read_needs_no_batch_ahead() {
    let throughput = Throughput::constant(BytesPerSecond(1));
    let constant = LatencyQuantiles::constant(Nanoseconds(MS));
    let load = Load { samples: 0, reads: 0, read_len: Bytes(0), step_time: Nanoseconds(0) };
    let found = least(&load, &link(&throughput, &constant, 8), PerMillion::ALL, 1).unwrap();
    assert_eq!(found.batches, 1);
}

#[test]
fn a_rare_slow_read_needs_the_depth_that_outlasts_it() {
    // One read in 200 takes five steps; with one read a step, 99.9 % need to outlast it.
    let throughput = Throughput::constant(BytesPerSecond(0));
    let rare = latency(&[(995_000, MS), (995_001, 50 * MS), (1_000_000, 50 * MS)]);
    let link = link(&throughput, &rare, 1);
    let load = Load { samples: 1, reads: 1, read_len: Bytes(1), step_time: Nanoseconds(10 * MS) };
    let shallow = least(&load, &link, PerMillion(900_000), 100).unwrap();
    let deep = least(&load, &link, PerMillion(999_000), 100).unwrap();
    // Behind a slow read the next five wait: 40, 31, 22, 13 and 4 ms, so one step is enough in 97 %.
    assert_eq!(shallow.batches, 2);
    assert!((6..=8).contains(&deep.batches), "{deep:?}");
    assert!(played(&load, &link, deep.batches, 200_000) >= 0.999);
    assert!(played(&load, &link, deep.batches - 2, 200_000) < 0.999);
}

#[test]
fn a_queue_that_builds_up_needs_the_depth_that_outlasts_it() {
    // Half of the reads take 0.2 steps, half 1.6: nothing is slow, but the slow ones come in runs.
    let throughput = Throughput::constant(BytesPerSecond(0));
    let halves = latency(&[(500_000, 2 * MS), (500_001, 16 * MS), (1_000_000, 16 * MS)]);
    let link = link(&throughput, &halves, 1);
    let load = Load { samples: 1, reads: 1, read_len: Bytes(1), step_time: Nanoseconds(10 * MS) };
    let depth = least(&load, &link, PerMillion(990_000), 100).unwrap();
    let share = |batches| played(&load, &link, batches, 400_000);
    assert!(share(depth.batches) >= 0.99, "{depth:?}: {}", share(depth.batches));
    assert!(share(depth.batches - 3) < 0.99, "{depth:?}: {}", share(depth.batches - 3));
}

#[test]
fn a_step_waits_for_the_slowest_of_all_its_reads() {
    // Each read is slow once in a hundred times; of eight at once one is in 7.7 % of all steps.
    let throughput = Throughput::constant(BytesPerSecond(0));
    let rare = latency(&[(990_000, MS), (990_001, 15 * MS), (1_000_000, 15 * MS)]);
    let link = link(&throughput, &rare, 8);
    let load =
        |reads| Load { samples: reads, reads, read_len: Bytes(1), step_time: Nanoseconds(10 * MS) };
    let in_time = |reads| least(&load(reads), &link, PerMillion(1), 100).unwrap().in_time.0;
    assert!((980_000..991_000).contains(&in_time(1)), "{}", in_time(1));
    assert!((900_000..924_000).contains(&in_time(8)), "{}", in_time(8));
}

#[test]
fn what_staging_memory_cannot_hold_is_refused_with_what_it_achieves() {
    let throughput = Throughput::constant(BytesPerSecond(0));
    let rare = latency(&[(990_000, MS), (990_001, 50 * MS), (1_000_000, 50 * MS)]);
    let link = link(&throughput, &rare, 1);
    let load = Load { samples: 1, reads: 1, read_len: Bytes(1), step_time: Nanoseconds(10 * MS) };
    let staged_max = deepest(Bytes::mib(8), Bytes::mib(3));
    assert_eq!(staged_max, 2);
    let wanted = PerMillion(999_000);
    let refused = least(&load, &link, wanted, staged_max).unwrap_err();
    let Shortfall::TooShallow { in_time, .. } = refused else { panic!("{refused}") };
    assert_eq!(refused, Shortfall::TooShallow { staged_max, in_time, wanted });
    let reached = least(&load, &link, in_time, staged_max);
    assert_eq!(reached, Ok(Depth { batches: 2, in_time }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_are_in_time_as_often_as_was_asked_for(
        median in 1_u64..20,
        tail in 1_u64..40,
        longest in 1_u64..10,
        reads in 1_u32..40,
        threads in 1_u32..12,
        slack in 11_u64..30,
        wanted in prop::sample::select(vec![900_000_u32, 990_000, 999_000]),
    ) {
        let quantiles = [
            (500_000, median * MS),
            (990_000, (median + tail) * MS),
            (1_000_000, (median + tail) * longest * MS),
        ];
        let (throughput, spread) =
            (Throughput::constant(BytesPerSecond(1_000_000_000)), latency(&quantiles));
        let link = link(&throughput, &spread, threads);
        let each = spread.mean().0 + u64::from(threads.min(reads)) * 100_000;
        let busy = each * u64::from(reads.div_ceil(threads.min(reads)));
        let load =
            Load { samples: reads, reads, read_len: Bytes(100_000), step_time: Nanoseconds(busy * slack / 10) };
        let wanted = PerMillion(wanted);
        let found = least(&load, &link, wanted, DEPTH_MAX);
        let Ok(depth) = found else {
            // A queue close to saturation may need more than the grid holds.
            prop_assert!(slack < 14, "{found:?}");
            return Ok(());
        };
        prop_assert!(depth.in_time >= wanted);
        let share = played(&load, &link, depth.batches, 20_000);
        // Five standard deviations of 20 000 draws, which come in clusters of some ten.
        let late = 1.0 - f64::from(wanted.0) / 1e6;
        let tolerance = 5.0 * (late * 10.0 / 20_000.0).sqrt();
        prop_assert!(share >= 1.0 - late - tolerance, "{depth:?}: {share}");
    }
}

/// Plays steps whose samples are read at once and then transformed by threads that take one after the
/// other. Returns the share of batches that were ready.
fn played_transforms(load: &Load, transforming: &Transforming<'_>, depth: u32, steps: u64) -> f64 {
    let mut free_at = vec![0_u64; transforming.threads.get() as usize];
    let mut draws = Draws::of(3, u64::from(depth));
    let mut ready = 0_u32;
    for step in 0..steps {
        let placed = step * load.step_time.0;
        let mut last = placed;
        for _ in 0..load.samples {
            let thread = free_at.iter_mut().min().unwrap();
            *thread = (*thread).max(placed) + transforming.time.draw(&mut draws).0;
            last = last.max(*thread);
        }
        ready += u32::from(last <= placed + u64::from(depth - 1) * load.step_time.0);
    }
    f64::from(ready) / f64::from(u32::try_from(steps).unwrap())
}

fn least_transforming(
    load: &Load,
    time: &LatencyQuantiles,
    threads: u32,
) -> Result<Depth, Shortfall> {
    let unlimited = Throughput::constant(BytesPerSecond(0));
    let at_once = LatencyQuantiles::constant(Nanoseconds(0));
    let transforming = Transforming { threads: NonZeroU32::new(threads).unwrap(), time };
    let link = link(&unlimited, &at_once, 8);
    super::least(load, &link, Some(&transforming), PerMillion(990_000), 100)
}

#[test]
fn transforms_of_the_same_mean_need_more_depth_the_wider_they_spread() {
    let load = Load { samples: 8, reads: 0, read_len: Bytes(0), step_time: Nanoseconds(20 * MS) };
    // 3 ms on average: all alike; one of 20 takes 22 ms; one of 100 takes 102 ms.
    let even = LatencyQuantiles::constant(Nanoseconds(3 * MS));
    let wide = latency(&[(950_000, 2 * MS), (950_001, 22 * MS), (1_000_000, 22 * MS)]);
    let wider = latency(&[(990_000, 2 * MS), (990_001, 102 * MS), (1_000_000, 102 * MS)]);
    let depths = [even, wide, wider].map(|time| {
        let depth = least_transforming(&load, &time, 2).unwrap();
        let transforming = Transforming { threads: NonZeroU32::new(2).unwrap(), time: &time };
        let share = |depth| played_transforms(&load, &transforming, depth, 20_000);
        assert!(share(depth.batches) >= 0.989, "{depth:?}: {}", share(depth.batches));
        depth.batches
    });
    assert!(depths[0] == 2 && depths[1] > 3 && depths[2] > depths[1] + 3, "{depths:?}");
}

#[test]
fn transforms_wait_for_what_is_read_before() {
    let load = Load { samples: 4, reads: 4, read_len: Bytes(1), step_time: Nanoseconds(10 * MS) };
    let unlimited = Throughput::constant(BytesPerSecond(0));
    let late = LatencyQuantiles::constant(Nanoseconds(25 * MS));
    let time = LatencyQuantiles::constant(Nanoseconds(4 * MS));
    let transforming = Transforming { threads: NonZeroU32::new(2).unwrap(), time: &time };
    let link = link(&unlimited, &late, 12);
    let of = |transforming| super::least(&load, &link, transforming, PerMillion::ALL, 100).unwrap();
    assert_eq!((of(None).batches, of(Some(&transforming)).batches), (4, 5));
}

#[test]
fn transforms_that_take_longer_than_the_steps_have_no_depth() {
    let load = Load { samples: 8, reads: 0, read_len: Bytes(0), step_time: Nanoseconds(20 * MS) };
    let time = LatencyQuantiles::constant(Nanoseconds(5 * MS));
    let (busy, step_time) = (Nanoseconds(20 * MS), load.step_time);
    let slow = least_transforming(&load, &time, 2);
    assert_eq!(slow, Err(Shortfall::TransformsTooSlow { busy, step_time }));
    assert!(least_transforming(&load, &time, 3).is_ok());
}

#[test]
fn threads_that_a_step_does_not_divide_by_keep_up_as_well_as_their_mean_says() {
    let step_time = Nanoseconds(10 * MS);
    // Eight of 5.5 ms on five threads are 8.8 ms of each, three of 15 ms are 9 ms.
    for (samples, time, batches) in [(8, 5_500_000, 3), (3, 15 * MS, 3)] {
        let load = Load { samples, reads: 0, read_len: Bytes(0), step_time };
        let time = LatencyQuantiles::constant(Nanoseconds(time));
        let depth = least_transforming(&load, &time, 5).unwrap();
        assert_eq!(depth.batches, batches, "{load:?}");
        let transforming = Transforming { threads: NonZeroU32::new(5).unwrap(), time: &time };
        assert!(played_transforms(&load, &transforming, batches, 20_000) >= 0.99);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn so_many_batches_are_in_time_as_often_as_was_asked_for_also_when_they_are_transformed(
        samples in 1_u32..12,
        threads in 1_u32..5,
        long in 2_u64..40,
        one_of in 20_u32..200,
        slack in 13_u64..30,
    ) {
        let rare = 1_000_000 - 1_000_000 / one_of;
        let time = latency(&[(rare, MS), (rare + 1, long * MS), (1_000_000, long * MS)]);
        let busy = time.mean().0 * u64::from(samples) / u64::from(threads);
        let step_time = Nanoseconds(busy * slack / 10);
        let load = Load { samples, reads: 0, read_len: Bytes(0), step_time };
        let found = least_transforming(&load, &time, threads);
        let Ok(depth) = found else {
            // A few long ones in a row may last longer than all that can be staged.
            prop_assert!(long * MS * 10 > 100 * step_time.0, "{found:?} {load:?}");
            return Ok(());
        };
        let threads = NonZeroU32::new(threads).unwrap();
        let transforming = Transforming { threads, time: &time };
        let share = played_transforms(&load, &transforming, depth.batches, 200_000);
        prop_assert!(share >= 0.985, "{depth:?}: {share}");
    }
}
