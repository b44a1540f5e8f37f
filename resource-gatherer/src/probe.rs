//! Measures a node and reports its tiers: the one entry for whoever wants a report.
//!
//! The shell around the parts: [`crate::inventory`] says what there is, [`memory`] and [`directory`]
//! measure it cell by cell, [`crate::tiers`] sorts it. What cannot be measured is reported without
//! figures and with the reason; only wrong input ends the probe.

pub(crate) mod allotment;
#[cfg(feature = "object-store")]
mod buckets;
pub mod cell;
pub mod clock;
mod conditions;
mod direct_file;
pub mod directory;
pub mod estimate;
mod histogram;
pub mod memory;
#[cfg(feature = "object-store")]
pub mod object_store;
mod pace;
pub mod place;
pub(crate) mod random;
pub mod sampler;
pub mod settings;
#[cfg(test)]
mod tests;
mod transfer;
pub mod usual;

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use tierfeed_core::{
    id::NumaNode,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};

#[cfg(feature = "object-store")]
pub use self::buckets::Bucket;
use self::{
    allotment::Allotment,
    clock::{Clock, SystemClock},
    memory::{Pair, Part, Task},
    place::{Place, Unmeasured},
    transfer::Porter,
};
pub use self::{
    directory::RANDOM_READ_DEPTH,
    settings::{Budget, EmulatedTier, Limits, Pairs, ProbeSettings},
    usual::{Directories, usual_directories},
};
use crate::{
    inventory::{Inventory, node::Node},
    report::{self, FORMAT, Matrix, Report, Skipped, Tier, Transfer, tenths, whole},
    sysroot::{ReadError, Sysroot},
    tiers::{self, Ruling},
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
    /// A URL names no bucket.
    #[cfg(feature = "object-store")]
    #[error(transparent)]
    Bucket(#[from] object_store::ObjectStoreError),
    /// The caller wanted it to stop.
    #[error("interrupted before the report was complete")]
    Interrupted,
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
    /// It takes at most about this much longer.
    pub left: Nanoseconds,
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
        /// Which part of the work on them.
        part: Part,
    },
    /// A directory.
    Directory(PathBuf),
    /// A bucket, by its number among those that the settings name, from 1; its URL may be secret.
    ObjectStore(usize),
    /// Copies of chunks from tier to tier.
    Transfers,
    /// Everything is measured.
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

/// As [`probe`], unless `stop` says so before; then memory, threads and files are given back.
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
    let conditions = conditions::begin(sysroot);
    let inventory = Inventory::read(sysroot)?;
    let limits = settings.budget.limits();
    let ruling =
        Ruling { assignments: &settings.assignments, previous: settings.previous.as_deref() }
            .on(&inventory.host);
    let pairs = memory::pairs(&inventory, limits.pairs);
    let is_stopped = AtomicBool::new(false);
    let mut round = Round {
        inventory: &inventory,
        ruling,
        limits,
        sysroot,
        allotment: Allotment::new(SystemClock.wall(), limits.total, &is_stopped),
        is_stopped: &is_stopped,
        stop,
        progress,
        done: 0,
        total: bucket_count(settings) + pairs.len() * Part::ALL.len() + directories.len() + 1,
        skipped: skipped_by(settings.budget, &inventory),
    };

    let object_stores = round.measure_buckets(settings)?;
    round.allotment = Allotment::new(SystemClock.wall(), limits.total, &is_stopped);
    let (matrix, mut places, pair_reports) = round.measure_pairs(&pairs)?;
    places.extend(unreached(&inventory, &pairs, &ruling));
    let mut storage = Vec::new();
    let count = directories.len();
    for (index, (kind, path)) in directories.into_iter().enumerate() {
        let outcome = round.measure_directory(&path, count - index)?.map(|found| {
            storage.push(found.storage);
            found.summary
        });
        places.push(Place::directory(kind, path, outcome));
    }
    let emulated = settings.emulated.iter().map(|tier| Place::emulated(tier, &places));
    let emulated: Vec<Place> = emulated.collect();
    places.extend(emulated);
    let mut transfers = round.measure_transfers(&place::into_tiers(&places, &ruling))?;
    round.announce(Step::Classification)?;
    let tiers = place::into_tiers_by_transfer(&places, &ruling, &mut transfers);
    let skipped = round.skipped;
    Ok(Report {
        format: FORMAT,
        host: inventory.host.clone(),
        tiers,
        numa: matrix,
        views: tiers::views(&inventory, &pair_reports, &ruling),
        comparisons: tiers::comparisons(&inventory, &pair_reports),
        pairs: pair_reports,
        storage,
        object_stores,
        transfers,
        skipped,
        conditions: conditions.end(sysroot),
        inventory,
    })
}

