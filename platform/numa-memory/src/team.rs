//! Runs work on several threads at once, each pinned to its CPU, and returns when each of them ran.
//!
//! The threads are started for one run and joined before it returns, so that work may borrow: a
//! part of a buffer for each thread ([`crate::kernels::parts_mut`]) needs no unsafe Rust.
//!
//! 1. No thread begins its work before all of them are pinned and wait; then all begin, within a
//!    microsecond if each has its CPU.
//! 2. The clocks of a thread enclose its work alone: not its start, its pinning or its wait.
//! 3. If a thread cannot be started or pinned, none works.

use std::{
    hint::spin_loop,
    io,
    panic::resume_unwind,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
    thread::{Builder, Scope, ScopedJoinHandle, scope, yield_now},
};

use nix::time::{ClockId, clock_gettime};
use tierfeed_units::Nanoseconds;

use crate::affinity::pin_current_thread;

/// When one thread ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn<T> {
    /// The return value of its work.
    pub output: T,
    /// Start of the work, by `CLOCK_MONOTONIC_RAW`.
    pub started: Nanoseconds,
    /// End of the work, by the same clock.
    pub ended: Nanoseconds,
    /// CPU time of the thread between start and end.
    pub thread_cpu: Nanoseconds,
}

/// The times of all threads of a run, in the order of their parts. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns<T>(Vec<Turn<T>>);

/// Why no work was run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// There were no parts.
    #[error("a team of no threads does no work; give at least one CPU")]
    Empty,
    /// A thread could not be started.
    #[error("cannot start a thread for CPU {cpu}")]
    Start {
        /// The CPU that the thread should run on.
        cpu: usize,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// A thread may not run on its CPU.
    #[error("cannot run on CPU {cpu}; see `taskset -p $$` and the cpuset of the control group")]
    Pin {
        /// The CPU that the thread should run on.
        cpu: usize,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

/// Runs `work` once for each part at the same time, on a thread pinned to the CPU beside the part.
///
/// # Errors
///
/// If there is no part, or a thread cannot be started or pinned; nothing ran then.
///
/// # Panics
///
/// If `work` does.
///
/// # Example
///
/// ```
/// use tierfeed_numa_memory::{affinity, kernels, team};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cpus = affinity::allowed_cpus()?;
/// let mut words = vec![0; 1 << 16];
/// let parts = kernels::parts_mut(&mut words, cpus.len());
/// let turns = team::run(cpus.into_iter().zip(parts), |part| kernels::fill(part, 1))?;
/// println!("{} ns, {} of the CPUs", turns.wall().0, turns.share());
/// # Ok(())
/// # }
/// ```
pub fn run<P: Send, T: Send>(
    parts: impl IntoIterator<Item = (usize, P)>,
    work: impl Fn(P) -> T + Sync,
) -> Result<Turns<T>, TeamError> {
    let (gate, work) = (Gate::default(), &work);
    let turns: Result<Vec<_>, _> = scope(|threads| {
        let members = start(threads, &gate, parts, work)?;
        gate.open_for(members.len());
        members
            .into_iter()
            .map(|(cpu, member)| match member.join() {
                Ok(turn) => turn.map_err(|source| TeamError::Pin { cpu, source }),
                Err(panic) => resume_unwind(panic),
            })
            // All are joined, then the first failure is returned.
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(Result::transpose)
            .collect()
    });
    match turns {
        Ok(turns) if turns.is_empty() => Err(TeamError::Empty),
        turns => turns.map(Turns),
    }
}

impl<T> Turns<T> {
    /// Time from the first start to the last end.
    #[must_use]
    pub fn wall(&self) -> Nanoseconds {
        let ended = self.0.iter().map(|turn| turn.ended).max();
        Nanoseconds(ended.unwrap_or_default().0.saturating_sub(self.first_start().0))
    }

    /// The least share of a CPU that any thread had from the first start to its own end: 1.0 if
    /// none was delayed.
    #[must_use]
    pub fn share(&self) -> f64 {
        let first = self.first_start();
        let share = |turn: &Turn<T>| {
            let wall = turn.ended.0.saturating_sub(first.0).max(1);
            (to_f64(turn.thread_cpu.0) / to_f64(wall)).min(1.0)
        };
        self.0.iter().map(share).fold(1.0, f64::min)
    }

    /// The times of each thread, in the order of the parts.
    #[must_use]
    pub fn as_slice(&self) -> &[Turn<T>] {
        &self.0
    }

    fn first_start(&self) -> Nanoseconds {
        self.0.iter().map(|turn| turn.started).min().unwrap_or_default()
    }
}

/// The result of a thread: its times, `None` because others could not run, or why it could not run.
type Outcome<T> = io::Result<Option<Turn<T>>>;

/// A started thread and its CPU.
type Member<'scope, T> = (usize, ScopedJoinHandle<'scope, Outcome<T>>);

fn start<'scope, 'env, P: Send + 'scope, T: Send + 'scope>(
    threads: &'scope Scope<'scope, 'env>,
    gate: &'scope Gate,
    parts: impl IntoIterator<Item = (usize, P)>,
    work: &'scope (impl Fn(P) -> T + Sync),
) -> Result<Vec<Member<'scope, T>>, TeamError> {
    let mut members = Vec::new();
    for (cpu, part) in parts {
        let body = move || match gate.wait_for_pinned(pin_current_thread(&[cpu]))? {
            Signal::Go => Ok(Some(timed(|| work(part)))),
            Signal::Abandon => Ok(None),
        };
        let thread = Builder::new().name(format!("tierfeed-cpu-{cpu}"));
        let member = thread.spawn_scoped(threads, body).map_err(|source| {
            // Threads that wait already would wait forever.
            gate.abandon();
            TeamError::Start { cpu, source }
        })?;
        members.push((cpu, member));
    }
    Ok(members)
}

