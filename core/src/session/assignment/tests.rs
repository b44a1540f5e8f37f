//! Divisions of threads against all others, and Algorithm 1 of Lobster worked by hand.

use core::num::NonZeroU32;
use std::string::ToString;

use proptest::prelude::*;

use super::*;
use crate::{throughput::Throughput, units::BytesPerSecond};

/// All ways to give `threads` to `queues` queues.
fn divisions(queues: usize, threads: u32) -> Vec<Vec<u32>> {
    if queues == 0 {
        return if threads == 0 { vec![Vec::new()] } else { Vec::new() };
    }
    let with_first = |first: u32| {
        divisions(queues - 1, threads - first).into_iter().map(move |mut rest| {
            rest.insert(0, first);
            rest
        })
    };
    (0..=threads).flat_map(with_first).collect()
}

/// The load for each thread of the queue that is worst off, times 2520 so that it is whole.
fn worst(loads: &[u64], counts: &[u32]) -> u64 {
    let each = |(load, count): (&u64, &u32)| match (load, count) {
        (0, _) => 0,
        (_, 0) => u64::MAX,
        (load, count) => load * 2520 / u64::from(*count),
    };
    loads.iter().zip(counts).map(each).max().unwrap_or(0)
}

#[test]
fn no_division_has_a_faster_slowest_queue() {
    let mut cases = 0;
    for threads in 0..=7 {
        let divisions = divisions(3, threads);
        for code in 0..512_u64 {
            let loads = [code % 8, code / 8 % 8, code / 64];
            let counts = proportional(&loads, threads);
            let least = divisions.iter().map(|other| worst(&loads, other)).min().unwrap();
            assert_eq!(worst(&loads, &counts), least, "invariant 1: {loads:?} {counts:?}");
            let given = if code == 0 { 0 } else { threads };
            assert_eq!(counts.iter().sum::<u32>(), given, "{loads:?}");
            cases += 1;
        }
    }
    assert_eq!(cases, 4096);
}