#[cfg(feature = "object-store")]
fn bucket_count(settings: &ProbeSettings) -> usize {
    settings.buckets.len()
}

#[cfg(not(feature = "object-store"))]
fn bucket_count(_settings: &ProbeSettings) -> usize {
    0
}

/// What a budget leaves out whatever the machine.
fn skipped_by(budget: Budget, inventory: &Inventory) -> Vec<Skipped> {
    if budget != Budget::Quick {
        return Vec::new();
    }
    let others = memory::pairs(inventory, Pairs::All).into_iter().filter(|pair| !pair.is_best);
    let mut skipped: Vec<Skipped> = others
        .map(|pair| Skipped {
            what: format!("memory of NUMA node {} from node {}", pair.target.id, pair.initiator.id),
            why: "quick: each node is measured from the CPUs that reach it best".to_owned(),
        })
        .collect();
    let chunk = budget.limits().chunk;
    for (what, why) in [
        ("latency under mixed traffic".to_owned(), "quick: reads only".to_owned()),
        (format!("copies of {}", Bytes::mib(512)), format!("quick: {chunk} are copied instead")),
    ] {
        skipped.push(Skipped { what, why });
    }
    skipped
}

/// One round of measurements, step by step.
struct Round<'a> {
    inventory: &'a Inventory,
    ruling: Ruling<'a>,
    limits: Limits,
    sysroot: Sysroot<'a>,
    allotment: Allotment<'a>,
    is_stopped: &'a AtomicBool,
    stop: &'a mut dyn FnMut() -> bool,
    progress: &'a mut dyn FnMut(Progress),
    done: usize,
    total: usize,
    skipped: Vec<Skipped>,
}

type MeasuredPairs = (Matrix, Vec<Place>, Vec<report::Pair>);

impl<'a> Round<'a> {
    fn announce(&mut self, step: Step) -> Result<(), ProbeError> {
        if (self.stop)() {
            return Err(ProbeError::Interrupted);
        }
        let left = self.allotment.left(SystemClock.wall());
        (self.progress)(Progress { step, done: self.done, total: self.total, left });
        self.done += 1;
        Ok(())
    }

    #[cfg(feature = "object-store")]
    fn measure_buckets(
        &mut self,
        settings: &ProbeSettings,
    ) -> Result<Vec<report::ObjectStore>, ProbeError> {
        let mut found = Vec::new();
        if !self.sysroot.is_live() {
            return Ok(found);
        }
        for (index, bucket) in settings.buckets.iter().enumerate() {
            self.announce(Step::ObjectStore(index + 1))?;
            match buckets::figures(bucket, &self.limits)? {
                Ok(figures) => found.push(figures),
                Err(skipped) => self.skipped.push(skipped),
            }
        }
        Ok(found)
    }

    #[cfg(not(feature = "object-store"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
    fn measure_buckets(
        &mut self,
        _settings: &ProbeSettings,
    ) -> Result<Vec<report::ObjectStore>, ProbeError> {
        Ok(Vec::new())
    }

