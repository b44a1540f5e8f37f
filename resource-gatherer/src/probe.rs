//! Measures a node and reports its tiers: the one entry for a report.
//!
//! The shell around the parts: [`crate::inventory`] says what there is, [`memory`] and [`directory`]
//! measure it cell by cell, [`crate::classify`] sorts it, [`crate::report`] keeps it. What cannot be
//! measured is reported without figures and with the reason; only wrong input ends the probe.

pub(crate) mod candidate;
mod round;
pub mod settings;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use tierfeed_core::{
    id::NumaNode,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

pub use self::settings::{Budget, EmulatedTier, Limits, Pairs, ProbeSettings};
use self::{
    candidate::Candidate,
    round::{Round, not_measured},
};
use crate::{
    classify::{self, Constraints},
    figures::{Figures, Skipped},
    inventory::{Inventory, node::Node},
    measure::{
        allotment::Allotment,
        clock::{Clock as _, SystemClock},
        memory::{Pair, Part},
    },
    report::{FORMAT, Report},
    sysroot::{ReadError, Sysroot},
};
pub use crate::{
    figures::estimate,
    measure::{
        clock,
        default_directories::{Directories, default_directories},
        directory,
        directory::RANDOM_READ_DEPTH,
        memory, object_store,
        object_store::Bucket,
    },
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    #[error(transparent)]
    Inventory(#[from] ReadError),
    #[error("cannot measure {path}: {1}; name a directory that exists", path = .0.display())]
    NoDirectory(PathBuf, #[source] io::Error),
    #[error("cannot start a thread to measure on: {0}")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Bucket(#[from] object_store::ObjectStoreError),
    #[error("interrupted before the report was complete")]
    Interrupted,
}

/// Told before each step, and once at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub step: Step,
    pub done: usize,
    pub total: usize,
    /// The longest time that is left, about.
    pub left: Nanoseconds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Memory {
        initiator: NumaNode,
        target: NumaNode,
        part: Part,
    },
    Directory(PathBuf),
    /// A bucket, by its number among those that the settings name, from 1; its URL may be secret.
    ObjectStore(usize),
    Transfers,
    Classification,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { initiator, target, part } => {
                write!(f, "memory of NUMA node {} from node {}: {part}", target.0, initiator.0)
            }
            Self::Directory(path) => write!(f, "directory {}", path.display()),
            Self::ObjectStore(number) => write!(f, "object store {number}"),
            Self::Transfers => f.write_str("copies from tier to tier"),
            Self::Classification => f.write_str("classification"),
        }
    }
}

