//! Measures one memory node from the CPUs of another: idle latency, read, write, copy and triad.
//!
//! 1. The buffers are larger than the caches (4 x the last level), and smaller than what would hurt:
//!    together a quarter of what may be taken on the node.
//! 2. They are bound before they are touched, and their placement is read back; where the kernel put
//!    them elsewhere, or lets nobody look on a host with several nodes, there are no figures.
//! 3. The thread runs on the CPUs of the initiator only, one thread for all kernels.
//! 4. The chain is TLB-local (groups of 256 KiB) and has a stride of 256 B, which prefetchers that
//!    fetch the next or the neighbouring line do not follow.
//! 5. A bandwidth kernel works on an eighth of its buffers at a time and never twice in a row on the
//!    same eighth, so that samples are short and yet find nothing in the caches.
//!
//! Left for the full methodology: several threads, non-temporal stores, mixes, loaded latency, a
//! frequency guard, the knee of the caches instead of the size that the hypervisor states.

mod bench;

use std::{fmt, io, panic::resume_unwind, path::Path, thread};

use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::{AllocateError, affinity, capacity, kernels::ChainError};

use self::bench::{BUFFER_COUNT, BUFFER_UNIT, Bench, Kernel};
use super::{
    ProbeError,
    cell::{Cell, Occupation},
    clock::{Clock, SystemClock},
    place::Unmeasured,
    sampler::Sampler,
    settings::{Limits, Pairs},
};
use crate::{
    inventory::{Inventory, node::Node},
    report::Figures,
};

/// A reader and the memory that it reads.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'inventory> {
    /// The node whose CPUs read.
    pub initiator: &'inventory Node,
    /// The node whose memory is read.
    pub target: &'inventory Node,
    /// Whether these CPUs reach the memory best. Then all kernels run, else only latency and read.
    pub is_best: bool,
}

/// The figures of a pair.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// What was measured.
    pub figures: Figures,
    /// Set if the caches held too much of the buffers; then the figures sort nothing.
    pub cache_bound: Option<CacheBound>,
}

/// The buffers were too small for the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBound {
    /// The length of each buffer.
    pub buffer: Bytes,
    /// What the last-level caches hold.
    pub cache: Bytes,
}

impl fmt::Display for CacheBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buffer, cache } = self;
        write!(f, "cache bound: buffers of {buffer} are less than twice the caches of {cache}")
    }
}

/// Why a pair could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The node is too full.
    #[error("{available} can be taken on NUMA node {}, at least {ALLOCATABLE_MIN} are needed", node.0)]
    TooFull {
        /// The node.
        node: NumaNode,
        /// What may be taken there.
        available: Bytes,
    },
    /// How much is free on the node cannot be read.
    #[error("cannot read how much memory is free: {0}")]
    FreeMemory(#[source] io::Error),
    /// The buffers could not be allocated where they belong.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The kernel does not tell where the buffers are.
    #[error(
        "the kernel does not tell where the memory lies; allow move_pages or /proc/self/numa_maps"
    )]
    Unverified,
    /// None of the CPUs may be used.
    #[error("cannot run on the CPUs of NUMA node {}: {source}", node.0)]
    Affinity {
        /// The node.
        node: NumaNode,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The chain does not fit its buffer.
    #[error(transparent)]
    Chain(#[from] ChainError),
}

const ALLOCATABLE_MIN: Bytes = Bytes::mib(256);

/// The pairs to measure, the best initiator of each target first.
#[must_use]
pub fn pairs(inventory: &Inventory, pairs: Pairs) -> Vec<Pair<'_>> {
    let mut found = Vec::new();
    for target in inventory.memory_nodes() {
        let Some(best) = inventory.best_initiator(target) else { continue };
        found.push(Pair { initiator: best, target, is_best: true });
        if pairs == Pairs::All {
            let others =
                inventory.nodes.iter().filter(|it| !it.cpus.is_empty() && it.id != best.id);
            found.extend(others.map(|initiator| Pair { initiator, target, is_best: false }));
        }
    }
    found
}

/// Measures one of `pair_count` pairs on a thread of its own, whose affinity ends with it.
///
/// # Errors
///
/// Only a thread that cannot be started; whatever else fails is an answer.
pub fn measure(
    inventory: &Inventory,
    pair: &Pair<'_>,
    limits: &Limits,
    pair_count: usize,
) -> Result<Result<Measured, Unmeasured>, ProbeError> {
    let body = || measure_here(inventory, pair, limits, pair_count, &mut SystemClock);
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("tierfeed-probe".to_owned());
        let thread = thread.spawn_scoped(scope, body).map_err(ProbeError::Thread)?;
        let outcome = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok(outcome.map_err(Unmeasured::Memory))
    })
}

fn measure_here<C: Clock>(
    inventory: &Inventory,
    pair: &Pair<'_>,
    limits: &Limits,
    pair_count: usize,
    clock: &mut C,
) -> Result<Measured, MemoryError> {
    pin_to(pair.initiator)?;
    let cache = Bytes(inventory.last_level_cache_bytes(pair.initiator));
    let locality = match inventory.memory_nodes().count() {
        // The only node needs no binding, which a container may forbid, and no proof.
        1 => Locality::Anywhere,
        _ => Locality::Numa(NumaNode(pair.target.id)),
    };
    let buffer = buffer_len(pair.target, locality, cache, limits)?;
    let mut bench = Bench::allocate(locality, buffer)?;
    let mut sampler = Sampler::new(clock);
    bench.calibrate(&mut sampler, limits.sample);

    let kernels: &[Kernel] = if pair.is_best { &Kernel::ALL } else { &Kernel::ALL[..2] };
    let cell_count = u64::try_from(pair_count * kernels.len()).unwrap_or(u64::MAX).max(1);
    let time = Nanoseconds(limits.cell.0.min(limits.memory.0 / cell_count));
    let mut cells: Vec<(Kernel, Cell)> = kernels
        .iter()
        .map(|kernel| (*kernel, Cell::new(kernel.rule(time), Occupation::Computes)))
        .collect();
    let Ok(()) = sampler.fill(&mut bench, &mut cells);

    let is_bound = buffer.0 < 2 * cache.0;
    Ok(Measured {
        figures: bench.figures(&cells),
        cache_bound: is_bound.then_some(CacheBound { buffer, cache }),
    })
}

fn pin_to(node: &Node) -> Result<(), MemoryError> {
    let failed = |source| MemoryError::Affinity { node: NumaNode(node.id), source };
    let allowed = affinity::allowed_cpus().map_err(failed)?;
    let is_here = |cpu: &usize| u32::try_from(*cpu).is_ok_and(|cpu| node.cpus.contains(&cpu));
    let cpus: Vec<usize> = allowed.into_iter().filter(is_here).collect();
    affinity::pin_current_thread(&cpus).map_err(failed)
}

/// The length of each buffer: invariant 1.
fn buffer_len(
    target: &Node,
    locality: Locality,
    cache: Bytes,
    limits: &Limits,
) -> Result<Bytes, MemoryError> {
    let available =
        capacity::allocatable_bytes(Path::new("/"), locality).map_err(MemoryError::FreeMemory)?;
    if available < ALLOCATABLE_MIN {
        return Err(MemoryError::TooFull { node: NumaNode(target.id), available });
    }
    let wanted = limits.buffer_min.0.max(4 * cache.0).max(2 * target.memory_side_cache_bytes);
    let allowed = (available.0 / 4 / BUFFER_COUNT).min(limits.buffer_max.0);
    Ok(Bytes((wanted.min(allowed) / BUFFER_UNIT.0).max(1) * BUFFER_UNIT.0))
}