    fn measure_pairs(&mut self, pairs: &[Pair<'a>]) -> Result<MeasuredPairs, ProbeError> {
        let mut matrix = empty_matrix(self.inventory);
        let (mut best, mut reports, mut knees) = (Vec::new(), Vec::new(), BTreeMap::new());
        let weight = |pair: &Pair<'_>| if pair.is_best { 2 } else { 1 };
        let mut weights: u64 = pairs.iter().map(weight).sum();
        let memory = self.allotment.at_most(SystemClock.wall(), self.limits.memory);
        for pair in pairs {
            let allotment = memory.share(SystemClock.wall(), weight(pair), weights);
            weights -= weight(pair);
            let knee = knees.get(&pair.initiator.id).copied();
            let outcome = self.measure_pair(*pair, allotment, knee)?;
            let outcome = outcome.map(|outcome| {
                knees.extend(outcome.knee.map(|knee| (pair.initiator.id, knee)));
                reports.push(outcome.pair);
                self.skipped.extend(outcome.skipped);
                outcome.measured
            });
            enter(&mut matrix, pair, &outcome);
            match (outcome, pair.is_best) {
                (outcome, true) => best.push((pair.target, outcome)),
                (Err(error), false) => self.skip_pair(pair, &error),
                (Ok(_), false) => (),
            }
        }
        let profiles = tiers::host_profiles(self.inventory, &reports, &self.ruling);
        let places = best.into_iter().map(|(node, outcome)| {
            Place::measured_node(node, outcome, profiles.get(&node.id).copied(), &self.ruling)
        });
        Ok((matrix, places.collect(), reports))
    }

    fn skip_pair(&mut self, pair: &Pair<'_>, error: &Unmeasured) {
        let what =
            format!("memory of NUMA node {} from node {}", pair.target.id, pair.initiator.id);
        self.skipped.push(Skipped { what, why: error.to_string() });
    }

    fn measure_pair(
        &mut self,
        pair: Pair<'a>,
        allotment: Allotment<'a>,
        knee: Option<memory::Knee>,
    ) -> Result<Result<memory::Outcome, Unmeasured>, ProbeError> {
        let (initiator, target) = (NumaNode(pair.initiator.id), NumaNode(pair.target.id));
        let behind = self.done + Part::ALL.len();
        if !self.sysroot.is_live() {
            self.announce(Step::Memory { initiator, target, part: Part::Latency })?;
            self.done = behind;
            return Ok(Err(Unmeasured::OtherMachine));
        }
        let limits = self.limits;
        let Self { inventory, sysroot, is_stopped, .. } = *self;
        let task = Task { inventory, sysroot, pair, limits: &limits, allotment, knee };
        let outcome = memory::measure(&task, &mut |news| match news {
            memory::News::Begins(part) => {
                if self.announce(Step::Memory { initiator, target, part }).is_err() {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            }
            memory::News::Nothing => {
                if (self.stop)() {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            }
        })?;
        self.done = behind;
        self.check_stopped()?;
        Ok(outcome)
    }

    fn check_stopped(&mut self) -> Result<(), ProbeError> {
        if self.is_stopped.load(Ordering::Relaxed) || (self.stop)() {
            return Err(ProbeError::Interrupted);
        }
        Ok(())
    }

    /// `count` directories are left, this one included.
    fn measure_directory(
        &mut self,
        path: &Path,
        count: usize,
    ) -> Result<Result<directory::Findings, Unmeasured>, ProbeError> {
        self.announce(Step::Directory(path.to_owned()))?;
        if !self.sysroot.is_live() {
            return Ok(Err(Unmeasured::OtherMachine));
        }
        let (limits, patience) = self.directory_limits(count);
        let request = directory::Request { patience: Some(patience), ..Default::default() };
        let Self { inventory, is_stopped, .. } = *self;
        let mut watch = |_| {
            if (self.stop)() {
                is_stopped.store(true, Ordering::Relaxed);
                request.abort.abort();
            }
        };
        let outcome = memory::while_listening(&mut watch, |_| {
            directory::measure(inventory, path, &limits, &request)
        })?;
        self.check_stopped()?;
        Ok(outcome)
    }

    /// Three quarters of what is left are for directories, the rest for copies. One that does not answer
    /// may take all of it, but no more.
    fn directory_limits(&self, count: usize) -> (Limits, Nanoseconds) {
        let now = SystemClock.wall();
        let time = self.allotment.share(now, 3, 4 * count as u64).left(now);
        let cell = Nanoseconds(self.limits.cell.0.min(time.0 / directory::JOBS_MAX));
        let patience = directory::patience(&self.limits).min(self.allotment.left(now));
        (Limits { cell, ..self.limits }, patience)
    }

    fn measure_transfers(&mut self, tiers: &[Tier]) -> Result<Vec<Transfer>, ProbeError> {
        self.announce(Step::Transfers)?;
        if !self.sysroot.is_live() {
            return Ok(Vec::new());
        }
        let limits = self.limits;
        let Self { inventory, sysroot, is_stopped, .. } = *self;
        let porter = Porter { inventory, sysroot, limits: &limits };
        let routes = transfer::routes(inventory, tiers);
        let mut transfers = Vec::new();
        for (index, (from, to)) in routes.iter().enumerate() {
            let left = (routes.len() - index) as u64;
            let allotment = self.allotment.share(SystemClock.wall(), 1, left);
            let mut watch = |_| {
                if (self.stop)() {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            };
            let copied = porter.copy(*from, *to, allotment, &mut watch)?;
            self.check_stopped()?;
            match copied {
                Ok(copied) => transfers.extend(copied),
                Err(skipped) => self.skipped.push(skipped),
            }
        }
        Ok(transfers)
    }
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
    directory::existing(path)
        .map_err(|source| ProbeError::NoDirectory { path: path.to_owned(), source })
}

/// Memory that no node with CPUs reaches; there is none on a sane machine.
fn unreached<'a>(
    inventory: &'a Inventory,
    pairs: &'a [Pair<'a>],
    ruling: &'a Ruling<'a>,
) -> impl Iterator<Item = Place> + 'a {
    let reached = |node: &Node| pairs.iter().any(|pair| pair.is_best && pair.target.id == node.id);
    let unreached = inventory.memory_nodes().filter(move |node| !reached(node));
    unreached.map(|node| Place::measured_node(node, Err(Unmeasured::NoInitiator), None, ruling))
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
