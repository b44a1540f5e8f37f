//! Measures one pair, from the first buffer to the last batch.

use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::kernels::Chain;

use super::{
    MemoryError, Outcome, Part, Task,
    arrays::Arrays,
    buffer_max,
    caches::{self, Knee},
    latency::{self, Walk, Walks, buffer_of, footprint_of},
    loaded::{self, LoadedChain},
    plan::{self, Batch},
    sizing::{self, Caches, bound, to_bytes, whole_units},
    team::{Pass, Team, with_team},
};
use crate::{
    figures::{
        self, Skipped, Traffic,
        estimate::{Estimate, to_f64},
    },
    measure::{allotment::Allotment, clock::Clock, sampler::take_turns},
};

/// The share of the time for the bandwidth that a tier needs. It comes first: chains beyond large caches may
/// take all of the time of a busy machine.
const BANDWIDTH_SHARE: (u64, u64) = (1, 4);

/// The share of what is left after that for latency, including making its chains.
const LATENCY_SHARE: (u64, u64) = (1, 3);

/// The share of that for making the chain.
const CHAIN_SHARE: f64 = 0.3;

/// Several times the reach of any TLB with small pages.
const RANDOM_MIN: Bytes = Bytes::mib(64);

/// The idle latency is taken at least this often on however busy a machine: tiers depend on it.
const SAMPLES_MIN: usize = 5;

/// Length of the chain that is made to see how fast memory is touched.
const TRIAL: Bytes = Bytes::mib(32);

/// The share of what is then left for finding the caches.
const CACHES_SHARE: (u64, u64) = (1, 5);

/// The share of the time for touching the arrays.
const ARRAYS_SHARE: f64 = 0.2;

/// The weight of the latency under load beside the weights of the batches.
const LOADED_WEIGHT: u64 = 4;

pub(super) struct Measurement<'a, C> {
    task: &'a Task<'a>,
    cores: &'a [usize],
    place: Locality,
    clock: &'a mut C,
    caches: Caches,
    knee: Option<Knee>,
    /// The reason why the caches held too much of the buffers, if they did.
    bound: Option<String>,
    /// The rate at which memory is touched for the first time.
    touched_bytes_per_s: f64,
    /// Bytes in huge pages, and all bytes; `None` once the kernel did not tell.
    huge: Option<(u64, u64)>,
    pair: figures::Pair,
    skipped: Vec<Skipped>,
}

impl<'a, C: Clock> Measurement<'a, C> {
    /// The calling thread runs on the first of `cores`, whose clock `clock` is.
    pub(super) fn new(
        task: &'a Task<'a>,
        cores: &'a [usize],
        place: Locality,
        clock: &'a mut C,
    ) -> Self {
        let initiator = task.pair.initiator;
        Self {
            task,
            cores,
            place,
            clock,
            caches: sizing::stated(task.inventory, initiator),
            knee: task.knee,
            bound: None,
            touched_bytes_per_s: 0.0,
            huge: Some((0, 0)),
            pair: figures::Pair {
                initiator: initiator.id,
                target: task.pair.target.id,
                is_best: task.pair.is_best,
                ..figures::Pair::default()
            },
            skipped: Vec::new(),
        }
    }

    /// Measures everything for which there is time. `begin` is called before each part.
    pub(super) fn run(mut self, begin: &dyn Fn(Part)) -> Result<Outcome, MemoryError> {
        begin(Part::Bandwidth);
        self.settle_caches();
        let allowed = self.allowed()?;
        self.local_chain(whole_units(TRIAL.min(allowed)))?;
        match self.with_arrays(begin) {
            Ok(Ok(())) => {}
            // What was measured is kept if the rest fails.
            Ok(Err(error)) if self.pair.bandwidth.is_empty() => return Err(error),
            Ok(Err(error)) => self.skip("latency", &error.to_string()),
            Err(error) => {
                self.skip("bandwidth and latency under load", &error.to_string());
                begin(Part::Latency);
                self.latencies()?;
            }
        }
        Ok(self.outcome())
    }

    fn now(&mut self) -> Nanoseconds {
        self.clock.wall()
    }

