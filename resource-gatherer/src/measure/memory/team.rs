//! Runs bandwidth kernels on several cores at once: passes that are timed, and traffic that goes on
//! until it is told to stop.
//!
//! 1. The threads are started and pinned once; the one that measures is the first of them. Between
//!    samples the others sleep, so an idle team disturbs no measurement.
//! 2. A pass begins when all its threads have come to the gate, and lasts from the first start to the
//!    last end.
//! 3. The team ends when it is dropped, also in the middle of a load.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, Builder, Scope},
};

use tierfeed_core::{id::NumaNode, units::Nanoseconds};
use tierfeed_numa_memory::affinity;

use super::{
    MemoryError,
    arrays::{Arrays, SharedBlocks},
    work,
};
use crate::{
    figures::{
        Bandwidth, Traffic,
        estimate::{Estimate, to_f64},
    },
    measure::{
        cell::{Cell, Occupation, Sample, StopRule},
        clock::{Clock, SystemClock},
        sampler::Workload,
    },
};

/// Threads on the cores of one node, over the arrays of a [`SharedBlocks`].
pub(crate) struct Team<'shared> {
    shared: &'shared SharedBlocks<'shared>,
    halt: &'shared AtomicBool,
    begin: Vec<SyncSender<Order>>,
    ended: Receiver<Lap>,
    last: Vec<Lap>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) traffic: Traffic,
    /// At most [`Team::size`].
    pub(crate) threads: usize,
    pub(crate) blocks: usize,
}

const HALF_WIDTH: f64 = 0.02;

impl Pass {
    pub(crate) fn cell(self, time: Nanoseconds) -> Cell {
        let alone = self.threads == 1;
        let occupation = if alone { Occupation::Computes } else { Occupation::ComputesTogether };
        let rule = StopRule { half_width: HALF_WIDTH, samples_min: 10, samples_max: 100, time };
        Cell::new(rule, occupation)
    }

    pub(crate) fn rate(self, time: Estimate) -> Estimate {
        time.per_second(to_f64(work::block_bytes(self.traffic)) * to_f64(self.blocks as u64))
    }

    pub(super) fn bandwidth(self, time: Estimate) -> Bandwidth {
        Bandwidth {
            traffic: self.traffic,
            threads: u32::try_from(self.threads).unwrap_or(u32::MAX),
            bytes_per_s: self.rate(time).rounded(),
        }
    }
}

