//! The course of the measurement of one pair, from the first buffer to the last batch.

use std::{
    io,
    sync::atomic::AtomicBool,
    thread::{self, Scope},
};

use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::{affinity, kernels::Chain};

use super::{
    CacheBound, Measured, MemoryError, Outcome, Part, Task,
    arrays::{Arrays, Yard},
    buffer_max,
    caches::{self, Knee},
    crew::{Crew, Pass},
    latency::{self, Walk, Walks, buffer_of, footprint_of},
    loaded::{self, Chaser},
    plan::{self, Batch},
    rate::{bandwidth, bandwidth_cell},
    sizing::{self, Caches, bound, to_bytes, whole_units},
};
use crate::{
    figures::{
        self, Bandwidth, Figures, Skipped, Traffic,
        estimate::{Estimate, to_f64},
    },
    measure::{
        allotment::Allotment,
        clock::{Clock, is_guest},
        pace::take_turns,
        sampler::Sampler,
    },
};

/// How much of the time the buffers and chains for latency may get, and latency itself.
const LATENCY_SHARE: (u64, u64) = (1, 4);

/// How much of that the chain may take to be made.
const CHAIN_SHARE: f64 = 0.3;

/// Several times what any TLB reaches with small pages.
const RANDOM_MIN: Bytes = Bytes::mib(64);

/// So often the idle latency is taken on however busy a machine: tiers hang on it.
const SAMPLES_MIN: usize = 5;

/// What is made to see how fast memory is touched.
const TRIAL: Bytes = Bytes::mib(32);

/// How much of what is left then finding the caches may take.
const CACHES_SHARE: (u64, u64) = (1, 5);

/// How much of what is left then the arrays may take to be touched.
const ARRAYS_SHARE: f64 = 0.25;

/// The time of the curves beside that of the batches.
const CURVES_WEIGHT: u64 = 4;

/// One pair being measured.
pub(super) struct Course<'a, C> {
    task: &'a Task<'a>,
    cores: &'a [usize],
    place: Locality,
    sampler: Sampler<'a, C>,
    caches: Caches,
    knee: Option<Knee>,
    bound: Option<CacheBound>,
    /// How fast memory is touched for the first time.
    touched_bytes_per_s: f64,
    /// What lies in huge pages, and of how much; `None` once the kernel did not tell.
    huge: Option<(u64, u64)>,
    pair: figures::Pair,
    loaded_latency_ns: Option<Estimate>,
    skipped: Vec<Skipped>,
}

impl<'a, C: Clock> Course<'a, C> {
    /// Pins the calling thread to the first of `cores`.
    pub(super) fn new(
        task: &'a Task<'a>,
        cores: &'a [usize],
        place: Locality,
        clock: &'a mut C,
    ) -> Result<Self, MemoryError> {
        let initiator = task.pair.initiator;
        affinity::pin_current_thread(&cores[..1]).map_err(|source| affinity_error(task, source))?;
        Ok(Self {
            task,
            cores,
            place,
            sampler: Sampler::new(clock),
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
            loaded_latency_ns: None,
            skipped: Vec::new(),
        })
    }

    /// Measures everything for which there is time. `begin` is told each part before it begins.
    pub(super) fn run(mut self, begin: &dyn Fn(Part)) -> Result<Outcome, MemoryError> {
        begin(Part::Latency);
        let mut chain = self.latencies()?;
        begin(Part::Bandwidth);
        // The latencies stand, whatever becomes of the rest.
        if let Err(error) = self.bandwidths(&mut chain, begin) {
            self.skip("bandwidth and latency under load", &error.to_string());
        }
        Ok(self.outcome())
    }

