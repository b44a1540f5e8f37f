//! Copies a chunk from each tier of memory to each, itself included, as promotion and demotion do it.
//!
//! 1. Each tier is copied from and to its representative node, that of its figures. Where and by which CPUs
//!    is copied is said at [`Transfer`]; a copy within a tier is one within its node.
//! 2. A chunk is as long as asked, or shorter where the room does not allow two of them:
//!    [`Transfer::chunk_bytes`] says how long.
//! 3. One, two and four threads copy, through the caches and past them, in turns; all figures are kept.

use tierfeed_core::{
    id::NumaNode,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::kernels::has_non_temporal_stores;

use super::{
    allotment::Allotment,
    clock::{Clock, GuestClock},
    limits::Limits,
    memory::{
        MemoryError,
        arrays::{Arrays, BLOCK},
        buffer_max, check_allowed, locality, on_first_core,
        team::{Pass, Team, with_team},
    },
    sampler::take_turns,
};
use crate::{
    figures::{
        Skipped, Traffic, Transfer,
        estimate::{Estimate, to_f64},
    },
    inventory::{Inventory, node::Node},
    sysroot::Sysroot,
};

pub(crate) struct Copier<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) sysroot: Sysroot<'a>,
    pub(crate) limits: &'a Limits,
    pub(crate) counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// One, two and four.
    All,
    /// Two, as in a job, or one where there is one core.
    AsJobs,
}

/// A tier of memory and its representative node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TierNode<'a> {
    pub(crate) tier: &'a str,
    pub(crate) node: &'a Node,
}

/// Every ordered pair of `places`, which are sorted by speed; pairs from and to the fastest come first.
pub(crate) fn routes<'a>(places: &[TierNode<'a>]) -> Vec<(TierNode<'a>, TierNode<'a>)> {
    let mut routes: Vec<(usize, usize)> =
        (0..places.len()).flat_map(|from| (0..places.len()).map(move |to| (from, to))).collect();
    // What staging needs comes first, for a budget that ends early.
    routes.sort_by_key(|(from, to)| (*from.min(to), from + to));
    routes.into_iter().map(|(from, to)| (places[from], places[to])).collect()
}

impl Copier<'_> {
    /// Copies chunks along one route on the calling thread, whose affinity it changes; what fails is left out.
    pub(crate) fn copy(
        &self,
        from: TierNode<'_>,
        to: TierNode<'_>,
        allotment: Allotment<'_>,
    ) -> Result<Vec<Transfer>, Skipped> {
        self.try_copy(from, to, allotment).map_err(|error| Skipped {
            what: format!("copies from {} to {}", from.tier, to.tier),
            why: error.to_string(),
        })
    }

    fn try_copy(
        &self,
        from: TierNode<'_>,
        to: TierNode<'_>,
        allotment: Allotment<'_>,
    ) -> Result<Vec<Transfer>, MemoryError> {
        for place in [from, to] {
            check_allowed(self.inventory, place.node)?;
        }
        let initiator = self.initiator(from.node, to.node).ok_or(MemoryError::OutOfTime)?;
        let (cores, mut clock) = on_first_core(initiator, self.inventory, self.sysroot)?;
        if !allotment.goes_on(clock.wall()) {
            return Err(MemoryError::OutOfTime);
        }
        let chunk = self.chunk(from.node, to.node)?;
        let places = (locality(self.inventory, from.node), locality(self.inventory, to.node));
        let mut arrays = Arrays::between(places.0, places.1, chunk)?;
        let cores = &cores[..cores.len().min(THREADS_MAX)];
        let found = with_team(&mut arrays, NumaNode(initiator.id), cores, |team| {
            self.in_turns(team, &mut clock, allotment)
        })?;
        let found = found.into_iter().map(|(pass, rate)| transfer(from, to, chunk, pass, rate));
        let found = with_best(found.collect());
        if found.is_empty() { Err(MemoryError::OutOfTime) } else { Ok(found) }
    }

    fn initiator(&self, from: &Node, to: &Node) -> Option<&Node> {
        let find = |id: u32| self.inventory.nodes.iter().find(|node| node.id == id);
        let with_cpus = |node: &Node| find(node.id).filter(|node| !node.cpus.is_empty());
        with_cpus(to).or_else(|| with_cpus(from)).or_else(|| self.inventory.best_initiator(to))
    }

    /// Rule 2. Both may lie on one node.
    fn chunk(&self, from: &Node, to: &Node) -> Result<Bytes, MemoryError> {
        // A buffer may be a quarter of a quarter; these are two, which together may be a quarter.
        let max =
            |node| Ok::<_, MemoryError>(2 * buffer_max(node, locality(self.inventory, node))?.0);
        let wanted = self.limits.chunk.0.min(max(from)?).min(max(to)?);
        Ok(Bytes((wanted / BLOCK.0).max(1) * BLOCK.0))
    }

    fn in_turns(
        &self,
        team: &mut Team<'_>,
        clock: &mut GuestClock,
        allotment: Allotment<'_>,
    ) -> Vec<(Pass, Estimate)> {
        let passes = passes(self.counts, team.size(), team.block_count());
        let turns = take_turns(clock, team, allotment, SAMPLES_MIN, |left| {
            let time = Nanoseconds(self.limits.cell.0.min(left.0 / passes.len() as u64));
            passes.iter().map(|pass| (*pass, pass.cell(time))).collect()
        });
        let copied = to_f64(team.block_count() as u64 * BLOCK.0);
        let rates = turns.estimates();
        rates.filter_map(|(pass, time)| Some((*pass, time?.per_second(copied)))).collect()
    }
}

