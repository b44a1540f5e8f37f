//! One round of measurements, step by step, with its progress and its end.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use tierfeed_core::{id::NumaNode, units::Nanoseconds};

use super::{Limits, ProbeError, ProbeSettings, Progress, Step, candidate::Candidate};
use crate::{
    classify::{self, Constraints},
    figures::{self, Figures, Skipped, Transfer, tenths, whole},
    inventory::Inventory,
    measure::{
        allotment::Allotment,
        clock::{Clock, SystemClock},
        directory,
        memory::{self, Pair, Part, Task},
        object_store::{self, Request},
        transfer::{self, Copier, Counts, TierNode},
    },
    report::{Matrix, Tier},
    sysroot::Sysroot,
};

pub(super) struct Round<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) constraints: Constraints<'a>,
    pub(super) limits: Limits,
    pub(super) sysroot: Sysroot<'a>,
    pub(super) allotment: Allotment<'a>,
    pub(super) is_stopped: &'a AtomicBool,
    pub(super) stop: &'a mut dyn FnMut() -> bool,
    pub(super) progress: &'a mut dyn FnMut(Progress),
    pub(super) done: usize,
    pub(super) total: usize,
    pub(super) skipped: Vec<Skipped>,
}

type MeasuredPairs = (Matrix, Vec<Candidate>, Vec<figures::Pair>);

/// The result of a measurement, or why it has no figures.
type Measured<T> = Result<T, String>;

pub(super) fn not_measured(why: impl std::fmt::Display) -> String {
    format!("not measured: {why}")
}

/// Parts that begin before they are heard of. That is ten times a second, and parts take longer.
const TOLD_MAX: usize = 64;

const OTHER_MACHINE: &str = "the inventory is another machine's";

impl<'a> Round<'a> {
    pub(super) fn announce(&mut self, step: Step) -> Result<(), ProbeError> {
        if (self.stop)() {
            return Err(ProbeError::Interrupted);
        }
        let left = self.allotment.left(SystemClock.wall());
        (self.progress)(Progress { step, done: self.done, total: self.total, left });
        self.done += 1;
        Ok(())
    }

    /// Comes first: a URL that names no bucket is wrong input, and that should not take minutes to be said.
    pub(super) fn measure_buckets(
        &mut self,
        settings: &ProbeSettings,
    ) -> Result<Vec<figures::ObjectStore>, ProbeError> {
        let mut found = Vec::new();
        if !self.sysroot.is_live() {
            return Ok(found);
        }
        for (index, bucket) in settings.buckets.iter().enumerate() {
            self.announce(Step::ObjectStore(index + 1))?;
            match object_store::measure(&Request::of(bucket, &self.limits)) {
                Ok(figures) => found.push(figures),
                Err(error) if error.is_wrong_input() => return Err(error.into()),
                Err(error) => self
                    .skipped
                    .push(Skipped { what: "an object store".to_owned(), why: error.to_string() }),
            }
        }
        Ok(found)
    }

