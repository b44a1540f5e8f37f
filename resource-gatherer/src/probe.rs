//! Measures a node and reports its tiers: the one entry for whoever wants a report.
//!
//! The shell around the parts: [`crate::inventory`] says what there is, [`memory`] and [`directory`]
//! measure it cell by cell, [`crate::tiers`] sorts it. What cannot be measured is reported without
//! figures and with the reason; only wrong input ends the probe.

pub mod cell;
pub mod clock;
mod direct_file;
pub mod directory;
pub mod estimate;
mod histogram;
pub mod memory;
#[cfg(feature = "object-store")]
pub mod object_store;
pub mod place;
mod random;
pub mod sampler;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod usual;

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use tierfeed_core::{id::NumaNode, tier::Kind};

pub use self::{
    directory::RANDOM_READ_DEPTH,
    settings::{Budget, EmulatedTier, Limits, Pairs, ProbeSettings},
    usual::{Directories, usual_directories},
};
use self::{
    memory::Pair,
    place::{Place, Unmeasured},
};
use crate::{
    inventory::{Inventory, node::Node},
    report::{Conditions, FORMAT, Matrix, Report, tenths, whole},
    sysroot::{ReadError, Sysroot},
};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The inventory could not be read.
    #[error(transparent)]
    Inventory(#[from] ReadError),
    /// A directory that shall be measured is not there.
    #[error("cannot measure {}: {source}; name a directory that exists", path.display())]
    NoDirectory {
        /// As the settings name it.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No thread could be started to measure on.
    #[error("cannot start a thread to measure on: {0}")]
    Thread(#[source] io::Error),
}

/// How far the probe is; told before each step and once at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What comes next.
    pub step: Step,
    /// How many steps are behind.
    pub done: usize,
    /// How many there are.
    pub total: usize,
}

/// A step of the probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Memory of `target`, read from CPUs of `initiator`.
    Memory {
        /// Where the reader runs.
        initiator: NumaNode,
        /// Where the memory lies.
        target: NumaNode,
    },
    /// A directory.
    Directory(PathBuf),
    /// Everything is measured.
    Classification,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { initiator, target } => {
                write!(f, "memory of NUMA node {} from node {}", target.0, initiator.0)
            }
            Self::Directory(path) => write!(f, "directory {}", path.display()),
            Self::Classification => f.write_str("classification"),
        }
    }
}

/// Measures what `settings` name and sorts it into tiers.
///
/// Takes up to [`Limits::time`] and a little for setting up. Nothing is measured below a root that is
/// not this machine's: its figures would be another machine's.
///
/// # Errors
///
/// The settings name a directory that is not there, or the machine cannot be described at all.
pub fn probe(
    settings: &ProbeSettings,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ProbeError> {
    let directories = directories(settings)?;
    let sysroot = Sysroot(&settings.sysroot);
    let inventory = Inventory::read(sysroot)?;
    let limits = settings.budget.limits();
    let pairs = memory::pairs(&inventory, limits.pairs);
    let total = pairs.len() + directories.len();
    let mut round = Round { inventory: &inventory, limits, sysroot, progress, done: 0, total };

    let mut matrix = empty_matrix(&inventory);
    let mut places = Vec::new();
    let mut storage = Vec::new();
    for pair in &pairs {
        let outcome = round.measure_pair(pair, pairs.len())?;
        enter(&mut matrix, pair, &outcome);
        if pair.is_best {
            places.push(Place::node(pair.target, outcome));
        }
    }
    places.extend(unreached(&inventory, &pairs));
    for (kind, path) in directories {
        let outcome = round.measure_directory(&path).map(|found| {
            storage.push(found.storage);
            found.summary
        });
        places.push(Place::directory(kind, path, outcome));
    }
    round.announce(Step::Classification);
    let emulated = settings.emulated.iter().map(|tier| Place::emulated(tier, &places));
    let emulated: Vec<Place> = emulated.collect();
    places.extend(emulated);
    Ok(Report {
        format: FORMAT,
        host: inventory.host.clone(),
        tiers: place::into_tiers(&places),
        numa: matrix,
        pairs: Vec::new(),
        storage,
        object_stores: Vec::new(),
        transfers: Vec::new(),
        views: Vec::new(),
        comparisons: Vec::new(),
        skipped: Vec::new(),
        conditions: Conditions::default(),
        inventory,
    })
}

/// One round of measurements, step by step.
struct Round<'a> {
    inventory: &'a Inventory,
    limits: Limits,
    sysroot: Sysroot<'a>,
    progress: &'a mut dyn FnMut(Progress),
    done: usize,
    total: usize,
}

impl Round<'_> {
    fn announce(&mut self, step: Step) {
        (self.progress)(Progress { step, done: self.done, total: self.total });
        self.done += 1;
    }

    fn measure_pair(
        &mut self,
        pair: &Pair<'_>,
        pair_count: usize,
    ) -> Result<Result<memory::Measured, Unmeasured>, ProbeError> {
        let (initiator, target) = (NumaNode(pair.initiator.id), NumaNode(pair.target.id));
        self.announce(Step::Memory { initiator, target });
        if !self.sysroot.is_live() {
            return Ok(Err(Unmeasured::OtherMachine));
        }
        memory::measure(self.inventory, pair, &self.limits, pair_count)
    }

    fn measure_directory(&mut self, path: &Path) -> Result<directory::Findings, Unmeasured> {
        self.announce(Step::Directory(path.to_owned()));
        if !self.sysroot.is_live() {
            return Err(Unmeasured::OtherMachine);
        }
        directory::measure(self.inventory, path, &self.limits, &directory::Request::default())
    }
}

fn directories(settings: &ProbeSettings) -> Result<Vec<(Kind, PathBuf)>, ProbeError> {
    [(Kind::Scratch, &settings.scratch), (Kind::Storage, &settings.storage)]
        .into_iter()
        .filter_map(|(kind, path)| Some((kind, path.as_deref()?)))
        .map(|(kind, path)| Ok((kind, existing_directory(path)?)))
        .collect()
}

fn existing_directory(path: &Path) -> Result<PathBuf, ProbeError> {
    directory::existing(path)
        .map_err(|source| ProbeError::NoDirectory { path: path.to_owned(), source })
}

/// Memory that no node with CPUs reaches; there is none on a sane machine.
fn unreached<'a>(
    inventory: &'a Inventory,
    pairs: &'a [Pair<'a>],
) -> impl Iterator<Item = Place> + 'a {
    let reached = |node: &Node| pairs.iter().any(|pair| pair.is_best && pair.target.id == node.id);
    let unreached = inventory.memory_nodes().filter(move |node| !reached(node));
    unreached.map(|node| Place::node(node, Err(Unmeasured::NoInitiator)))
}

fn empty_matrix(inventory: &Inventory) -> Matrix {
    let nodes: Vec<u32> = inventory.nodes.iter().map(|node| node.id).collect();
    let count = nodes.len();
    Matrix {
        nodes,
        latency_ns: vec![vec![None; count]; count],
        read_bytes_per_s: vec![vec![None; count]; count],
    }
}

fn enter(matrix: &mut Matrix, pair: &Pair<'_>, outcome: &Result<memory::Measured, Unmeasured>) {
    let index = |id| matrix.nodes.iter().position(|node| *node == id);
    let (Some(row), Some(column)) = (index(pair.initiator.id), index(pair.target.id)) else {
        return;
    };
    let Ok(measured) = outcome else { return };
    matrix.latency_ns[row][column] = measured.figures.idle_latency_ns.map(tenths);
    matrix.read_bytes_per_s[row][column] = measured.figures.read_bytes_per_s.map(whole);
}
