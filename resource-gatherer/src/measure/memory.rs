//! Measures the memory of one NUMA node from the CPUs of another: latency idle, random and under load,
//! and the bandwidth of every kind of traffic by every number of threads.
//!
//! 1. The buffers are larger than the caches, as those are found to be, and smaller than what would
//!    hurt: together a quarter of what may be taken on the node, control groups and cpusets included.
//! 2. They are bound before they are touched, and their placement is read back; where the kernel put
//!    them elsewhere, or does not tell on a host with several nodes, there are no figures. Huge pages
//!    are read back too; figures from small pages are shown, but sort nothing.
//! 3. Threads run on the cores of the initiator only, one on each.
//! 4. The chain is TLB-local (groups of 256 KiB) and has a stride of 256 B, which prefetchers that
//!    fetch the next or the neighbouring line do not follow.
//! 5. Everything counts against one allotment: touching the buffers, making the chains, sampling. What
//!    does not fit is left out whole, and named.

pub(crate) mod arrays;
mod caches;
pub(crate) mod cores;
mod latency;
mod loaded;
mod measurement;
mod plan;
pub mod single;
mod sizing;
pub(crate) mod team;
pub(crate) mod work;

use std::{fmt, io, path::Path};

use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{AllocateError, affinity, capacity, kernels::ChainError};

pub(crate) use self::caches::Knee;
use self::measurement::Measurement;
pub use self::single::{Request, Subject};
use super::{
    allotment::Allotment,
    clock::GuestClock,
    limits::{Limits, Pairs},
};
use crate::{
    figures::{self, Skipped},
    inventory::{Inventory, node::Node},
    sysroot::Sysroot,
};

#[derive(Debug, Clone, Copy)]
pub struct Pair<'inventory> {
    pub initiator: &'inventory Node,
    pub target: &'inventory Node,
    /// Whether no other CPUs reach the memory better.
    pub is_best: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) pair: figures::Pair,
    /// The reasons why no tier may be made of the figures; empty if one may.
    pub(crate) unusable: Vec<String>,
    pub(crate) skipped: Vec<Skipped>,
    /// The size of the initiator's caches as measured.
    pub(crate) knee: Option<Knee>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Bandwidth by one thread and by all.
    Bandwidth,
    /// Latency without load, and what the caches hold.
    Latency,
    LoadedLatency,
    /// The other numbers of threads and kinds of traffic.
    MoreBandwidth,
}

impl Part {
    pub const ALL: [Self; 4] =
        [Self::Bandwidth, Self::Latency, Self::LoadedLatency, Self::MoreBandwidth];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::LoadedLatency => "latency under load",
            Self::MoreBandwidth => "more bandwidth",
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    #[error("{1} can be taken on NUMA node {node}, at least {ALLOCATABLE_MIN} are needed", node = .0.0)]
    TooFull(NumaNode, Bytes),
    #[error("the cpuset of this process does not allow memory of NUMA node {node}", node = .0.0)]
    Forbidden(NumaNode),
    #[error("out of time")]
    OutOfTime,
    #[error("cannot read how much memory is free: {0}")]
    FreeMemory(#[source] io::Error),
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    #[error(
        "the kernel does not tell where the memory lies; allow move_pages or /proc/self/numa_maps"
    )]
    Unverified,
    #[error("cannot run on the CPUs of NUMA node {node}: {1}", node = .0.0)]
    Affinity(NumaNode, #[source] io::Error),
    #[error("asked for {0} threads, but {1} cores can be used; ask for 1 to {1}")]
    TooManyThreads(usize, usize),
    #[error(transparent)]
    Chain(#[from] ChainError),
}

pub(super) const ALLOCATABLE_MIN: Bytes = Bytes::mib(256);

/// Buffers of equal length that may exist at once.
const BUFFER_COUNT: u64 = 4;

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

pub(crate) struct Task<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) sysroot: Sysroot<'a>,
    pub(crate) pair: Pair<'a>,
    pub(crate) limits: &'a Limits,
    pub(crate) allotment: Allotment<'a>,
    pub(crate) knee: Option<Knee>,
}

/// Measures a pair on the calling thread, whose affinity it changes. `begin` is called before each part.
pub(crate) fn measure(task: &Task<'_>, begin: &dyn Fn(Part)) -> Result<Outcome, MemoryError> {
    let Pair { initiator, target, .. } = task.pair;
    let (cores, mut clock) = on_first_core(initiator, task.inventory, task.sysroot)?;
    let place = locality(task.inventory, target);
    check_allowed(task.inventory, target)?;
    Measurement::new(task, &cores, place, &mut clock).run(begin)
}

/// Pins the calling thread to the first usable core of `node`. Returns all usable cores, and the clock of the
/// first.
pub(crate) fn on_first_core(
    node: &Node,
    inventory: &Inventory,
    sysroot: Sysroot<'_>,
) -> Result<(Vec<usize>, GuestClock), MemoryError> {
    let affinity_error = |source| MemoryError::Affinity(NumaNode(node.id), source);
    let cores = cores::of_node(node, sysroot).map_err(affinity_error)?;
    affinity::pin_current_thread(&cores[..1]).map_err(affinity_error)?;
    let clock = GuestClock::of(&cores[..1], &inventory.processor, sysroot);
    Ok((cores, clock))
}

/// The place to ask for memory of `node`. The only node needs no binding, which a container may forbid, and
/// no proof.
pub(crate) fn locality(inventory: &Inventory, node: &Node) -> Locality {
    match inventory.memory_nodes().count() {
        1 => Locality::Anywhere,
        _ => Locality::Numa(NumaNode(node.id)),
    }
}

/// Checks that the cpuset of this process has memory of `node`, because binding to another is reduced
/// silently.
pub(crate) fn check_allowed(inventory: &Inventory, node: &Node) -> Result<(), MemoryError> {
    let is_allowed = inventory.allowed.has_node(node.id);
    if is_allowed { Ok(()) } else { Err(MemoryError::Forbidden(NumaNode(node.id))) }
}

/// The greatest length of a buffer on `node`: invariant 1.
pub(crate) fn buffer_max(node: &Node, place: Locality) -> Result<Bytes, MemoryError> {
    let available =
        capacity::allocatable_bytes(Path::new("/"), place).map_err(MemoryError::FreeMemory)?;
    if available < ALLOCATABLE_MIN {
        return Err(MemoryError::TooFull(NumaNode(node.id), available));
    }
    Ok(Bytes(available.0 / 4 / BUFFER_COUNT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    #[test]
    fn memory_outside_the_cpuset_is_not_touched() {
        let machine = FakeSysroot::cxl_node();
        let check = |node: usize| {
            let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
            check_allowed(&inventory, &inventory.nodes[node])
        };
        assert!(check(2).is_ok(), "a kernel without cpusets allows all");
        machine.write("proc/self/status", "Name:\tx\nMems_allowed_list:\t0-1\n");
        assert!(check(1).is_ok());
        assert!(matches!(check(2), Err(MemoryError::Forbidden(NumaNode(2)))));
    }
}
