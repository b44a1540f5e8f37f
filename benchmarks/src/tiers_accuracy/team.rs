//! Runs work on several threads at once, each pinned to its CPU.

use std::{
    hint::spin_loop,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use nix::sys::resource::UsageWho;
use tierfeed_harness::clock::now;
use tierfeed_numa_memory::affinity::pin_current_thread;

use super::sample::Sample;
use crate::cpu_time::cpu_time;

/// When one thread ran.
struct Turn {
    started: Instant,
    ended: Instant,
    cpu: Duration,
}

/// Runs `work` for each part at the same time, on a thread pinned to the CPU beside the part. None begins before all
/// are pinned.
pub(super) fn run<P: Send>(
    parts: impl IntoIterator<Item = (usize, P)>,
    work: impl Fn(P) + Sync,
) -> anyhow::Result<Sample> {
    let parts: Vec<_> = parts.into_iter().collect();
    let (missing, work) = (&AtomicUsize::new(parts.len()), &work);
    let turns: Vec<Turn> = thread::scope(|scope| {
        let turn = |(cpu, part)| {
            scope.spawn(move || {
                let pinned = pin_current_thread(&[cpu]);
                missing.fetch_sub(1, Ordering::Release);
                // A sleeper would wake tens of microseconds later; the last thread may need this CPU to arrive.
                while missing.load(Ordering::Acquire) > 0 {
                    (0..64).for_each(|_| spin_loop());
                    thread::yield_now();
                }
                pinned.with_context(|| format!("cannot run on CPU {cpu}"))?;
                timed(|| work(part))
            })
        };
        let threads: Vec<_> = parts.into_iter().map(turn).collect();
        let ended =
            threads.into_iter().map(|it| it.join().map_err(|_| anyhow!("a thread panicked"))?);
        ended.collect::<anyhow::Result<_>>()
    })?;
    sample(&turns)
}

fn timed(work: impl FnOnce()) -> anyhow::Result<Turn> {
    let before = cpu_time(UsageWho::RUSAGE_THREAD)?;
    let started = now();
    work();
    let ended = now();
    Ok(Turn { started, ended, cpu: cpu_time(UsageWho::RUSAGE_THREAD)?.saturating_sub(before) })
}

/// The time from the first start to the last end, and the least share of a CPU that a thread had from the first start
/// to its own end.
fn sample(turns: &[Turn]) -> anyhow::Result<Sample> {
    let first = turns.iter().map(|turn| turn.started).min().context("no thread")?;
    let until_end = |turn: &Turn| (turn.ended - first).as_secs_f64();
    let wall_ns = turns.iter().map(until_end).fold(0.0, f64::max) * 1e9;
    let shares = turns.iter().map(|turn| turn.cpu.as_secs_f64() / until_end(turn));
    Ok(Sample { wall_ns, cpu_share: shares.fold(1.0, f64::min) })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use tierfeed_numa_memory::affinity::allowed_cpus;

    use super::*;

    /// Each waits inside its work until all have begun, so a sequential run would never end.
    #[test]
    fn all_threads_work_at_the_same_time_on_their_cpus() {
        let cpu = allowed_cpus().unwrap()[0];
        let met = Barrier::new(3);
        let work = |()| {
            assert_eq!(allowed_cpus().unwrap(), [cpu]);
            met.wait();
        };
        run([(cpu, ()), (cpu, ()), (cpu, ())], work).unwrap();
    }

    #[test]
    fn a_cpu_that_is_absent_is_named() {
        let refused = run([(1000, ())], |()| ()).unwrap_err().to_string();
        assert!(refused.contains("CPU 1000"), "{refused}");
    }

    /// A thread that began late counts as delayed, too.
    #[test]
    fn the_share_is_that_of_the_thread_that_was_kept_most() {
        let start = now();
        let turn = |from, to, cpu| {
            let [from, to, cpu] = [from, to, cpu].map(Duration::from_millis);
            Turn { started: start + from, ended: start + to, cpu }
        };
        let sample = sample(&[turn(0, 100, 100), turn(50, 100, 50)]).unwrap();
        assert!((sample.cpu_share - 0.5).abs() < 1e-9 && (sample.wall_ns - 1e8).abs() < 1.0);
    }
}
