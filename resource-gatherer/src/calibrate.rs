//! Takes the few figures by which the tiers of a job are classified, in a fraction of a second each, where no
//! report of the probe has them.
//!
//! 1. Kernels, samplers and cells are those of the probe, with smaller buffers and less time: figures are less
//!    exact, and say so (`converged: false`).
//! 2. Of memory: idle latency, and the rate of copies into main memory. Of a directory: the latency and the rate
//!    of reads of a file that is written there, has no name and is at most [`FILE_MAX`] long. Of a cold store:
//!    the time to the first byte and the rate of reads of extents that the job has.
//! 3. Each is bounded in time. A directory or a cold store that does not answer has no figures.

mod document;

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use tierfeed_core::{
    id::NumaNode,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

pub use self::document::{Calibration, ColdStore, PLACES_MAX};
pub use crate::measure::cold::{Aim, ColdError, ColdFiles, ColdReads, FileExtent, Progress};
use crate::{
    classify::{Assignment, Constraints, Profile},
    figures::Figures,
    inventory::{Inventory, Node},
    measure::{
        allotment::Allotment,
        clock::{Clock, SystemClock},
        cold::{self, ColdLimits},
        directory::{self, DirectoryError},
        limits::{Limits, Pairs},
        memory::{
            MemoryError, Request, Subject, buffer_max, locality, single, single::SingleError,
        },
        transfer::{Copier, Counts, TierNode},
    },
    probe::candidate::{Candidate, into_tiers},
    report::Tier,
    sysroot::Sysroot,
};

/// Time for one node of memory, unless there are many.
const NODE_WITHIN: Nanoseconds = Nanoseconds(200_000_000);

/// Time for all nodes of memory together.
pub const MEMORY_WITHIN: Nanoseconds = Nanoseconds(900_000_000);

/// After this time a directory has no figures.
pub const DIRECTORY_WITHIN: Nanoseconds = Nanoseconds(900_000_000);

/// After this time a cold store has no figures.
pub const COLD_WITHIN: Nanoseconds = Nanoseconds(1_000_000_000);

/// The most that is written to a directory.
pub const FILE_MAX: Bytes = Bytes::mib(32);

/// The most that is read of a cold store, apart from the reads then in flight.
pub const COLD_BYTES_MAX: Bytes = Bytes::mib(64);

/// The length of each of the two arrays of a copy.
const ARRAY: Bytes = Bytes::mib(32);

/// The least and the greatest length of the buffer for the latency.
const CHAIN: (Bytes, Bytes) = (Bytes::mib(32), Bytes::mib(64));

/// One cache line of this many is visited.
const CHAIN_LINES: u64 = 4;

const LIMITS: Limits = Limits {
    total: MEMORY_WITHIN,
    cell: Nanoseconds(40_000_000),
    memory: MEMORY_WITHIN,
    sample: Nanoseconds(2_000_000),
    buffer_min: ARRAY,
    buffer_max: ARRAY,
    random_buffer: ARRAY,
    chunk: ARRAY,
    file: FILE_MAX,
    pairs: Pairs::BestInitiator,
};

const COLD_LIMITS: ColdLimits = ColdLimits {
    latency: Nanoseconds(60_000_000),
    rate: Nanoseconds(150_000_000),
    total: COLD_WITHIN,
    bytes: COLD_BYTES_MAX,
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    #[error("this host has no memory on NUMA node {0}")]
    NoMemory(u32),
    #[error(transparent)]
    Full(#[from] MemoryError),
    #[error(transparent)]
    Memory(#[from] SingleError),
    #[error("{0}")]
    Copies(String),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Cold(#[from] ColdError),
}

/// Time for each node if there are `nodes`.
#[must_use]
pub fn node_time(nodes: usize) -> Nanoseconds {
    Nanoseconds(NODE_WITHIN.0.min(MEMORY_WITHIN.0 / nodes.max(1) as u64))
}

/// Measures the memory of `node` on the calling thread, whose affinity it changes, for about `time`.
///
/// # Errors
///
/// There is no such memory, it is too full, or it cannot be bound.
pub fn memory(inventory: &Inventory, node: u32, time: Nanoseconds) -> Result<Tier, CalibrateError> {
    let missing = || CalibrateError::NoMemory(node);
    let target = inventory.memory_nodes().find(|it| it.id == node).ok_or_else(missing)?;
    let is_here = |it: &Node| it.cpus.iter().any(|cpu| inventory.allowed.has_cpu(*cpu));
    let main = inventory.memory_nodes().find(|it| is_here(it)).ok_or_else(missing)?;
    let initiator = if target.cpus.is_empty() {
        inventory.best_initiator_of(target, is_here).ok_or_else(missing)?
    } else {
        main
    };
    let chain = chain_len(inventory, initiator, buffer_max(target, locality(inventory, target))?);
    let request = Request {
        initiator: initiator.id,
        target: node,
        subject: Subject::IdleLatency,
        buffer: chain,
        sample: LIMITS.sample,
        time: Nanoseconds(LIMITS.cell.0.min(time.0 / 4)),
    };
    let latency = single::estimate_here(inventory, &request)?;
    let is_stopped = AtomicBool::new(false);
    // Of their own, so that a busy machine has copies however long the latency took.
    let allotment = Allotment::new(SystemClock.wall(), Nanoseconds(time.0 / 2), &is_stopped);
    let (sysroot, counts) = (Sysroot::live(), Counts::AsJobs);
    let copier = Copier { inventory, sysroot, limits: &LIMITS, counts };
    let place = |node| TierNode { tier: "memory", node };
    let found = copier.copy(place(target), place(main), allotment);
    let found = found.map_err(|skipped| CalibrateError::Copies(skipped.why))?;
    let best = found.iter().find(|copy| copy.is_best).map(|copy| copy.bytes_per_s);
    let figures =
        Figures { idle_latency_ns: Some(latency), copy_bytes_per_s: best, ..Figures::default() };
    // Memory that says nothing of itself is what the job named it for.
    let kind = target.tier_kind().unwrap_or(Kind::CxlMemory);
    let named = Assignment { kind, numa_nodes: vec![node], path: None };
    let assignments = if target.tier_kind().is_none() { std::slice::from_ref(&named) } else { &[] };
    let constraints = Constraints { assignments, previous: None };
    let profile = Profile::of(kind, &figures);
    let remarks = cache_remark(chain, cache_bytes(inventory, initiator)).into_iter().collect();
    let candidate = Candidate::node(target, &figures, Some(profile), remarks, &constraints);
    into_tiers(candidate.as_slice(), &constraints).pop().ok_or_else(missing)
}

/// Long enough that the lines visited take twice the largest cache of a core, within [`CHAIN`] and `room`.
fn chain_len(inventory: &Inventory, initiator: &Node, room: Bytes) -> Bytes {
    const UNIT: u64 = 2 << 20;
    let wanted = Bytes(CHAIN_LINES * 2 * cache_bytes(inventory, initiator).0);
    let wanted = wanted.clamp(CHAIN.0, CHAIN.1).min(room);
    Bytes(wanted.0.max(UNIT) / UNIT * UNIT)
}

fn cache_bytes(inventory: &Inventory, node: &Node) -> Bytes {
    Bytes(inventory.last_level_caches(node).max().unwrap_or(0))
}

fn cache_remark(chain: Bytes, cache: Bytes) -> Option<String> {
    let lines = Bytes(chain.0 / CHAIN_LINES);
    (lines.0 < 2 * cache.0).then(|| {
        format!("caches of {cache} may have held part of the {lines} whose latency was taken")
    })
}

/// # Errors
///
/// It is too full, does not answer, or reading or writing failed.
pub fn directory(inventory: &Inventory, kind: Kind, path: &Path) -> Result<Tier, CalibrateError> {
    directory_within(inventory, (kind, None), path, DIRECTORY_WITHIN)
}

/// Measures a RAM disk whose files lie on `numa_node`; `path` is a directory on it, and `inventory` lists its
/// mount. The figures are those of any RAM disk there, so the tier has no path.
///
/// # Errors
///
/// As [`directory()`], and that the files do not lie on the node.
pub fn ram_disk(
    inventory: &Inventory,
    path: &Path,
    numa_node: Option<NumaNode>,
) -> Result<Tier, CalibrateError> {
    let found = directory_within(inventory, (Kind::Scratch, numa_node), path, DIRECTORY_WITHIN)?;
    let nodes: Vec<u32> = numa_node.iter().map(|node| node.0).collect();
    Ok(Tier {
        path: None,
        numa_node: nodes.first().copied(),
        numa_nodes: nodes,
        capacity_bytes: None,
        free_bytes: None,
        ..found
    })
}

fn directory_within(
    inventory: &Inventory,
    (kind, numa_node): (Kind, Option<NumaNode>),
    path: &Path,
    patience: Nanoseconds,
) -> Result<Tier, CalibrateError> {
    let request = directory::Request {
        patience: Some(patience),
        extent: directory::Extent::Reads,
        numa_node,
        ..directory::Request::default()
    };
    let found = directory::measure(inventory, path, &LIMITS, &request)?;
    let candidate = Candidate::directory(kind, path.to_owned(), Ok(&found));
    let tiers = into_tiers(&[candidate], &Constraints::default());
    Ok(tiers.into_iter().next().expect("a candidate makes a tier"))
}

/// # Errors
///
/// It does not answer within [`COLD_WITHIN`], or a read fails.
pub fn cold_store(place: &str, reads: &Arc<dyn ColdReads>) -> Result<ColdStore, CalibrateError> {
    let found = cold::measure(reads, &COLD_LIMITS)?;
    Ok(ColdStore {
        place: place.to_owned(),
        latency_ns: found.latency_ns.rounded(),
        read_bytes_per_s: found.read_bytes_per_s.rounded(),
        read_bytes: found.read.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_a_directory_of_this_host_have_figures_by_which_they_are_classified() {
        let inventory = Inventory::read(Sysroot::live()).unwrap();
        let node = inventory.memory_nodes().next().unwrap().id;
        let found = std::thread::scope(|scope| {
            let measured = scope.spawn(|| memory(&inventory, node, node_time(1)));
            measured.join().unwrap()
        });
        let found = found.unwrap();
        assert_eq!((found.kind, &found.numa_nodes[..]), (Kind::MainMemory, &[node][..]));
        assert!(found.idle_latency_ns.unwrap() > 0.0 && found.copy_bytes_per_s.unwrap() > 0);
        let folder = tempfile::tempdir().unwrap();
        let patience = Nanoseconds(60_000_000_000);
        let found =
            directory_within(&inventory, (Kind::Storage, None), folder.path(), patience).unwrap();
        assert_eq!(found.path.as_deref(), Some(folder.path()));
        assert!(found.idle_latency_ns.unwrap() > 0.0 && found.read_bytes_per_s.unwrap() > 0);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_ram_disk_on_a_node_is_measured_by_a_file_that_lies_there() {
        let inventory = Inventory::read(Sysroot::live()).unwrap();
        let path = Path::new("/dev/shm");
        let node = NumaNode(inventory.memory_nodes().next().unwrap().id);
        let found = ram_disk(&inventory, path, Some(node)).unwrap();
        assert!(found.is_any_ram_disk(), "{found:?}");
        assert_eq!((found.kind, &found.numa_nodes[..]), (Kind::Scratch, &[node.0][..]));
        assert!(found.idle_latency_ns.unwrap() > 0.0 && found.read_bytes_per_s.unwrap() > 0);
        let absent = ram_disk(&inventory, path, Some(NumaNode(900))).unwrap_err();
        assert!(matches!(absent, CalibrateError::Directory(_)), "{absent}");
    }

    #[test]
    fn a_directory_that_does_not_answer_in_time_has_no_figures() {
        let inventory = Inventory::read(Sysroot::live()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kind = Kind::Storage;
        let error =
            directory_within(&inventory, (kind, None), folder.path(), Nanoseconds(1)).unwrap_err();
        assert!(error.to_string().starts_with("no answer within 1 ns"), "{error}");
    }

    #[test]
    fn memory_that_is_not_there_is_named() {
        let inventory = Inventory::read(Sysroot::live()).unwrap();
        let error = memory(&inventory, 4095, node_time(1)).unwrap_err();
        assert_eq!(error.to_string(), "this host has no memory on NUMA node 4095");
    }

    #[test]
    fn the_time_for_all_nodes_is_shared() {
        assert_eq!(node_time(1), NODE_WITHIN);
        assert_eq!(node_time(9).0, MEMORY_WITHIN.0 / 9);
    }
}
