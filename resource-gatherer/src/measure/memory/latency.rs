//! The chains of the two latencies: one that the TLB holds, one that nothing holds.
//!
//! A chain visits one line of every 256 B, so it needs only a quarter of its buffer's lines from the
//! caches: that quarter, its *footprint*, is what is compared with them.

use std::hint::black_box;

use tierfeed_core::{
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::{
    Pages,
    kernels::{Chain, ChainShape, HOPS_PER_ROUND, LINE_BYTES},
};

use super::{MemoryError, arrays::verified};
use crate::{
    figures::estimate::{Estimate, to_f64},
    measure::{
        cell::{Cell, Occupation, StopRule},
        clock::Clock,
        sampler::{self, Workload},
    },
};

/// The stride of [`ChainShape::tlb_local`] in cache lines.
const STRIDE_LINES: u64 = ChainShape::tlb_local(0).stride.0 / LINE_BYTES as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Near hops on huge pages.
    Local,
    /// Hops anywhere on small pages.
    Random,
}

/// The chains, each with the number of hops in a sample.
#[derive(Debug)]
pub(crate) struct Walks {
    local: (Chain, u64),
    random: Option<(Chain, u64)>,
}

/// The length of the buffer for a chain with this footprint.
pub(super) fn buffer_of(footprint: Bytes) -> Bytes {
    Bytes(footprint.0.saturating_mul(STRIDE_LINES))
}

/// The footprint of a chain in a buffer of this length.
pub(super) fn footprint_of(buffer: Bytes) -> Bytes {
    Bytes(buffer.0 / STRIDE_LINES)
}

/// A chain near enough for the TLB, and the bytes of its buffer in huge pages, if the kernel tells.
pub(super) fn local_chain(
    place: Locality,
    len: Bytes,
) -> Result<(Chain, Option<Bytes>), MemoryError> {
    let buffer = verified(place, len, Pages::Huge)?;
    let huge = buffer.huge_page_bytes().map(|huge| huge.min(len));
    Ok((Chain::build(buffer, ChainShape::tlb_local(1))?, huge))
}

/// A chain through all of a buffer on small pages.
pub(super) fn random_chain(place: Locality, len: Bytes) -> Result<Chain, MemoryError> {
    let buffer = verified(place, len, Pages::Small)?;
    Ok(Chain::build(buffer, ChainShape::worst_case(len, 1))?)
}

impl Walks {
    /// Chains whose samples take about `sample`.
    pub(crate) fn new(
        local: Chain,
        random: Option<Chain>,
        clock: &mut impl Clock,
        sample: Nanoseconds,
    ) -> Self {
        let mut calibrated = |mut chain| {
            let hops = hops_for(&mut chain, clock, sample);
            (chain, hops)
        };
        Self { local: calibrated(local), random: random.map(calibrated) }
    }

    pub(crate) fn latency(&self, walk: Walk, time: Estimate) -> Estimate {
        let (_, hops) = match (walk, &self.random) {
            (Walk::Random, Some(random)) => random,
            _ => &self.local,
        };
        time.divided_by(to_f64(*hops))
    }

    pub(crate) fn into_local(self) -> Chain {
        self.local.0
    }
}

pub(crate) fn cells(walks: &[Walk], time: Nanoseconds) -> Vec<(Walk, Cell)> {
    let rule = StopRule { half_width: HALF_WIDTH, samples_min: 10, samples_max: 100, time };
    walks.iter().map(|walk| (*walk, Cell::new(rule, Occupation::Computes))).collect()
}

pub(crate) const HALF_WIDTH: f64 = 0.01;

/// The number of hops that take about `time`, by a short trial.
pub(super) fn hops_for(chain: &mut Chain, clock: &mut impl Clock, time: Nanoseconds) -> u64 {
    const TRIAL_HOPS: u64 = 16 * 1024;
    let trial = sampler::time(clock, || {
        black_box(chain.chase(TRIAL_HOPS));
    });
    // By CPU time: a trial that had to wait for the CPU would make samples so short that they fit between
    // two waits and look undisturbed.
    let took = trial.thread_cpu.0.max(1);
    let hops = u128::from(time.0) * u128::from(TRIAL_HOPS) / u128::from(took);
    let hops = u64::try_from(hops).unwrap_or(u64::MAX).clamp(1024, 1 << 24);
    hops.next_multiple_of(HOPS_PER_ROUND)
}

impl Workload for Walks {
    type Kernel = Walk;

    fn run(&mut self, walk: Walk) {
        let (chain, hops) = match (walk, &mut self.random) {
            (Walk::Random, Some(random)) => random,
            _ => &mut self.local,
        };
        black_box(chain.chase(*hops));
    }
}