    fn skip(&mut self, what: &str, why: &str) {
        let (target, initiator) = (self.pair.target, self.pair.initiator);
        let what = format!("{what}: memory of NUMA node {target} from node {initiator}");
        self.skipped.push(Skipped { what, why: why.to_owned() });
    }

    /// Both idle latencies, and what the caches hold.
    fn latencies(&mut self) -> Result<Chain, MemoryError> {
        let now = self.now();
        let allotment = self.task.allotment.share(now, LATENCY_SHARE.0, LATENCY_SHARE.1);
        if allotment.left(now).0 == 0 {
            return Err(MemoryError::OutOfTime);
        }
        let len = self.chain_len(allotment)?;
        let (chain, huge) = self.local_chain(len)?;
        self.add_huge(huge.map(|huge| (huge.0, len.0)));
        let random = self.random_chain(len, allotment)?;
        let limits = self.task.limits;
        let kinds = [Walk::Local, Walk::Random];
        let kinds = if random.is_some() { &kinds[..] } else { &kinds[..1] };
        let mut walks = Walks::new(chain, random, self.clock, limits.sample);
        let turns = take_turns(self.clock, &mut walks, allotment, SAMPLES_MIN, |left| {
            let time = left.0 / kinds.len() as u64;
            latency::cells(kinds, Nanoseconds(limits.cell.0.min(time)))
        });
        self.note_unsteady(turns.is_unsteady, "idle latency");
        for (walk, time) in turns.estimates() {
            let latency = time.map(|time| walks.latency(*walk, time).rounded());
            match walk {
                Walk::Local => self.pair.idle_latency_ns = latency,
                Walk::Random => self.pair.random_latency_ns = latency,
            }
        }
        // Only a probe that is told to stop has none.
        let Some(idle) = self.pair.idle_latency_ns else { return Err(MemoryError::OutOfTime) };
        self.find_caches(footprint_of(len), idle);
        Ok(walks.into_local())
    }

    fn chain_len(&mut self, allotment: Allotment<'_>) -> Result<Bytes, MemoryError> {
        let (cache, side_cache) = (self.caches.one.0, self.side_cache());
        let times = |count: u64| buffer_of(Bytes((count * cache).max(side_cache)));
        let allowed = self.allowed()?;
        let least = self.task.limits.buffer_min.max(times(2));
        Ok(self.len_between(least, times(4), allowed, (allotment, CHAIN_SHARE)))
    }

    fn array_len(&mut self) -> Result<Bytes, MemoryError> {
        let (caches, side_cache) = (self.caches.all.0, self.side_cache());
        let times = |count: u64| Bytes((count * caches).max(side_cache));
        let (allowed, share) = (self.allowed()?, (self.task.allotment, ARRAYS_SHARE / 3.0));
        Ok(self.len_between(times(2), times(4), allowed, share))
    }

