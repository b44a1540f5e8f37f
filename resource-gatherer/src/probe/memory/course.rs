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
    arrays::{Arrays, BLOCK, Yard},
    buffer_max,
    caches::{self, Knee},
    crew::{Crew, Pass},
    latency::{self, Walk, Walks, buffer_of, footprint_of},
    loaded::{self, Chaser},
    plan::{self, Batch},
    work,
};
use crate::{
    inventory::{Inventory, node::Node},
    probe::{
        allotment::Allotment,
        cell::{Cell, StopRule},
        clock::{Clock, is_guest},
        estimate::{Estimate, to_f64, to_tenths},
        pace::take_turns,
        sampler::Sampler,
    },
    report::{self, Bandwidth, Figures, Skipped, Traffic},
};

/// Chains and arrays are multiples of this: whole huge pages, whole groups, whole blocks.
const BUFFER_UNIT: Bytes = Bytes(2 << 20);

/// How much of the time the buffers and chains for latency may get, and latency itself.
const LATENCY_SHARE: (u64, u64) = (1, 4);

/// How much of what is left then finding the caches may take.
const CACHES_SHARE: (u64, u64) = (1, 5);

/// How much of what is left then the arrays may take to be touched.
const ARRAYS_SHARE: f64 = 0.25;

/// The time of the curves beside that of the batches.
const CURVES_WEIGHT: u64 = 4;