/// Runs `body` with a team on `cores` of `node`, the first of which is that of the calling thread.
pub(crate) fn with_team<T>(
    arrays: &mut Arrays,
    node: NumaNode,
    cores: &[usize],
    body: impl FnOnce(&mut Team<'_>) -> T,
) -> Result<T, MemoryError> {
    let shared = arrays.shared_blocks(cores.len());
    let halt = AtomicBool::new(false);
    thread::scope(|scope| {
        let team = Team::start(scope, &shared, &halt, &cores[1..]);
        let mut team = team.map_err(|source| MemoryError::Affinity(node, source))?;
        Ok(body(&mut team))
    })
}

#[derive(Debug, Clone, Copy)]
enum Order {
    /// Take part in the open pass, which begins when `target` threads came to the gate.
    Pass { traffic: Traffic, target: usize },
    /// Read until told to stop.
    Load(Load),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Threads beside the one that measures.
    pub(crate) generators: usize,
    /// Rounds of a spin loop after each piece.
    pub(crate) delay_rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lap {
    start: Nanoseconds,
    end: Nanoseconds,
    thread_cpu: Nanoseconds,
}

impl<'shared> Team<'shared> {
    /// Starts a thread on each of `cpus`; the calling thread is one more and pins itself.
    fn start<'scope>(
        scope: &'scope Scope<'scope, 'shared>,
        shared: &'shared SharedBlocks<'shared>,
        halt: &'shared AtomicBool,
        cpus: &[usize],
    ) -> io::Result<Self> {
        const STACK_BYTES: usize = 256 << 10;
        // A worker has one order at a time, and answers it once.
        let (end, ended) = sync_channel(cpus.len().max(1));
        let mut team = Self { shared, halt, begin: Vec::new(), ended, last: Vec::new() };
        for (index, cpu) in cpus.iter().copied().enumerate() {
            let (sender, orders) = sync_channel(1);
            let (pinned, is_pinned) = sync_channel(1);
            let worker = Worker { shared, halt, orders, end: end.clone(), index };
            let body = move || {
                // The starter waits for this word, so it cannot be gone.
                let _ = pinned.send(affinity::pin_current_thread(&[cpu]));
                worker.serve();
            };
            let thread = Builder::new().name("tierfeed-probe".to_owned()).stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, body)?;
            team.begin.push(sender);
            is_pinned.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(team)
    }

    pub(crate) fn block_count(&self) -> usize {
        self.shared.block_count()
    }

    pub(crate) fn size(&self) -> usize {
        self.begin.len() + 1
    }

    pub(crate) fn pieces(&self) -> usize {
        self.shared.pieces()
    }

    /// The pass with as many blocks as take about `time`, by a trial that counts for nothing.
    pub(crate) fn calibrated(&mut self, pass: Pass, time: Nanoseconds) -> Pass {
        const TRIAL_BLOCKS_EACH: usize = 4;
        let trial = Pass { blocks: pass.threads * TRIAL_BLOCKS_EACH, ..pass };
        self.pass(trial);
        // By CPU time, for the reason that `hops_for` gives: what each would have taken alone.
        let busy: u64 = self.last.iter().map(|lap| lap.thread_cpu.0).sum();
        let took = (busy / pass.threads as u64).max(1);
        let blocks = u128::from(time.0) * trial.blocks as u128 / u128::from(took);
        // Thousands of rounds over the arrays would be a broken clock.
        let most = trial.blocks.max(self.shared.block_count() * 1024);
        let blocks = usize::try_from(blocks).unwrap_or(most).clamp(trial.blocks, most);
        Pass { blocks, ..pass }
    }

    /// Runs `while_loaded` while other threads make traffic. In the sample the thread that ran least counts
    /// for all.
    pub(crate) fn load<T>(
        &mut self,
        load: Load,
        while_loaded: impl FnOnce(&Self) -> T,
    ) -> (T, Sample) {
        self.halt.store(false, Ordering::Relaxed);
        let generators = load.generators.min(self.begin.len());
        for begin in &self.begin[..generators] {
            begin.send(Order::Load(load)).expect("a worker serves until the team is dropped");
        }
        let outcome = while_loaded(self);
        self.halt.store(true, Ordering::Relaxed);
        let lap = |_| self.ended.recv().expect("a worker answers every order");
        let laps: Vec<Lap> = (0..generators).map(lap).collect();
        (outcome, merge(&laps))
    }

    fn pass(&mut self, pass: Pass) {
        let target = self.shared.arrivals() + pass.threads;
        self.shared.open(pass.blocks);
        for begin in &self.begin[..pass.threads - 1] {
            let order = Order::Pass { traffic: pass.traffic, target };
            begin.send(order).expect("a worker serves until the team is dropped");
        }
        self.last.clear();
        self.last.push(lap(self.shared, pass.traffic, target));
        for _ in 1..pass.threads {
            self.last.push(self.ended.recv().expect("a worker answers every order"));
        }
    }
}

impl Workload for Team<'_> {
    type Kernel = Pass;

    fn run(&mut self, pass: Pass) {
        self.pass(pass);
    }

    /// One thread alone is timed by the clock of the sampler. Several begin at a gate and end one after
    /// the other, which only they see.
    fn corrected(&mut self, sample: Sample) -> Sample {
        if self.last.len() == 1 {
            return sample;
        }
        let Sample { wall, thread_cpu, .. } = merge(&self.last);
        Sample { wall, thread_cpu, ..sample }
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Relaxed);
        self.begin.clear();
    }
}

struct Worker<'shared> {
    shared: &'shared SharedBlocks<'shared>,
    halt: &'shared AtomicBool,
    orders: Receiver<Order>,
    end: SyncSender<Lap>,
    index: usize,
}

impl Worker<'_> {
    fn serve(self) {
        for order in &self.orders {
            let lap = match order {
                Order::Pass { traffic, target } => lap(self.shared, traffic, target),
                Order::Load(load) => self.make_traffic(load),
            };
            if self.end.send(lap).is_err() {
                return;
            }
        }
    }

    fn make_traffic(&self, load: Load) -> Lap {
        timed(|| {
            while !self.halt.load(Ordering::Relaxed) {
                self.shared.next(|block| {
                    work::read_pieces(block, || {
                        self.shared.count_piece(self.index);
                        spin(load.delay_rounds);
                    });
                });
            }
        })
    }
}