/// Measures what `settings` name and sorts it into tiers.
///
/// Takes at most about [`Limits::total`]. Nothing is measured below a root that is not this machine's:
/// its figures would be another machine's.
///
/// # Errors
///
/// The settings name a directory that is not there, or the machine cannot be described at all.
pub fn probe(
    settings: &ProbeSettings,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ProbeError> {
    probe_until(settings, &mut || false, progress)
}

/// As [`probe`], but ends early once `stop` returns true; then memory, threads and files are given back.
///
/// `stop` is asked about ten times a second.
///
/// # Errors
///
/// As [`probe`], and [`ProbeError::Interrupted`].
pub fn probe_until(
    settings: &ProbeSettings,
    stop: &mut dyn FnMut() -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ProbeError> {
    let directories = directories(settings)?;
    let sysroot = Sysroot(&settings.sysroot);
    let inventory = Inventory::read(sysroot)?;
    let limits = settings.budget.limits();
    let previous = settings.previous.as_deref().map(Report::classification);
    let constraints =
        Constraints { assignments: &settings.assignments, previous: previous.as_ref() }
            .on(&inventory.host);
    let pairs = memory::pairs(&inventory, limits.pairs);
    let is_stopped = AtomicBool::new(false);
    let mut round = Round {
        inventory: &inventory,
        constraints,
        limits,
        sysroot,
        allotment: Allotment::new(SystemClock.wall(), limits.total, &is_stopped),
        is_stopped: &is_stopped,
        stop,
        progress,
        done: 0,
        total: settings.buckets.len() + pairs.len() * Part::ALL.len() + directories.len() + 1,
        skipped: skipped_by(settings.budget, &inventory, &constraints),
    };

    let object_stores = round.measure_buckets(settings)?;
    round.allotment = Allotment::new(SystemClock.wall(), limits.total, &is_stopped);
    let (matrix, mut candidates, pair_reports) = round.measure_pairs(&pairs)?;
    candidates.extend(unreached(&inventory, &pairs, &constraints));
    let mut storage = Vec::new();
    let count = directories.len();
    for (index, (kind, path)) in directories.into_iter().enumerate() {
        let found = round.measure_directory(&path, count - index)?;
        candidates.push(Candidate::directory(kind, path, found.as_ref().map_err(Clone::clone)));
        storage.extend(found.ok().map(|found| found.storage));
    }
    let emulated = settings.emulated.iter().map(|tier| Candidate::emulated(tier, &candidates));
    let emulated: Vec<Candidate> = emulated.collect();
    candidates.extend(emulated);
    let mut transfers =
        round.measure_transfers(&candidate::into_tiers(&candidates, &constraints))?;
    round.announce(Step::Classification)?;
    let tiers = candidate::into_tiers_by_transfer(&candidates, &constraints, &mut transfers);
    let skipped = round.skipped;
    Ok(Report {
        format: FORMAT,
        host: inventory.host.clone(),
        tiers,
        numa: matrix,
        views: classify::views(&inventory, &pair_reports, &constraints),
        comparisons: classify::comparisons(&inventory, &pair_reports),
        pairs: pair_reports,
        storage,
        object_stores,
        transfers,
        skipped,
        inventory,
    })
}

/// Everything that is left out before the first measurement: memory that makes no tier, and what the budget
/// leaves out.
fn skipped_by(
    budget: Budget,
    inventory: &Inventory,
    constraints: &Constraints<'_>,
) -> Vec<Skipped> {
    let mut skipped: Vec<Skipped> = without_tier(inventory, constraints).collect();
    if budget != Budget::Quick {
        return skipped;
    }
    let others = memory::pairs(inventory, Pairs::All).into_iter().filter(|pair| !pair.is_best);
    skipped.extend(others.map(|pair| Skipped {
        what: format!("memory of NUMA node {} from node {}", pair.target.id, pair.initiator.id),
        why: "quick: each node is measured from the CPUs that reach it best".to_owned(),
    }));
    skipped.push(Skipped {
        what: format!("copies of {}", Bytes::mib(512)),
        why: format!("quick: {} are copied instead", budget.limits().chunk),
    });
    skipped
}

/// The memory nodes that make no tier, and why.
fn without_tier<'a>(
    inventory: &'a Inventory,
    constraints: &'a Constraints<'a>,
) -> impl Iterator<Item = Skipped> + 'a {
    let gpus = inventory.nodes.iter().filter(|node| node.is_gpu() && node.memory_total_bytes > 0);
    let gpus = gpus.map(|node| (node, "memory of a GPU is never a tier"));
    let unknown = inventory.memory_nodes().filter(|node| constraints.kind(node).is_none());
    let unknown = unknown.map(|node| {
        (
            node,
            "no CPUs, and neither DAX, CXL nor HMAT says what it is; to use it, name it in a job as \
             tiers.cxl-memory.numa_nodes",
        )
    });
    gpus.chain(unknown).map(|(node, why)| Skipped {
        what: format!("NUMA node {} as a tier", node.id),
        why: why.to_owned(),
    })
}

fn directories(settings: &ProbeSettings) -> Result<Vec<(Kind, PathBuf)>, ProbeError> {
    [(Kind::Scratch, &settings.scratch), (Kind::Storage, &settings.storage)]
        .into_iter()
        .filter_map(|(kind, path)| Some((kind, path.as_deref()?)))
        .chain(settings.further.iter().map(|(kind, path)| (*kind, path.as_path())))
        .map(|(kind, path)| Ok((kind, existing_directory(path)?)))
        .collect()
}

fn existing_directory(path: &Path) -> Result<PathBuf, ProbeError> {
    directory::existing(path).map_err(|source| ProbeError::NoDirectory(path.to_owned(), source))
}

/// Memory that no node with CPUs reaches; there is none on a sane machine.
fn unreached<'a>(
    inventory: &'a Inventory,
    pairs: &'a [Pair<'a>],
    constraints: &'a Constraints<'a>,
) -> impl Iterator<Item = Candidate> + 'a {
    let reached = |node: &Node| pairs.iter().any(|pair| pair.is_best && pair.target.id == node.id);
    let unreached = inventory.memory_nodes().filter(move |node| !reached(node));
    unreached.filter_map(|node| {
        let remarks = vec![not_measured("no node with CPUs reaches it")];
        Candidate::node(node, &Figures::default(), None, remarks, constraints)
    })
}