/// What the last-level caches hold.
#[derive(Debug, Clone, Copy)]
struct Caches {
    /// One of them, which one core sees.
    one: Bytes,
    /// All of the node together, which all cores see.
    all: Bytes,
}

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
    pair: report::Pair,
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
            caches: stated(task.inventory, initiator),
            knee: task.knee,
            bound: None,
            touched_bytes_per_s: 0.0,
            huge: Some((0, 0)),
            pair: report::Pair {
                initiator: initiator.id,
                target: task.pair.target.id,
                is_best: task.pair.is_best,
                ..report::Pair::default()
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
        self.bandwidths(&mut chain, begin)?;
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
        let len = self.chain_len()?;
        let chain = self.local_chain(len)?;
        let random = self.random_chain(len, allotment)?;
        let limits = self.task.limits;
        let kinds = [Walk::Local, Walk::Random];
        let kinds = if random.is_some() { &kinds[..] } else { &kinds[..1] };
        let mut walks = Walks::new(chain, random, &mut self.sampler, limits.sample);
        let turns = take_turns(&mut self.sampler, &mut walks, allotment, |left| {
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
        let Some(idle) = self.pair.idle_latency_ns else { return Err(MemoryError::OutOfTime) };
        self.find_caches(footprint_of(len), idle)?;
        Ok(walks.into_local())
    }

    fn chain_len(&self) -> Result<Bytes, MemoryError> {
        let limits = self.task.limits;
        let target = self.task.pair.target;
        let footprint = (4 * self.caches.one.0).max(2 * target.memory_side_cache_bytes);
        let wanted = limits.buffer_min.max(buffer_of(Bytes(footprint)));
        let allowed = buffer_max(target, self.place)?.min(limits.buffer_max);
        Ok(whole_units(wanted.min(allowed)))
    }

    fn local_chain(&mut self, len: Bytes) -> Result<Chain, MemoryError> {
        let begun = self.now();
        let (chain, huge) = latency::local_chain(self.place, len)?;
        let took = self.now().0.saturating_sub(begun.0).max(1);
        self.touched_bytes_per_s = to_f64(len.0) * 1e9 / to_f64(took);
        self.add_huge(huge.map(|huge| (huge.0, len.0)));
        Ok(chain)
    }

    /// As long as the other, within its own limit, unless that took too long already.
    fn random_chain(
        &mut self,
        len: Bytes,
        allotment: Allotment<'_>,
    ) -> Result<Option<Chain>, MemoryError> {
        let len = whole_units(len.min(self.task.limits.random_buffer));
        let left = allotment.left(self.now());
        // Small pages take several times as long as huge ones.
        let takes_ns = 4.0 * to_f64(len.0) * 1e9 / self.touched_bytes_per_s;
        if takes_ns > to_f64(left.0) / 2.0 {
            self.skip("random latency", OUT_OF_TIME);
            return Ok(None);
        }
        latency::random_chain(self.place, len).map(Some)
    }

    /// Where nobody looked yet: what the caches of the initiator really hold. Then whether they held too
    /// much of the chain.
    fn find_caches(&mut self, footprint: Bytes, idle: Estimate) -> Result<(), MemoryError> {
        if self.knee.is_none() {
            let now = self.now();
            let part = self.task.allotment.share(now, CACHES_SHARE.0, CACHES_SHARE.1);
            let readings = caches::sweep(self.place, footprint, &mut self.sampler, part)?;
            // Cut short, it would show a knee that is the end of the sweep.
            if part.goes_on(self.now()) {
                self.knee = caches::knee(&readings, idle.median);
            } else {
                self.skip("what the caches hold", OUT_OF_TIME);
            }
        }
        let stated = self.caches;
        if let Some(knee) = self.knee {
            self.caches = effective(stated, knee, is_guest(self.task.sysroot));
            let open = knee.is_open.then_some(CacheBound { buffer: footprint, cache: footprint });
            self.bound = self.bound.or(open);
        }
        self.pair.cache_bytes = self.caches.all.0;
        self.bound = self.bound.or(bound(footprint, self.caches.one));
        Ok(())
    }

    fn array_len(&mut self) -> Result<Bytes, MemoryError> {
        let limits = self.task.limits;
        let target = self.task.pair.target;
        let left = to_f64(self.task.allotment.left(self.now()).0) / 1e9;
        let touchable = self.touched_bytes_per_s * left * ARRAYS_SHARE / 3.0;
        let wanted = limits.buffer_min.0.max(4 * self.caches.all.0);
        let wanted = wanted.max(2 * target.memory_side_cache_bytes).min(limits.buffer_max.0);
        let allowed = buffer_max(target, self.place)?;
        Ok(whole_units(Bytes(wanted).min(allowed).min(to_bytes(touchable))))
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
        let turns = take_turns(&mut self.sampler, crew, allotment, |left| {
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
            let mut chaser = Chaser { chain, window };
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
        let best = |traffic| self.pair.best(traffic).map(|it| it.bytes_per_s);
        let figures = Figures {
            read_bytes_per_s: best(Traffic::Read),
            write_bytes_per_s: best(Traffic::Write),
            // STREAM counts what is read and what is written; a copy is what arrives.
            copy_bytes_per_s: best(Traffic::Copy).map(|rate| rate.divided_by(2.0)),
            triad_bytes_per_s: best(Traffic::Triad),
            idle_latency_ns: self.pair.idle_latency_ns,
            loaded_latency_ns: self.loaded_latency_ns.map(Estimate::rounded),
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

/// What the interval of a bandwidth is narrowed to.
pub(super) const BANDWIDTH_HALF_WIDTH: f64 = 0.02;

pub(crate) fn bandwidth_cell(pass: Pass, time: Nanoseconds) -> Cell {
    let rule =
        StopRule { half_width: BANDWIDTH_HALF_WIDTH, samples_min: 10, samples_max: 100, time };
    Cell::new(rule, pass.occupation())
}

/// The rate of `pass`, which takes `time` nanoseconds.
pub(super) fn rate(pass: Pass, time: Estimate) -> Estimate {
    time.per_second(to_f64(work::block_bytes(pass.traffic)) * to_f64(pass.blocks as u64))
}

fn bandwidth(pass: Pass, time: Estimate) -> Bandwidth {
    let bytes_per_s = rate(pass, time).rounded();
    let bus = bytes_per_s.median * work::bus_factor(pass.traffic);
    Bandwidth {
        traffic: pass.traffic,
        threads: u32::try_from(pass.threads).unwrap_or(u32::MAX),
        bytes_per_s,
        bus_bytes_per_s: to_tenths(bus),
    }
}

/// What the kernel, or the hypervisor below it, says of the last-level caches of `node`.
fn stated(inventory: &Inventory, node: &Node) -> Caches {
    let local =
        || inventory.caches.iter().filter(|it| it.cpus.iter().any(|cpu| node.cpus.contains(cpu)));
    let level = local().map(|cache| cache.level).max();
    let last = local().filter(|cache| Some(cache.level) == level);
    let one = last.map(|cache| cache.size_bytes).max().unwrap_or(0);
    Caches { one: Bytes(one), all: Bytes(inventory.last_level_cache_bytes(node)) }
}

/// What the caches hold: a hypervisor's statement counts for nothing beside the knee.
fn effective(stated: Caches, knee: Knee, is_guest: bool) -> Caches {
    let one = if is_guest { knee.cache } else { knee.cache.max(stated.one) };
    let count = stated.all.0.checked_div(stated.one.0).unwrap_or(1).max(1);
    Caches { one, all: Bytes(one.0 * count) }
}

fn bound(buffer: Bytes, cache: Bytes) -> Option<CacheBound> {
    (buffer.0 < 2 * cache.0).then_some(CacheBound { buffer, cache })
}

fn whole_units(bytes: Bytes) -> Bytes {
    const { assert!(BUFFER_UNIT.0.is_multiple_of(BLOCK.0)) };
    Bytes((bytes.0 / BUFFER_UNIT.0).max(1) * BUFFER_UNIT.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive, and the cast saturates"
)]
fn to_bytes(value: f64) -> Bytes {
    Bytes(value as u64)
}

fn affinity_error(task: &Task<'_>, source: io::Error) -> MemoryError {
    MemoryError::Affinity { node: NumaNode(task.pair.initiator.id), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fake_sysroot::FakeSysroot,
        probe::{
            clock::SystemClock,
            memory::{self, cores},
            settings::{Limits, Pairs},
        },
        sysroot::Sysroot,
    };

    const LIMITS: Limits = Limits {
        total: Nanoseconds(u64::MAX),
        cell: Nanoseconds(5_000_000),
        memory: Nanoseconds(u64::MAX),
        sample: Nanoseconds(200_000),
        buffer_min: Bytes::mib(4),
        buffer_max: Bytes::mib(4),
        random_buffer: Bytes::mib(2),
        chunk: Bytes::mib(2),
        file: Bytes::mib(8),
        pairs: Pairs::BestInitiator,
        curves: &[Traffic::Read],
    };

    /// The real clock, on a machine on which the thread gets a half of each slice of time.
    struct Halved(SystemClock);

    impl Clock for Halved {
        fn wall(&mut self) -> Nanoseconds {
            self.0.wall()
        }
        fn thread_cpu(&mut self) -> Nanoseconds {
            Nanoseconds(self.0.wall().0 / 2)
        }
    }

    fn course(time: Nanoseconds) -> Result<Outcome, MemoryError> {
        let inventory = Inventory::read(Sysroot::live()).unwrap();
        let pair = memory::pairs(&inventory, Pairs::BestInitiator)[0];
        let cores = cores::of_node(pair.initiator, Sysroot::live()).unwrap();
        let stop = AtomicBool::new(false);
        let allotment = Allotment::new(SystemClock.wall(), time, &stop);
        let place = memory::locality(&inventory, pair.target);
        let sysroot = Sysroot::live();
        let task =
            Task { inventory: &inventory, sysroot, pair, limits: &LIMITS, allotment, knee: None };
        let run = || {
            let mut clock = Halved(SystemClock);
            Course::new(&task, &cores, place, &mut clock)?.run(&|_| ())
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    #[test]
    fn a_thread_that_gets_half_of_the_cpu_is_flagged_and_timed_by_what_it_got() {
        let outcome = course(Nanoseconds(60_000_000_000)).unwrap();
        let idle = outcome.measured.figures.idle_latency_ns.unwrap();
        assert!(idle.contended && outcome.measured.figures.quality().contended);
        let by_one = outcome.pair.bandwidth.iter().filter(|it| it.threads == 1);
        assert!(by_one.clone().count() >= 9 && by_one.clone().all(|it| it.bytes_per_s.contended));
    }

    #[test]
    fn what_does_not_fit_is_named_and_what_a_tier_needs_comes_first() {
        let error = course(Nanoseconds(0)).unwrap_err();
        assert!(matches!(error, MemoryError::OutOfTime), "{error}");
        let Ok(outcome) = course(Nanoseconds(60_000_000)) else { return };
        let kinds = |it: &Bandwidth| it.traffic;
        let measured: Vec<Traffic> = outcome.pair.bandwidth.iter().map(kinds).collect();
        let is_named = |what: &str| outcome.skipped.iter().any(|it| it.what.starts_with(what));
        assert!(measured.contains(&Traffic::Add) != is_named("scale, add and mixes by one"));
        assert!(outcome.skipped.iter().all(|it| it.what.contains("NUMA node")));
    }

    #[test]
    fn caches_are_stated_by_the_last_level() {
        let machine = FakeSysroot::single_node();
        let inventory = Inventory::read(Sysroot(machine.path())).unwrap();
        let caches = stated(&inventory, &inventory.nodes[0]);
        assert_eq!((caches.one, caches.all), (Bytes::mib(32), Bytes::mib(32)));
    }

    #[test]
    fn in_a_guest_the_knee_counts_and_elsewhere_the_larger() {
        let caches = Caches { one: Bytes::mib(32), all: Bytes::mib(128) };
        let knee = |mib| Knee { cache: Bytes::mib(mib), is_open: false };
        let effective = |mib, is_guest| {
            let found = effective(caches, knee(mib), is_guest);
            (found.one, found.all)
        };
        assert_eq!(effective(4, true), (Bytes::mib(4), Bytes::mib(16)));
        assert_eq!(effective(4, false), (Bytes::mib(32), Bytes::mib(128)));
        assert_eq!(effective(64, false), (Bytes::mib(64), Bytes::mib(256)));
    }

    #[test]
    fn buffers_must_be_twice_the_caches() {
        assert_eq!(bound(Bytes::mib(64), Bytes::mib(32)), None);
        assert!(bound(Bytes::mib(62), Bytes::mib(32)).is_some());
    }

    #[test]
    fn lengths_are_whole_huge_pages_and_at_least_one() {
        assert_eq!(whole_units(Bytes::mib(5)), Bytes::mib(4));
        assert_eq!(whole_units(Bytes(1)), Bytes::mib(2));
    }
}
