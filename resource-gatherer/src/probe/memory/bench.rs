//! The buffers on one memory node and the kernels that run on them, in turn, by one thread.

use std::{convert::Infallible, hint::black_box, ops::Range};

use tierfeed_core::{
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::{
    Anonymous, Pages, Placement,
    kernels::{self, Chain, ChainShape},
};

use super::MemoryError;
use crate::{
    probe::{
        cell::{Cell, StopRule},
        clock::Clock,
        estimate::{Estimate, to_f64},
        sampler::{Sampler, Workload},
    },
    report::Figures,
};

/// How many buffers of equal length there are.
pub(super) const BUFFER_COUNT: u64 = 4;

/// Buffers are multiples of this: every eighth of them has whole groups of the chain.
pub(super) const BUFFER_UNIT: Bytes = Bytes(GROUP.0 * SLICE_COUNT as u64);

const SLICE_COUNT: usize = 8;
const STRIDE: Bytes = Bytes(256);
const GROUP: Bytes = Bytes(256 << 10);

/// What is run on a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    Chase,
    Read,
    Write,
    Copy,
    Triad,
}

impl Kernel {
    pub(super) const ALL: [Self; 5] =
        [Self::Chase, Self::Read, Self::Write, Self::Copy, Self::Triad];

    /// When its samples are enough.
    pub(super) fn rule(self, time: Nanoseconds) -> StopRule {
        let half_width = if self == Self::Chase { 0.01 } else { 0.02 };
        StopRule { half_width, samples_min: 10, samples_max: 100, time }
    }
}

/// The buffers on one node and the kernels that run on them.
pub(super) struct Bench {
    chain: Chain,
    hops: u64,
    to: Anonymous,
    first: Anonymous,
    second: Anonymous,
    turn: usize,
}

impl Bench {
    /// Allocates the buffers, each `len` long, and makes the chain.
    pub(super) fn allocate(locality: Locality, len: Bytes) -> Result<Self, MemoryError> {
        let buffer = || {
            let buffer = Anonymous::allocate(len, locality, Pages::Huge)?;
            match buffer.placement() {
                Placement::Unverified { .. } => Err(MemoryError::Unverified),
                _ => Ok(buffer),
            }
        };
        let shape = ChainShape { stride: STRIDE, group: GROUP, seed: 1 };
        let chain = Chain::build(buffer()?, shape)?;
        let (to, first, second) = (buffer()?, buffer()?, buffer()?);
        Ok(Self { chain, hops: 0, to, first, second, turn: 0 })
    }

    /// Finds how many hops make one sample.
    pub(super) fn calibrate<C: Clock>(
        &mut self,
        sampler: &mut Sampler<'_, C>,
        sample: Nanoseconds,
    ) {
        const TRIAL_HOPS: u64 = 16 * 1024;
        let Ok(trial) = sampler.time(|| {
            self.chain.chase(TRIAL_HOPS);
            Ok::<(), Infallible>(())
        });
        let hops = u128::from(sample.0) * u128::from(TRIAL_HOPS) / u128::from(trial.wall.0.max(1));
        let hops = u64::try_from(hops).unwrap_or(u64::MAX).clamp(1024, 1 << 24);
        self.hops = hops.next_multiple_of(kernels::HOPS_PER_ROUND);
    }

    /// The eighth of the buffers that is next, as a range of words. Turns go in steps of three, so that
    /// a kernel does not meet the eighth that the kernel before it has just left in the caches.
    fn next_slice(&mut self) -> Range<usize> {
        self.turn += 1;
        let len = self.to.words().len() / SLICE_COUNT;
        let index = self.turn * 3 % SLICE_COUNT;
        index * len..(index + 1) * len
    }

    fn slice_bytes(&self) -> f64 {
        to_f64(self.to.len().0 / SLICE_COUNT as u64)
    }

    /// The figures that the samples of its kernels give.
    pub(super) fn figures(&self, cells: &[(Kernel, Cell)]) -> Figures {
        let time = |kernel| -> Option<Estimate> {
            cells.iter().find(|(found, _)| *found == kernel)?.1.estimate()
        };
        let rate =
            |kernel, arrays: f64| Some(time(kernel)?.per_second(arrays * self.slice_bytes()));
        Figures {
            idle_latency_ns: time(Kernel::Chase).map(|time| time.divided_by(to_f64(self.hops))),
            read_bytes_per_s: rate(Kernel::Read, 1.0),
            write_bytes_per_s: rate(Kernel::Write, 1.0),
            copy_bytes_per_s: rate(Kernel::Copy, 1.0),
            triad_bytes_per_s: rate(Kernel::Triad, 3.0),
            ..Figures::default()
        }
    }
}

impl Workload for Bench {
    type Kernel = Kernel;
    type Error = Infallible;

    fn prepare(&mut self, _: Kernel) -> Result<(), Self::Error> {
        Ok(())
    }

    fn run(&mut self, kernel: Kernel) -> Result<(), Self::Error> {
        if kernel == Kernel::Chase {
            black_box(self.chain.chase(self.hops));
            return Ok(());
        }
        let slice = self.next_slice();
        let to = &mut self.to.words_mut()[slice.clone()];
        let (first, second) = (&self.first.words()[slice.clone()], &self.second.words()[slice]);
        match kernel {
            Kernel::Chase | Kernel::Read => {
                black_box(kernels::read_sum(first));
            }
            Kernel::Write => kernels::fill(to, 1),
            Kernel::Copy => kernels::copy(to, second),
            Kernel::Triad => kernels::triad(to, first, second, 3.0),
        }
        Ok(())
    }
}