fn threads(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

/// 100 MB/s a thread, up to eight.
fn cold_store() -> Throughput {
    let rate = |count: u32| (threads(count), BytesPerSecond(100_000_000 * u64::from(count)));
    Throughput::measured(&[rate(1), rate(8)]).unwrap()
}

/// Two ranks with as many requests; one has 24 MB to read cold, the other 4.
fn straggler() -> [Queue; 2] {
    [24_000_000, 4_000_000].map(|cold| Queue {
        requests: 10,
        cold: Bytes(cold),
        ..Queue::default()
    })
}

fn found(reading: Reading) -> Vec<u32> {
    let memory = Throughput::constant(BytesPerSecond(10_000_000_000));
    let cold = cold_store();
    let costs = Costs {
        local: &memory,
        remote: &memory,
        cold: &cold,
        training: Nanoseconds(40_000_000),
        threshold: Nanoseconds(1_000_000),
    };
    lobster(&straggler(), &costs, 8, reading)
}

#[test]
fn lobster_finds_the_count_with_which_loading_takes_as_long_as_training() {
    // 24 MB in 40 ms are 600 MB/s: six threads. 4 MB in 40 ms are one.
    assert_eq!(found(Reading::Described), [6, 1]);
}

#[test]
fn lobster_as_printed_tries_one_other_count_and_gives_no_thread_up() {
    // Rank 0 with 4 threads lacks 20 ms: line 13 raises the lower bound to 4, line 16 tries 6, which
    // fits. Rank 1 with 4 threads has 30 ms to spare: lines 15 and 16 try 2, which leaves 20, then
    // lines 15 and 16 try 2 again, until line 10 ends it; line 18 prefers the 30 ms of 4 threads.
    assert_eq!(found(Reading::Printed), [6, 4]);
}

#[test]
fn a_queue_with_nothing_to_load_needs_no_thread() {
    let memory = Throughput::constant(BytesPerSecond(0));
    let cold = cold_store();
    let costs = Costs {
        local: &memory,
        remote: &memory,
        cold: &cold,
        training: Nanoseconds(40_000_000),
        threshold: Nanoseconds(1_000_000),
    };
    let queues = [Queue::default(), Queue { requests: 3, cold: Bytes(1), ..Queue::default() }];
    let requests = queues.map(|queue| queue.requests);
    assert_eq!(proportional(&requests, 4), [0, 4]);
    assert_eq!(lobster(&queues, &costs, 4, Reading::Described)[0], 0);
}

#[test]
fn names_are_read_back() {
    for rule in Assignment::ALL {
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
    assert_eq!("Lobster".parse::<Assignment>(), Err(UnknownAssignment));
}

/// A scaling of `cores` that each get `rate` bytes done in a second, observed with 1 to 16 threads.
fn on_cores(cores: u64, rate: u64, len: u64) -> Scaling {
    let mut scaling = Scaling::default();
    for count in 1..=16 {
        let time = len * 1_000_000_000 / rate * u64::from(count).max(cores) / cores;
        (0..10).for_each(|_| scaling.observe(count, Bytes(len), Nanoseconds(time)));
    }
    scaling
}

/// Batches of 100 samples of 100 kB, read at 1 MB/s a thread from far away, transformed at `rate` by each of
/// four cores, one for each of two ranks; 12 threads in all.
fn staged(rate: u64, training_ms: u64) -> Stages {
    let rates = Rates {
        cold: on_cores(64, 1_000_000, 100_000),
        transforms: on_cores(4, rate, 100_000),
        ..Rates::default()
    };
    let training = Nanoseconds(training_ms * 1_000_000);
    let queue = Queue {
        requests: 100,
        cold: Bytes(10_000_000),
        samples: 100,
        transforms: 100,
        ..Queue::default()
    };
    stages(&[queue; 2], &rates, training, Threads { all: 12, transforming_max: 8 })
}

fn sum(counts: &[u32]) -> u32 {
    counts.iter().sum()
}

#[test]
fn where_loading_is_short_threads_are_taken_from_transforming() {
    // Transforms are done at 100 MB/s, so that nearly all threads load.
    let found = staged(25_000_000, 100);
    assert_eq!((found.transforming_all, sum(&found.loading)), (1, 11), "{found:?}");
}

#[test]
fn where_transforming_is_short_as_many_transform_as_get_the_most_done() {
    // Four cores at 100 kB/s each: 50 s a batch and rank; loading takes 2.5 s.
    let found = staged(100_000, 100);
    assert_eq!((found.transforming_all, sum(&found.loading)), (4, 8), "{found:?}");
    assert_eq!(sum(&found.transforming), 4);
}

#[test]
fn where_training_is_slow_nothing_is_taken_from_transforming() {
    let found = staged(25_000_000, 60_000);
    assert_eq!(found.transforming_all, 4, "{found:?}");
}

#[test]
fn threads_that_transform_serve_the_rank_with_more_to_transform() {
    let rates = Rates { transforms: on_cores(8, 1_000_000, 100_000), ..Rates::default() };
    let training = Nanoseconds(1_000_000_000);
    let queue = |samples: u64| Queue {
        cold: Bytes(samples * 100_000),
        samples,
        transforms: samples,
        ..Queue::default()
    };
    let threads = Threads { all: 16, transforming_max: 8 };
    let found = stages(&[queue(60), queue(20)], &rates, training, threads);
    // 6 MB and 2 MB in a second, at 1 MB/s a thread.
    assert_eq!((found.transforming, found.transforming_all), (vec![6, 2], 8));
}

#[test]
fn without_transforms_all_threads_load() {
    let training = Nanoseconds(1_000_000);
    let queue = Queue { requests: 5, cold: Bytes(1), ..Queue::default() };
    let threads = Threads { all: 6, transforming_max: 0 };
    let found = stages(&[queue; 3], &Rates::default(), training, threads);
    assert!(found.transforming.is_empty() && sum(&found.loading) <= 6, "{found:?}");
}

prop_compose! {
    fn any_queue()(
        requests in 0_u64..100,
        bytes in prop::array::uniform3(0_u64..100_000_000),
        preprocessing in 0_u64..100_000_000,
    ) -> Queue {
        let [local, remote, cold] = bytes.map(Bytes);
        let preprocessing = Nanoseconds(preprocessing);
        Queue { requests, local, remote, cold, preprocessing, ..Queue::default() }
    }
}

proptest! {
    #[test]
    fn lobster_ends_and_never_leaves_a_queue_farther_off_than_it_began(
        queues in prop::collection::vec(any_queue(), 1..9),
        rates in prop::collection::vec(1_u64..2_000_000_000, 1..6),
        all in 0_u32..40,
        training in 0_u64..100_000_000,
        threshold in 0_u64..10_000_000,
    ) {
        let points: Vec<_> =
            (1..).zip(rates).map(|(count, rate)| (threads(count), BytesPerSecond(rate))).collect();
        let table = Throughput::measured(&points).unwrap();
        let costs = Costs {
            local: &table,
            remote: &table,
            cold: &table,
            training: Nanoseconds(training),
            threshold: Nanoseconds(threshold),
        };
        let requests: Vec<u64> = queues.iter().map(|queue| queue.requests).collect();
        let initial = proportional(&requests, all);
        let described = lobster(&queues, &costs, all, Reading::Described);
        let printed = lobster(&queues, &costs, all, Reading::Printed);
        for (at, queue) in queues.iter().enumerate() {
            let difference = |count| costs.difference(queue, count);
            let before = difference(initial[at]);
            prop_assert!(difference(described[at]).unsigned_abs() <= before.unsigned_abs());
            prop_assert!(difference(printed[at]) >= before, "line 18");
            prop_assert!(described[at] <= all && printed[at] <= all);
        }
        prop_assert!(sum(&fitting(described, all)) <= all, "invariant 2");
    }

    #[test]
    fn both_stages_together_have_no_more_threads_than_there_are(
        queues in prop::collection::vec(any_queue(), 1..5),
        seen in prop::collection::vec((1_u32..40, 1_u64..1_000_000, 1_u64..1_000_000_000), 0..30),
        all in 1_u32..40,
        transforming_max in 0_u32..40,
        training in 0_u64..100_000_000,
    ) {
        let mut rates = Rates::default();
        for (at, (count, len, time)) in seen.into_iter().enumerate() {
            let Rates { local, remote, cold, transforms } = &mut rates;
            let scaling = [local, remote, cold, transforms].into_iter().nth(at % 4).unwrap();
            scaling.observe(count, Bytes(len), Nanoseconds(time));
        }
        let training = Nanoseconds(training);
        let found = stages(&queues, &rates, training, Threads { all, transforming_max });
        prop_assert_eq!(found.loading_all + found.transforming_all, all);
        prop_assert!(sum(&found.loading) <= found.loading_all, "invariant 2: {:?}", found);
        prop_assert!(sum(&found.transforming) <= found.transforming_all);
    }
}