    pub(super) fn measure_pairs(
        &mut self,
        pairs: &[Pair<'a>],
    ) -> Result<MeasuredPairs, ProbeError> {
        let mut matrix = empty_matrix(self.inventory);
        let (mut best, mut reports, mut knees) = (Vec::new(), Vec::new(), BTreeMap::new());
        let weight = |pair: &Pair<'_>| if pair.is_best { 2 } else { 1 };
        let mut weights: u64 = pairs.iter().map(weight).sum();
        let memory = self.allotment.at_most(SystemClock.wall(), self.limits.memory);
        for pair in pairs {
            let allotment = memory.share(SystemClock.wall(), weight(pair), weights);
            weights -= weight(pair);
            let knee = knees.get(&pair.initiator.id).copied();
            let outcome = self.measure_pair(*pair, allotment, knee)?.map(|outcome| {
                knees.extend(outcome.knee.map(|knee| (pair.initiator.id, knee)));
                self.skipped.extend(outcome.skipped);
                let figures = outcome.pair.figures();
                reports.push(outcome.pair);
                (figures, outcome.unusable)
            });
            match outcome {
                Ok((figures, _)) => enter(&mut matrix, pair, &figures),
                Err(ref why) if !pair.is_best => self.skip_pair(pair, why),
                Err(_) => (),
            }
            if pair.is_best {
                best.push((pair.target, outcome));
            }
        }
        let profiles = classify::host_profiles(self.inventory, &reports, &self.constraints);
        let candidates = best.into_iter().filter_map(|(node, outcome)| {
            let (figures, remarks) = outcome.unwrap_or_else(|why| (Figures::default(), vec![why]));
            let profile = profiles.get(&node.id).copied();
            Candidate::node(node, &figures, profile, remarks, &self.constraints)
        });
        Ok((matrix, candidates.collect(), reports))
    }

    fn skip_pair(&mut self, pair: &Pair<'_>, why: &str) {
        let what =
            format!("memory of NUMA node {} from node {}", pair.target.id, pair.initiator.id);
        self.skipped.push(Skipped { what, why: why.to_owned() });
    }

    fn measure_pair(
        &mut self,
        pair: Pair<'a>,
        allotment: Allotment<'a>,
        knee: Option<memory::Knee>,
    ) -> Result<Measured<memory::Outcome>, ProbeError> {
        let (initiator, target) = (NumaNode(pair.initiator.id), NumaNode(pair.target.id));
        let begins = |round: &mut Self, part| {
            round.announce(Step::Memory { initiator, target, part }).is_ok()
        };
        let behind = self.done + Part::ALL.len();
        let outcome = if self.sysroot.is_live() {
            let limits = self.limits;
            let Self { inventory, sysroot, .. } = *self;
            let task = Task { inventory, sysroot, pair, limits: &limits, allotment, knee };
            self.on_thread(begins, || (), |begin| memory::measure(&task, begin))?
                .map_err(not_measured)
        } else {
            self.announce(Step::Memory { initiator, target, part: Part::Bandwidth })?;
            Err(not_measured(OTHER_MACHINE))
        };
        self.done = behind;
        Ok(outcome)
    }

    /// Runs `body` on a thread of its own, whose affinity ends with it. `begins` is told of each part and
    /// says whether to go on; between parts the caller of the probe is asked ten times a second. `stop` ends
    /// work that does not look at the allotment.
    fn on_thread<T: Send>(
        &mut self,
        mut begins: impl FnMut(&mut Self, Part) -> bool,
        stop: impl Fn(),
        body: impl FnOnce(&dyn Fn(Part)) -> T + Send,
    ) -> Result<T, ProbeError> {
        let (tell, told) = sync_channel(TOLD_MAX);
        let outcome = thread::scope(|scope| {
            let thread = thread::Builder::new().name("tierfeed-probe".to_owned());
            // What is told is heard until the thread has ended.
            let body = move || body(&|part| _ = tell.send(part));
            let thread = thread.spawn_scoped(scope, body).map_err(ProbeError::Thread)?;
            loop {
                let goes_on = match told.recv_timeout(Duration::from_millis(100)) {
                    Ok(part) => begins(self, part),
                    Err(RecvTimeoutError::Timeout) => !(self.stop)(),
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                if !goes_on {
                    self.is_stopped.store(true, Ordering::Relaxed);
                    stop();
                }
            }
            Ok::<T, ProbeError>(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        if self.is_stopped.load(Ordering::Relaxed) || (self.stop)() {
            return Err(ProbeError::Interrupted);
        }
        Ok(outcome)
    }

    /// `count` directories are left, including this one.
    pub(super) fn measure_directory(
        &mut self,
        path: &Path,
        count: usize,
    ) -> Result<Measured<directory::Findings>, ProbeError> {
        self.announce(Step::Directory(path.to_owned()))?;
        if !self.sysroot.is_live() {
            return Ok(Err(not_measured(OTHER_MACHINE)));
        }
        let (limits, patience) = self.directory_limits(count);
        let request = directory::Request { patience: Some(patience), ..Default::default() };
        let inventory = self.inventory;
        let measure = |_: &dyn Fn(Part)| directory::measure(inventory, path, &limits, &request);
        let outcome = self.on_thread(|_, _| true, || request.abort.abort(), measure)?;
        Ok(outcome.map_err(not_measured))
    }

    /// Directories get three quarters of what is left, copies the rest. A directory that does not answer may
    /// take all of it, but no more.
    fn directory_limits(&self, count: usize) -> (Limits, Nanoseconds) {
        let now = SystemClock.wall();
        let time = self.allotment.share(now, 3, 4 * count as u64).left(now);
        let cell = Nanoseconds(self.limits.cell.0.min(time.0 / directory::JOBS_MAX));
        let patience = directory::patience(&self.limits).min(self.allotment.left(now));
        (Limits { cell, ..self.limits }, patience)
    }

    pub(super) fn measure_transfers(
        &mut self,
        tiers: &[Tier],
    ) -> Result<Vec<Transfer>, ProbeError> {
        self.announce(Step::Transfers)?;
        if !self.sysroot.is_live() {
            return Ok(Vec::new());
        }
        let limits = self.limits;
        let Self { inventory, sysroot, .. } = *self;
        let copier = Copier { inventory, sysroot, limits: &limits, counts: Counts::All };
        let nodes = tiers.iter().filter_map(|tier| {
            let node = inventory.nodes.iter().find(|node| Some(node.id) == tier.numa_node)?;
            Some(TierNode { tier: &tier.name, node })
        });
        let nodes: Vec<_> = nodes.collect();
        let routes = transfer::routes(&nodes);
        let mut transfers = Vec::new();
        for (index, (from, to)) in routes.iter().enumerate() {
            let left = (routes.len() - index) as u64;
            let allotment = self.allotment.share(SystemClock.wall(), 1, left);
            let copy = |_: &dyn Fn(Part)| copier.copy(*from, *to, allotment);
            match self.on_thread(|_, _| true, || (), copy)? {
                Ok(measured) => transfers.extend(measured),
                Err(skipped) => self.skipped.push(skipped),
            }
        }
        Ok(transfers)
    }
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

fn enter(matrix: &mut Matrix, pair: &Pair<'_>, figures: &Figures) {
    let index = |id| matrix.nodes.iter().position(|node| *node == id);
    let (Some(row), Some(column)) = (index(pair.initiator.id), index(pair.target.id)) else {
        return;
    };
    matrix.latency_ns[row][column] = figures.idle_latency_ns.map(tenths);
    matrix.read_bytes_per_s[row][column] = figures.read_bytes_per_s.map(whole);
}