/// A pause of `rounds` that leaves the memory alone.
pub(super) fn spin(rounds: u32) {
    for _ in 0..rounds {
        std::hint::spin_loop();
    }
}

fn lap(shared: &SharedBlocks<'_>, traffic: Traffic, target: usize) -> Lap {
    shared.meet(target);
    timed(|| shared.pass(|block| work::on_block(traffic, block)))
}

fn timed(run: impl FnOnce()) -> Lap {
    let mut clock = SystemClock;
    let cpu_start = clock.thread_cpu();
    let start = clock.wall();
    run();
    let end = clock.wall();
    let cpu_end = clock.thread_cpu();
    Lap { start, end, thread_cpu: Nanoseconds(cpu_end.0.saturating_sub(cpu_start.0)) }
}

/// One sample of all threads, in which the one that ran least counts for all.
///
/// What it ran is compared with the whole pass, not with its own lap: blocks are shared, so a thread that
/// was held up behind the gate finds nothing left to do, and its short lap would look undisturbed.
fn merge(laps: &[Lap]) -> Sample {
    let start = laps.iter().map(|lap| lap.start.0).min().unwrap_or(0);
    let end = laps.iter().map(|lap| lap.end.0).max().unwrap_or(0);
    let thread_cpu = laps.iter().map(|lap| lap.thread_cpu.0).min().unwrap_or(0);
    Sample {
        wall: Nanoseconds(end.saturating_sub(start)),
        thread_cpu: Nanoseconds(thread_cpu),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{tier::Locality, units::Bytes};

    use super::*;
    use crate::measure::memory::arrays::BLOCK;

    fn lap(start: u64, end: u64, thread_cpu: u64) -> Lap {
        Lap {
            start: Nanoseconds(start),
            end: Nanoseconds(end),
            thread_cpu: Nanoseconds(thread_cpu),
        }
    }

    fn with_workers(workers: usize, run: impl FnOnce(&mut Team<'_>)) {
        let cpus = affinity::allowed_cpus().unwrap();
        let cpus: Vec<usize> = cpus.iter().copied().cycle().take(workers + 1).collect();
        let mut arrays = Arrays::allocate(Locality::Anywhere, Bytes(16 * BLOCK.0)).unwrap();
        with_team(&mut arrays, NumaNode(0), &cpus, run).unwrap();
    }

    #[test]
    fn a_team_makes_a_pass_with_as_many_of_its_threads_as_asked() {
        with_workers(2, |team| {
            for threads in [1, 3, 2] {
                team.pass(Pass { traffic: Traffic::Copy, threads, blocks: 32 });
                assert_eq!(team.last.len(), threads);
                assert!(merge(&team.last).wall.0 > 0);
            }
        });
    }

    #[test]
    fn generators_make_traffic_until_the_measurement_is_done() {
        with_workers(1, |team| {
            let load = Load { generators: 1, delay_rounds: 1 };
            let begun = team.pieces();
            let ((), generated) = team.load(load, |team| while team.pieces() < begun + 100 {});
            assert!(generated.wall.0 > 0 && generated.thread_cpu.0 > 0);
            let ended = team.pieces();
            team.pass(Pass { traffic: Traffic::Read, threads: 2, blocks: 4 });
            assert_eq!(team.pieces(), ended, "the generator has stopped");
        });
    }

    #[test]
    fn samples_are_calibrated_to_their_time() {
        with_workers(0, |team| {
            let pass = Pass { traffic: Traffic::Read, threads: 1, blocks: 0 };
            let short = team.calibrated(pass, Nanoseconds(1));
            assert_eq!(short.blocks, 4, "no less than the trial");
            let long = team.calibrated(pass, Nanoseconds(u64::MAX));
            assert_eq!(long.blocks, 16 * 1024, "no more than a thousand rounds");
        });
    }

    #[test]
    fn threads_take_from_the_first_start_to_the_last_end() {
        let sample = merge(&[lap(100, 900, 800), lap(110, 1100, 980), lap(90, 800, 970)]);
        assert_eq!((sample.wall.0, sample.thread_cpu.0), (1010, 800));
    }

    #[test]
    fn a_thread_that_came_too_late_to_help_spoils_the_sample() {
        let late = merge(&[lap(0, 1000, 1000), lap(990, 1000, 10)]);
        assert_eq!((late.wall.0, late.thread_cpu.0), (1000, 10));
    }
}
