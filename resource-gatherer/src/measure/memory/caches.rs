//! Finds what the last-level cache really holds, by how latency grows with what is walked over.
//!
//! A hypervisor states the cache of the machine, of which a guest may have a tenth: on one that stated
//! 36 MB, 8 MB already cost as much as memory. So in a guest the knee counts, elsewhere the larger of
//! knee and statement.

use std::hint::black_box;

use tierfeed_core::{tier::Locality, units::Bytes};

use super::{
    MemoryError,
    latency::{buffer_of, local_chain},
};
use crate::{
    figures::estimate::to_f64,
    measure::{allotment::Allotment, clock::Clock, sampler},
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    pub(super) footprint: Bytes,
    /// The best of a few short runs.
    pub(super) latency_ns: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Knee {
    pub(super) cache: Bytes,
    /// Whether latency still grew at the end, so that the caches may hold more than was walked over.
    pub(super) is_open: bool,
}

const FIRST: Bytes = Bytes::mib(1);

/// Where latency is below this share of the memory's, the caches serve most of the walk.
const CACHED_MAX: f64 = 0.6;

/// Where latency at half the footprint is below this share, half of it mattered.
const LEVEL_MIN: f64 = 0.85;

/// Walks over 1 MiB, 2 MiB and so on, up to half of `most`, as long as there is time.
pub(super) fn sweep(
    place: Locality,
    most: Bytes,
    clock: &mut impl Clock,
    allotment: Allotment<'_>,
) -> Result<Vec<Reading>, MemoryError> {
    let mut readings = Vec::new();
    let mut footprint = FIRST;
    while footprint.0 <= most.0 / 2 && allotment.goes_on(clock.wall()) {
        let latency_ns = read(place, footprint, clock)?;
        readings.push(Reading { footprint, latency_ns });
        footprint = Bytes(footprint.0 * 2);
    }
    Ok(readings)
}

fn read(place: Locality, footprint: Bytes, clock: &mut impl Clock) -> Result<f64, MemoryError> {
    const RUNS: usize = 3;
    const HOPS_MAX: u64 = 32 << 10;
    let (mut chain, _) = local_chain(place, buffer_of(footprint))?;
    // Once around, so that what the caches can hold is in them.
    black_box(chain.chase(chain.cycle_hops()));
    let hops = chain.cycle_hops().min(HOPS_MAX);
    let mut best = u64::MAX;
    for _ in 0..RUNS {
        let sample = sampler::time(clock, || {
            black_box(chain.chase(hops));
        });
        best = best.min(sample.thread_cpu.0);
    }
    Ok(to_f64(best) / to_f64(hops))
}

/// Finds the caches in front of memory of which a load takes `memory_ns`.
pub(super) fn knee(readings: &[Reading], memory_ns: f64) -> Option<Knee> {
    let last = readings.last()?;
    let is_cached = |reading: &&Reading| reading.latency_ns < CACHED_MAX * memory_ns;
    let cached = readings.iter().rev().find(is_cached);
    Some(Knee {
        // Nothing smaller is walked over; it is more than any private cache that matters.
        cache: cached.map_or(FIRST, |reading| reading.footprint),
        is_open: last.latency_ns < LEVEL_MIN * memory_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(latencies_ns: &[f64]) -> Vec<Reading> {
        let reading = |(index, latency_ns): (usize, &f64)| Reading {
            footprint: Bytes::mib(1 << index),
            latency_ns: *latency_ns,
        };
        latencies_ns.iter().enumerate().map(reading).collect()
    }

    #[test]
    fn the_knee_is_the_last_size_that_the_caches_serve() {
        let found = knee(&readings(&[14.0, 20.0, 40.0, 95.0, 104.0, 105.0]), 105.0);
        assert_eq!(found, Some(Knee { cache: Bytes::mib(4), is_open: false }));
    }

    #[test]
    fn a_cache_that_is_stated_but_not_there_is_not_found() {
        let found = knee(&readings(&[120.0, 128.0, 111.0, 107.0]), 110.0).unwrap();
        assert_eq!((found.cache, found.is_open), (FIRST, false));
    }

    #[test]
    fn latency_that_still_grows_leaves_the_knee_open() {
        let found = knee(&readings(&[14.0, 14.0, 15.0, 40.0, 70.0]), 100.0).unwrap();
        assert_eq!((found.cache, found.is_open), (Bytes::mib(8), true));
    }

    #[test]
    fn without_readings_there_is_no_knee() {
        assert_eq!(knee(&[], 100.0), None);
    }
}
