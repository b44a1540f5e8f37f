//! One round of measurements, step by step, with its progress and its end.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use tierfeed_core::{id::NumaNode, units::Nanoseconds};

use super::{
    Limits, ProbeError, ProbeSettings, Progress, Step,
    place::{Place, Unmeasured},
};
#[cfg(feature = "object-store")]
use crate::measure::buckets;
use crate::{
    classify::{self, Ruling},
    figures::{self, Skipped, Transfer, tenths, whole},
    inventory::Inventory,
    measure::{
        allotment::Allotment,
        clock::{Clock, SystemClock},
        directory,
        memory::{self, Pair, Part, Task},
        transfer::{self, Porter},
    },
    report::{Matrix, Tier},
    sysroot::Sysroot,
};

/// One round of measurements, step by step.
pub(super) struct Round<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) ruling: Ruling<'a>,
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

type MeasuredPairs = (Matrix, Vec<Place>, Vec<figures::Pair>);

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

    #[cfg(feature = "object-store")]
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
            match buckets::figures(bucket, &self.limits)? {
                Ok(figures) => found.push(figures),
                Err(skipped) => self.skipped.push(skipped),
            }
        }
        Ok(found)
    }

    #[cfg(not(feature = "object-store"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
    pub(super) fn measure_buckets(
        &mut self,
        _settings: &ProbeSettings,
    ) -> Result<Vec<figures::ObjectStore>, ProbeError> {
        Ok(Vec::new())
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
        let profiles = classify::host_profiles(self.inventory, &reports, &self.ruling);
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
        });
        let outcome = outcome.map_err(ProbeError::Thread)?;
        self.done = behind;
        self.check_stopped()?;
        Ok(outcome.map_err(Unmeasured::Memory))
    }

    fn check_stopped(&mut self) -> Result<(), ProbeError> {
        if self.is_stopped.load(Ordering::Relaxed) || (self.stop)() {
            return Err(ProbeError::Interrupted);
        }
        Ok(())
    }

    /// `count` directories are left, this one included.
    pub(super) fn measure_directory(
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
        });
        let outcome = outcome.map_err(ProbeError::Thread)?;
        self.check_stopped()?;
        Ok(outcome.map_err(Unmeasured::Directory))
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

    pub(super) fn measure_transfers(
        &mut self,
        tiers: &[Tier],
    ) -> Result<Vec<Transfer>, ProbeError> {
        self.announce(Step::Transfers)?;
        if !self.sysroot.is_live() {
            return Ok(Vec::new());
        }
        let limits = self.limits;
        let Self { inventory, sysroot, is_stopped, .. } = *self;
        let porter = Porter { inventory, sysroot, limits: &limits };
        let places = tiers.iter().filter_map(|tier| {
            let node = inventory.nodes.iter().find(|node| Some(node.id) == tier.numa_node)?;
            Some(transfer::Place { tier: &tier.name, node })
        });
        let places: Vec<_> = places.collect();
        let routes = transfer::routes(&places);
        let mut transfers = Vec::new();
        for (index, (from, to)) in routes.iter().enumerate() {
            let left = (routes.len() - index) as u64;
            let allotment = self.allotment.share(SystemClock.wall(), 1, left);
            let mut watch = |_| {
                if (self.stop)() {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            };
            let copied = porter.copy(*from, *to, allotment, &mut watch);
            let copied = copied.map_err(ProbeError::Thread)?;
            self.check_stopped()?;
            match copied {
                Ok(copied) => transfers.extend(copied),
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

fn enter(matrix: &mut Matrix, pair: &Pair<'_>, outcome: &Result<memory::Measured, Unmeasured>) {
    let index = |id| matrix.nodes.iter().position(|node| *node == id);
    let (Some(row), Some(column)) = (index(pair.initiator.id), index(pair.target.id)) else {
        return;
    };
    let Ok(measured) = outcome else { return };
    matrix.latency_ns[row][column] = measured.figures.idle_latency_ns.map(tenths);
    matrix.read_bytes_per_s[row][column] = measured.figures.read_bytes_per_s.map(whole);
}