const THREADS_MAX: usize = 4;

/// This many copies are made on however busy a machine: planning depends on them.
const SAMPLES_MIN: usize = 3;

fn passes(counts: Counts, threads_max: usize, blocks: usize) -> Vec<Pass> {
    let kinds = [Traffic::Copy, Traffic::CopyNonTemporal];
    let kinds = if has_non_temporal_stores() { &kinds[..] } else { &kinds[..1] };
    let counts = match counts {
        Counts::All => vec![1, 2, THREADS_MAX],
        Counts::AsJobs => vec![threads_max.min(2)],
    };
    let counts = counts.into_iter().filter(|count| *count <= threads_max);
    counts
        .flat_map(|threads| kinds.iter().map(move |it| Pass { traffic: *it, threads, blocks }))
        .collect()
}

fn transfer(
    from: TierNode<'_>,
    to: TierNode<'_>,
    chunk: Bytes,
    pass: Pass,
    bytes_per_s: Estimate,
) -> Transfer {
    Transfer {
        from: from.tier.to_owned(),
        to: to.tier.to_owned(),
        is_best: false,
        threads: u32::try_from(pass.threads).unwrap_or(u32::MAX),
        non_temporal: pass.traffic.is_non_temporal(),
        chunk_bytes: chunk.0,
        bytes_per_s: bytes_per_s.rounded(),
    }
}

fn with_best(mut transfers: Vec<Transfer>) -> Vec<Transfer> {
    let rate = |it: &&mut Transfer| it.bytes_per_s.median;
    if let Some(best) = transfers.iter_mut().max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        best.is_best = true;
    }
    transfers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    #[test]
    fn chunks_are_copied_by_one_two_and_four_threads_as_cores_allow() {
        let threads = |most| -> Vec<usize> {
            let passes = passes(Counts::All, most, 8);
            assert!(passes.iter().all(|pass| pass.blocks == 8));
            let plain = passes.iter().filter(|pass| !pass.traffic.is_non_temporal());
            plain.map(|pass| pass.threads).collect()
        };
        assert_eq!(threads(1), [1]);
        assert_eq!(threads(3), [1, 2]);
        assert_eq!(threads(64), [1, 2, 4]);
        let all = passes(Counts::All, 4, 8).len();
        assert_eq!(all, if has_non_temporal_stores() { 6 } else { 3 });
        let as_jobs = |most| passes(Counts::AsJobs, most, 8).into_iter().map(|pass| pass.threads);
        assert!(as_jobs(1).all(|count| count == 1) && as_jobs(64).all(|count| count == 2));
    }

    #[test]
    fn the_cores_of_the_node_that_is_written_copy_if_it_has_any() {
        let machine = FakeSysroot::cxl_node();
        let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
        let limits = crate::probe::Budget::Quick.limits();
        let copier = Copier {
            inventory: &inventory,
            sysroot: Sysroot(machine.path()),
            limits: &limits,
            counts: Counts::All,
        };
        let by = |from: usize, to: usize| {
            copier.initiator(&inventory.nodes[from], &inventory.nodes[to]).unwrap().id
        };
        assert_eq!((by(0, 1), by(1, 0)), (1, 0));
        assert_eq!((by(2, 0), by(0, 2)), (0, 0), "node 2 has no CPUs");
        assert_eq!(by(2, 2), 1, "the firmware names node 1");
    }

    #[test]
    fn the_fastest_combination_is_marked_once() {
        let machine = FakeSysroot::single_node();
        let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
        let place = TierNode { tier: "main-memory", node: &inventory.nodes[0] };
        let passes = passes(Counts::All, 4, 8);
        let made = passes.iter().enumerate().map(|(index, pass)| {
            let rate = if index == 2 { 9e9 } else { 5e9 };
            transfer(place, place, Bytes::mib(2), *pass, Estimate::stated(rate))
        });
        let made = with_best(made.collect());
        let best: Vec<_> = made.iter().filter(|it| it.is_best).collect();
        assert_eq!(best.len(), 1);
        assert!(best[0].bytes_per_s.median > 8e9 && best[0].threads == 2);
    }
}