    /// `most`, or less where touching it would take more than a share of the time, but not below `least`.
    fn len_between(
        &mut self,
        least: Bytes,
        most: Bytes,
        allowed: Bytes,
        (allotment, share): (Allotment<'_>, f64),
    ) -> Bytes {
        let left = to_f64(allotment.left(self.now()).0) / 1e9;
        let touchable = to_bytes(self.touched_bytes_per_s * left * share);
        let most = self.task.limits.buffer_min.max(most);
        whole_units(touchable.clamp(least, most).min(allowed))
    }

    fn allowed(&self) -> Result<Bytes, MemoryError> {
        Ok(buffer_max(self.task.pair.target, self.place)?.min(self.task.limits.buffer_max))
    }

    fn side_cache(&self) -> u64 {
        2 * self.task.pair.target.memory_side_cache_bytes
    }

    /// A chain, and the bytes of it in huge pages. Notes how fast it was made.
    fn local_chain(&mut self, len: Bytes) -> Result<(Chain, Option<Bytes>), MemoryError> {
        let begun = self.now();
        let made = latency::local_chain(self.place, len)?;
        let took = self.now().0.saturating_sub(begun.0).max(1);
        self.touched_bytes_per_s = to_f64(len.0) * 1e9 / to_f64(took);
        Ok(made)
    }

    /// A chain as long as the other, within its own limit, or as long as there is time for.
    fn random_chain(
        &mut self,
        len: Bytes,
        allotment: Allotment<'_>,
    ) -> Result<Option<Chain>, MemoryError> {
        // Small pages, and an order that no cache holds, take several times as long.
        const SLOWER: f64 = 4.0;
        let wanted = len.min(self.task.limits.random_buffer);
        let left = to_f64(allotment.left(self.now()).0) / 1e9;
        let possible = to_bytes(self.touched_bytes_per_s * left / 2.0 / SLOWER);
        if possible < wanted.min(RANDOM_MIN) {
            self.skip("random latency", OUT_OF_TIME);
            return Ok(None);
        }
        latency::random_chain(self.place, whole_units(wanted.min(possible))).map(Some)
    }

    /// Finds the real size of the initiator's caches, if that is not known yet, and then whether they held
    /// too much of the chain.
    fn find_caches(&mut self, footprint: Bytes, idle: Estimate) {
        if self.knee.is_none() {
            let now = self.now();
            let part = self.task.allotment.share(now, CACHES_SHARE.0, CACHES_SHARE.1);
            let readings = caches::sweep(self.place, footprint, self.clock, part);
            match readings {
                // Cut short, it would show a knee that is the end of the sweep.
                Ok(_) if !part.goes_on(self.now()) => {
                    self.skip("what the caches hold", OUT_OF_TIME);
                }
                Ok(readings) => self.knee = caches::knee(&readings, idle.median),
                Err(error) => self.skip("what the caches hold", &error.to_string()),
            }
        }
        self.settle_caches();
        if self.knee.is_some_and(|knee| knee.is_open) {
            self.note_bound(bound(footprint, footprint));
        }
        self.note_bound(bound(footprint, self.caches.one));
    }

    fn settle_caches(&mut self) {
        let inventory = self.task.inventory;
        let stated = sizing::stated(inventory, self.task.pair.initiator);
        let is_guest = inventory.processor.is_virtual == Some(true);
        self.caches = self.knee.map_or(stated, |knee| sizing::effective(stated, knee, is_guest));
        self.pair.cache_bytes = self.caches.all.0;
    }

    /// Measures the bandwidths, and between them the latencies. The outer error means that nothing was
    /// measured.
    fn with_arrays(
        &mut self,
        begin: &dyn Fn(Part),
    ) -> Result<Result<(), MemoryError>, MemoryError> {
        let len = self.array_len()?;
        let mut arrays = Arrays::allocate(self.place, len)?;
        self.add_huge(arrays.huge_page_bytes());
        self.pair.buffer_bytes = len.0;
        let (node, cores) = (NumaNode(self.task.pair.initiator.id), self.cores);
        let measured = with_team(&mut arrays, node, cores, |team| self.with_team(team, begin))?;
        self.note_bound(bound(len, self.caches.all));
        Ok(measured)
    }

    fn with_team(&mut self, team: &mut Team<'_>, begin: &dyn Fn(Part)) -> Result<(), MemoryError> {
        let batches = plan::batches(self.cores.len());
        let (first, rest) = batches.split_first().expect("a first batch is never empty");
        let now = self.now();
        let part = self.task.allotment.share(now, BANDWIDTH_SHARE.0, BANDWIDTH_SHARE.1);
        self.batch(team, first, part);
        begin(Part::Latency);
        let mut chain = self.latencies();
        begin(Part::LoadedLatency);
        let mut weight = rest.iter().map(|batch| batch.weight).sum::<u64>() + LOADED_WEIGHT;
        if let Ok(chain) = &mut chain {
            let now = self.now();
            let part = self.task.allotment.share(now, LOADED_WEIGHT, weight);
            self.loaded_latency(team, chain, part);
        }
        weight -= LOADED_WEIGHT;
        begin(Part::MoreBandwidth);
        for batch in rest {
            let now = self.now();
            let part = self.task.allotment.share(now, batch.weight, weight);
            self.batch(team, batch, part);
            weight -= batch.weight;
        }
        chain.map(drop)
    }

    fn batch(&mut self, team: &mut Team<'_>, batch: &Batch, allotment: Allotment<'_>) {
        let limits = self.task.limits;
        let left = allotment.left(self.now());
        let is_worth = plan::is_worth_starting(batch.cells.len(), left, limits.sample);
        let starts = is_worth || (batch.is_needed && left.0 > 0);
        if !starts {
            return self.skip(batch.name, OUT_OF_TIME);
        }
        let pass = |(traffic, threads): &(Traffic, usize)| Pass {
            traffic: *traffic,
            threads: *threads,
            blocks: 0,
        };
        let passes = batch.cells.iter().map(pass);
        let passes: Vec<Pass> = passes.map(|it| team.calibrated(it, limits.sample)).collect();
        let turns = take_turns(self.clock, team, allotment, 1, |left| {
            let time = Nanoseconds(limits.cell.0.min(left.0 / passes.len().max(1) as u64));
            passes.iter().map(|pass| (*pass, pass.cell(time))).collect()
        });
        self.note_unsteady(turns.is_unsteady, batch.name);
        let found = turns.estimates().filter_map(|(pass, time)| Some(pass.bandwidth(time?)));
        self.pair.bandwidth.extend(found);
    }

    fn loaded_latency(&mut self, team: &mut Team<'_>, chain: &mut Chain, allotment: Allotment<'_>) {
        const WHAT: &str = "latency under load";
        if team.size() == 1 {
            return self.skip(WHAT, "one core can be used, two are needed");
        }
        let limits = self.task.limits;
        let window = Nanoseconds(limits.sample.0 / 4);
        let mut loaded = LoadedChain { chain, window, point: limits.cell };
        // The batch has one thread first.
        let read = self.pair.bandwidth.iter().find(|it| it.traffic == Traffic::Read);
        let curve = read.and_then(|read| {
            let alone = read.bytes_per_s.median;
            loaded::curve(team, self.clock, &mut loaded, alone, allotment)
        });
        match curve {
            Some(curve) => self.pair.loaded_latency.push(curve),
            None => self.skip(WHAT, OUT_OF_TIME),
        }
    }

    /// The first reason stands.
    fn note_bound(&mut self, bound: Option<String>) {
        self.bound = self.bound.take().or(bound);
    }

    fn add_huge(&mut self, more: Option<(u64, u64)>) {
        let sum = |(a, b): (u64, u64), (c, d): (u64, u64)| (a + c, b + d);
        self.huge = self.huge.zip(more).map(|(so_far, more)| sum(so_far, more));
    }

    fn note_unsteady(&mut self, is_unsteady: bool, what: &str) {
        if is_unsteady {
            let remark = format!("{what}: the frequency of the core changed meanwhile, twice");
            self.pair.remarks.push(remark);
        }
    }

    fn outcome(mut self) -> Outcome {
        let share = self.huge.map(|(huge, all)| to_f64(huge) / to_f64(all.max(1)));
        self.pair.huge_page_share = share.map(|share| (share * 1000.0).round() / 1000.0);
        self.pair.cache_bound = self.bound.is_some();
        // No load makes memory faster: the lower of what was taken without traffic is the idle latency.
        let curves = self.pair.loaded_latency.iter();
        let unloaded = curves.filter_map(|curve| curve.points.first()).map(|it| it.latency_ns);
        let unloaded = unloaded.chain(self.pair.idle_latency_ns);
        self.pair.idle_latency_ns = unloaded.min_by(|a, b| a.median.total_cmp(&b.median));
        let has_loaded = self.pair.loaded_latency.iter().any(|it| it.at_50_percent_ns.is_some());
        if has_loaded && self.pair.figures().loaded_latency_ns.is_none() {
            let remark =
                "latency under load came out below the idle one: the machine was disturbed";
            self.pair.remarks.push(remark.to_owned());
        }
        let percent = self.pair.huge_page_share.unwrap_or_default() * 100.0;
        let small_pages = self.pair.lacks_huge_pages().then(|| {
            format!(
                "{percent:.0} % of the buffers lie in huge pages, 90 % are needed: latency holds misses \
                 of the TLB; see /sys/kernel/mm/transparent_hugepage/enabled"
            )
        });
        let unusable: Vec<String> = self.bound.into_iter().chain(small_pages).collect();
        self.pair.remarks.extend(unusable.iter().cloned());
        Outcome { pair: self.pair, unusable, skipped: self.skipped, knee: self.knee }
    }
}

const OUT_OF_TIME: &str = "out of time";

#[cfg(test)]
mod tests;
