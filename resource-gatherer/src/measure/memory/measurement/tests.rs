//! A measurement on this machine: disturbed by script, and short of time.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use tierfeed_numa_memory::affinity;

use super::*;
use crate::{
    inventory::Inventory,
    measure::{
        clock::SystemClock,
        limits::{Limits, Pairs},
        memory::{self, cores},
    },
    sysroot::Sysroot,
};

const LIMITS: Limits = Limits {
    total: Nanoseconds(u64::MAX),
    cell: Nanoseconds(5_000_000),
    memory: Nanoseconds(u64::MAX),
    sample: Nanoseconds(200_000),
    buffer_min: Bytes::mib(4),
    buffer_max: Bytes::mib(4),
    random_buffer: Bytes::mib(2),
    chunk: Bytes::mib(2),
    file: Bytes::mib(8),
    pairs: Pairs::BestInitiator,
};

/// The real clock of a machine on which the thread gets half of each slice of time.
struct Halved(SystemClock);

impl Clock for Halved {
    fn wall(&mut self) -> Nanoseconds {
        self.0.wall()
    }
    fn thread_cpu(&mut self) -> Nanoseconds {
        Nanoseconds(self.0.wall().0 / 2)
    }
}

fn measured(time: Nanoseconds) -> Result<Outcome, MemoryError> {
    measured_until(time, None)
}

/// Measures with this much time, of which nothing is left once the part `end` begins.
fn measured_until(time: Nanoseconds, end: Option<Part>) -> Result<Outcome, MemoryError> {
    let inventory = Inventory::read(Sysroot::live()).unwrap();
    let pair = memory::pairs(&inventory, Pairs::BestInitiator)[0];
    let cores = cores::of_node(pair.initiator, Sysroot::live()).unwrap();
    let stop = AtomicBool::new(false);
    let allotment = Allotment::new(SystemClock.wall(), time, &stop);
    let place = memory::locality(&inventory, pair.target);
    let sysroot = Sysroot::live();
    let task =
        Task { inventory: &inventory, sysroot, pair, limits: &LIMITS, allotment, knee: None };
    let run = || {
        let mut clock = Halved(SystemClock);
        affinity::pin_current_thread(&cores[..1]).unwrap();
        let begin = |part| stop.store(Some(part) == end, Ordering::Relaxed);
        Measurement::new(&task, &cores, place, &mut clock).run(&begin)
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[test]
fn a_thread_that_gets_half_of_the_cpu_is_flagged_and_timed_by_what_it_got() {
    let outcome = measured(Nanoseconds(60_000_000_000)).unwrap();
    let figures = outcome.pair.figures();
    assert!(figures.idle_latency_ns.unwrap().contended && figures.quality().contended);
    let by_one = outcome.pair.bandwidth.iter().filter(|it| it.threads == 1);
    assert!(by_one.clone().count() >= 8 && by_one.clone().all(|it| it.bytes_per_s.contended));
}

#[test]
fn the_bandwidth_that_a_tier_needs_is_measured_before_chains_take_the_time() {
    let minute = Nanoseconds(60_000_000_000);
    let outcome = measured_until(minute, Some(Part::Latency)).unwrap();
    let figures = outcome.pair.figures();
    for rate in [figures.read_bytes_per_s, figures.write_bytes_per_s, figures.copy_bytes_per_s] {
        assert!(rate.is_some(), "{outcome:?}");
    }
    assert_eq!(figures.idle_latency_ns, None);
    let first = &outcome.skipped[0];
    assert!(first.what.starts_with("latency") && first.why == "out of time", "{first:?}");
}

#[test]
fn what_does_not_fit_is_named_and_what_a_tier_needs_comes_first() {
    let error = measured(Nanoseconds(0)).unwrap_err();
    assert!(matches!(error, MemoryError::OutOfTime), "{error}");
    // As little time as suffices for a first figure on this machine.
    let outcome = (0..10).find_map(|doubled| measured(Nanoseconds(60_000_000 << doubled)).ok());
    let outcome = outcome.expect("a minute suffices for one figure");
    let measured: Vec<Traffic> = outcome.pair.bandwidth.iter().map(|it| it.traffic).collect();
    let is_named = |what: &str| outcome.skipped.iter().any(|it| it.what.starts_with(what));
    assert!(measured.contains(&Traffic::Add) != is_named("scale and add by one"));
    assert!(outcome.skipped.iter().all(|it| it.what.contains("NUMA node")));
}