    fn now(&mut self) -> Nanoseconds {
        self.sampler.clock().wall()
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
        let mut walks = Walks::new(chain, random, &mut self.sampler, limits.sample);
        let turns = take_turns(&mut self.sampler, &mut walks, allotment, SAMPLES_MIN, |left| {
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

    /// Four times the cache, or twice where memory is touched so slowly that four times would take all
    /// the time.
    fn chain_len(&mut self, allotment: Allotment<'_>) -> Result<Bytes, MemoryError> {
        let limits = self.task.limits;
        let target = self.task.pair.target;
        let side_cache = 2 * target.memory_side_cache_bytes;
        let times = |count: u64| buffer_of(Bytes((count * self.caches.one.0).max(side_cache)));
        let (least, most) = (limits.buffer_min.max(times(2)), limits.buffer_min.max(times(4)));
        let allowed = buffer_max(target, self.place)?.min(limits.buffer_max);
        self.local_chain(whole_units(TRIAL.min(allowed)))?;
        let left = to_f64(allotment.left(self.now()).0) / 1e9;
        let touchable = to_bytes(self.touched_bytes_per_s * left * CHAIN_SHARE);
        Ok(whole_units(touchable.clamp(least, most).min(allowed)))
    }

    /// A chain, and what of it lies in huge pages. Notes how fast it was made.
    fn local_chain(&mut self, len: Bytes) -> Result<(Chain, Option<Bytes>), MemoryError> {
        let begun = self.now();
        let made = latency::local_chain(self.place, len)?;
        let took = self.now().0.saturating_sub(begun.0).max(1);
        self.touched_bytes_per_s = to_f64(len.0) * 1e9 / to_f64(took);
        Ok(made)
    }

    /// As long as the other, within its own limit, or as long as there is time for.
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

    /// Where nobody looked yet: what the caches of the initiator really hold. Then whether they held too
    /// much of the chain.
    fn find_caches(&mut self, footprint: Bytes, idle: Estimate) {
        if self.knee.is_none() {
            let now = self.now();
            let part = self.task.allotment.share(now, CACHES_SHARE.0, CACHES_SHARE.1);
            let readings = caches::sweep(self.place, footprint, &mut self.sampler, part);
            match readings {
                // Cut short, it would show a knee that is the end of the sweep.
                Ok(_) if !part.goes_on(self.now()) => {
                    self.skip("what the caches hold", OUT_OF_TIME);
                }
                Ok(readings) => self.knee = caches::knee(&readings, idle.median),
                Err(error) => self.skip("what the caches hold", &error.to_string()),
            }
        }
        let stated = self.caches;
        if let Some(knee) = self.knee {
            self.caches = sizing::effective(stated, knee, is_guest(self.task.sysroot));
            let open = knee.is_open.then_some(CacheBound { buffer: footprint, cache: footprint });
            self.bound = self.bound.or(open);
        }
        self.pair.cache_bytes = self.caches.all.0;
        self.bound = self.bound.or(bound(footprint, self.caches.one));
    }

    /// As [`Self::chain_len`], for three arrays that all cores share.
    fn array_len(&mut self) -> Result<Bytes, MemoryError> {
        let limits = self.task.limits;
        let target = self.task.pair.target;
        let side_cache = 2 * target.memory_side_cache_bytes;
        let times = |count: u64| Bytes((count * self.caches.all.0).max(side_cache));
        let (least, most) = (times(2), limits.buffer_min.max(times(4)));
        let left = to_f64(self.task.allotment.left(self.now()).0) / 1e9;
        let touchable = to_bytes(self.touched_bytes_per_s * left * ARRAYS_SHARE / 3.0);
        let allowed = buffer_max(target, self.place)?.min(limits.buffer_max);
        Ok(whole_units(touchable.clamp(least, most).min(allowed)))
    }

    fn bandwidths(&mut self, chain: &mut Chain, begin: &dyn Fn(Part)) -> Result<(), MemoryError> {
        let len = self.array_len()?;
        let mut arrays = Arrays::allocate(self.place, len)?;
        self.add_huge(arrays.huge_page_bytes());
        self.pair.buffer_bytes = len.0;
        self.bound = self.bound.or(bound(len, self.caches.all));
        let yard = arrays.yard(self.cores.len());
        let halt = AtomicBool::new(false);
        thread::scope(|scope| self.with_crew(scope, &yard, &halt, chain, begin))
    }

    fn with_crew<'scope, 'yard>(
        &mut self,
        scope: &'scope Scope<'scope, 'yard>,
        yard: &'yard Yard<'yard>,
        halt: &'yard AtomicBool,
        chain: &mut Chain,
        begin: &dyn Fn(Part),
    ) -> Result<(), MemoryError> {
        let crew = Crew::start(scope, yard, halt, &self.cores[1..]);
        let mut crew = crew.map_err(|source| affinity_error(self.task, source))?;
        let batches = plan::batches(self.cores.len());
        let mut weight = batches.iter().map(|batch| batch.weight).sum::<u64>() + CURVES_WEIGHT;
        for (index, batch) in batches.iter().enumerate() {
            let now = self.now();
            let part = self.task.allotment.share(now, batch.weight, weight);
            self.batch(&mut crew, batch, part);
            weight -= batch.weight;
            if index == 0 {
                begin(Part::LoadedLatency);
                let now = self.now();
                let part = self.task.allotment.share(now, CURVES_WEIGHT, weight);
                self.curves(&mut crew, chain, part);
                weight -= CURVES_WEIGHT;
                begin(Part::MoreBandwidth);
            }
        }
        Ok(())
    }

    fn batch(&mut self, crew: &mut Crew<'_>, batch: &Batch, allotment: Allotment<'_>) {
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
        let passes: Vec<Pass> = passes.map(|it| crew.calibrated(it, limits.sample)).collect();
        let turns = take_turns(&mut self.sampler, crew, allotment, 1, |left| {
            let time = limits.cell.0.min(left.0 / passes.len().max(1) as u64);
            passes.iter().map(|pass| (*pass, bandwidth_cell(*pass, Nanoseconds(time)))).collect()
        });
        self.note_unsteady(turns.is_unsteady, batch.name);
        let found = turns.estimates().filter_map(|(pass, time)| Some(bandwidth(*pass, time?)));
        self.pair.bandwidth.extend(found);
    }

    fn curves(&mut self, crew: &mut Crew<'_>, chain: &mut Chain, allotment: Allotment<'_>) {
        if crew.size() == 1 {
            return self.skip("latency under load", "one core can be used, two are needed");
        }
        let limits = self.task.limits;
        let window = Nanoseconds(limits.sample.0 / 4);
        for (index, traffic) in limits.curves.iter().enumerate() {
            let now = self.now();
            let part = allotment.share(now, 1, (limits.curves.len() - index) as u64);
            let alone =
                self.pair.bandwidth.iter().find(|it| it.threads == 1 && it.traffic == *traffic);
            let rate = alone.map(|it| it.bytes_per_s.median).or_else(|| self.read_rate());
            let mut chaser = Chaser { chain, window, point: limits.cell };
            let curve = rate.and_then(|rate| {
                loaded::curve(crew, &mut self.sampler, &mut chaser, *traffic, rate, part)
            });
            let Some(curve) = curve else {
                self.skip("latency under load", OUT_OF_TIME);
                continue;
            };
            if *traffic == Traffic::Read {
                self.loaded_latency_ns = loaded::latency_at(&curve.points, 0.5);
            }
            self.pair.loaded_latency.push(curve);
        }
    }

    fn read_rate(&self) -> Option<f64> {
        let read = |it: &&Bandwidth| it.traffic == Traffic::Read;
        self.pair.bandwidth.iter().find(read).map(|it| it.bytes_per_s.median)
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
        let huge_page_share = share.map(|share| (share * 1000.0).round() / 1000.0);
        let curves = self.pair.loaded_latency.iter();
        let unloaded = curves.filter_map(|curve| curve.points.first()).map(|it| it.latency_ns);
        let (idle, loaded) =
            loaded::agreed(self.pair.idle_latency_ns, unloaded, self.loaded_latency_ns);
        if loaded.is_none() && self.loaded_latency_ns.is_some() {
            let remark =
                "latency under load came out below the idle one: the machine was disturbed";
            self.pair.remarks.push(remark.to_owned());
        }
        self.pair.idle_latency_ns = idle;
        let best = |traffic| self.pair.best(traffic).map(|it| it.bytes_per_s);
        let figures = Figures {
            read_bytes_per_s: best(Traffic::Read),
            write_bytes_per_s: best(Traffic::Write),
            // STREAM counts what is read and what is written; a copy is what arrives.
            copy_bytes_per_s: best(Traffic::Copy).map(|rate| rate.divided_by(2.0)),
            triad_bytes_per_s: best(Traffic::Triad),
            idle_latency_ns: idle,
            loaded_latency_ns: loaded.map(Estimate::rounded),
            random_read_iops: None,
        };
        let measured = Measured { figures, cache_bound: self.bound, huge_page_share };
        self.pair.cache_bound = self.bound.is_some();
        self.pair.huge_page_share = huge_page_share;
        self.pair.remarks.extend(measured.remarks());
        Outcome { measured, pair: self.pair, skipped: self.skipped, knee: self.knee }
    }
}

const OUT_OF_TIME: &str = "out of time";

fn affinity_error(task: &Task<'_>, source: io::Error) -> MemoryError {
    MemoryError::Affinity { node: NumaNode(task.pair.initiator.id), source }
}

#[cfg(test)]
mod tests;