/// The wall clock is read inside the CPU clock, because the latter is a system call.
fn timed<T>(work: impl FnOnce() -> T) -> Turn<T> {
    let cpu_start = read(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let started = read(ClockId::CLOCK_MONOTONIC_RAW);
    let output = work();
    let ended = read(ClockId::CLOCK_MONOTONIC_RAW);
    let cpu_end = read(ClockId::CLOCK_THREAD_CPUTIME_ID);
    Turn { output, started, ended, thread_cpu: Nanoseconds(cpu_end.0 - cpu_start.0) }
}

fn read(clock: ClockId) -> Nanoseconds {
    let time = clock_gettime(clock).expect("every kernel since 2.6.28 has both clocks");
    let seconds = u64::try_from(time.tv_sec()).expect("both clocks start at zero");
    let nanoseconds = u64::try_from(time.tv_nsec()).expect("a fraction of a second is positive");
    Nanoseconds(seconds * 1_000_000_000 + nanoseconds)
}

/// The start barrier. Threads spin, because a sleeper wakes tens of microseconds later, and yield
/// their CPU between reads, because the last of them may need it to arrive.
#[derive(Debug, Default)]
struct Gate {
    arrived: AtomicUsize,
    signal: AtomicU8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Go,
    Abandon,
}

const SHUT: u8 = 0;
const OPEN: u8 = 1;
const ABANDONED: u8 = 2;

impl Gate {
    /// Waits with the others, unless the thread could not be pinned: then no thread works.
    fn wait_for_pinned(&self, pinned: io::Result<()>) -> io::Result<Signal> {
        if pinned.is_err() {
            self.abandon();
        }
        self.arrived.fetch_add(1, Ordering::Release);
        pinned?;
        loop {
            match self.signal.load(Ordering::Acquire) {
                SHUT => look_again(),
                OPEN => return Ok(Signal::Go),
                _ => return Ok(Signal::Abandon),
            }
        }
    }

    /// Waits for `members` threads, then lets them start, unless the gate was abandoned.
    fn open_for(&self, members: usize) {
        while self.arrived.load(Ordering::Acquire) < members {
            look_again();
        }
        // If it fails, a thread has abandoned the gate, and it stays so.
        let _ = self.signal.compare_exchange(SHUT, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }

    fn abandon(&self) {
        self.signal.store(ABANDONED, Ordering::Release);
    }
}

fn look_again() {
    for _ in 0..64 {
        spin_loop();
    }
    yield_now();
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ns are three months")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize},
    };

    use super::*;
    use crate::{
        affinity::allowed_cpus,
        kernels::{copy, parts, parts_mut},
    };

    fn first_cpu() -> usize {
        allowed_cpus().unwrap()[0]
    }

    #[test]
    fn each_part_is_worked_on_once_on_its_cpu() {
        let cpus = allowed_cpus().unwrap();
        let turns = run(cpus.iter().map(|cpu| (*cpu, *cpu)), |cpu| (cpu, allowed_cpus().unwrap()));
        let turns = turns.unwrap();
        let outputs: Vec<_> = turns.as_slice().iter().map(|turn| turn.output.clone()).collect();
        let expected: Vec<_> = cpus.iter().map(|cpu| (*cpu, vec![*cpu])).collect();
        assert_eq!(outputs, expected);
    }

    /// Each waits inside its work until all have begun, so a sequential run would never end.
    #[test]
    fn all_threads_work_at_the_same_time() {
        let cpu = first_cpu();
        let met = Barrier::new(3);
        let turns = run([(cpu, ()), (cpu, ()), (cpu, ())], |()| {
            met.wait();
        });
        assert_eq!(turns.unwrap().as_slice().len(), 3);
    }

    #[test]
    fn several_threads_copy_one_buffer() {
        let cpu = first_cpu();
        let from: Vec<u64> = (0..10_001).collect();
        let mut to = vec![0; from.len()];
        let pairs = parts_mut(&mut to, 3).into_iter().zip(parts(&from, 3));
        let turns = run(pairs.map(|pair| (cpu, pair)), |(to, from)| copy(to, from)).unwrap();
        assert_eq!(turns.as_slice().len(), 3);
        assert_eq!(to, from);
    }

    #[test]
    fn no_thread_works_if_one_cannot_be_pinned() {
        let has_worked = AtomicBool::new(false);
        let absent = 1000;
        let parts = [(first_cpu(), ()), (absent, ()), (first_cpu(), ())];
        let refused = run(parts, |()| has_worked.store(true, Ordering::Relaxed));
        assert!(matches!(refused, Err(TeamError::Pin { cpu, .. }) if cpu == absent), "{refused:?}");
        assert!(!has_worked.into_inner());
    }

    #[test]
    fn no_parts_are_refused() {
        assert!(matches!(run([] as [(usize, ()); 0], |()| ()), Err(TeamError::Empty)));
    }

    #[test]
    fn a_panic_of_the_work_reaches_the_caller_after_all_have_ended() {
        let ended = AtomicUsize::new(0);
        let cpu = first_cpu();
        let run = || {
            run([(cpu, 0), (cpu, 1)], |part| {
                if part == 0 {
                    resume_unwind(Box::new("broken work"));
                }
                ended.fetch_add(1, Ordering::Relaxed);
            })
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert_eq!(ended.into_inner(), 1);
    }

    fn turn(started: u64, ended: u64, thread_cpu: u64) -> Turn<()> {
        Turn {
            output: (),
            started: Nanoseconds(started),
            ended: Nanoseconds(ended),
            thread_cpu: Nanoseconds(thread_cpu),
        }
    }

    #[test]
    fn the_run_lasts_from_the_first_start_to_the_last_end() {
        let turns = Turns(vec![turn(110, 200, 90), turn(100, 180, 80), turn(105, 195, 90)]);
        assert_eq!(turns.wall(), Nanoseconds(100));
    }

    /// A thread that began late counts as delayed, too.
    #[test]
    fn the_share_is_that_of_the_thread_that_was_kept_most() {
        let turns = Turns(vec![turn(100, 200, 100), turn(150, 200, 50)]);
        assert!((turns.share() - 0.5).abs() < 1e-9);
        assert!((Turns(vec![turn(100, 200, 101)]).share() - 1.0).abs() < 1e-9);
    }
}
