//! Runs copies on threads of its own, pinned to the CPUs of one NUMA node, from one bounded queue.
//!
//! One thread, one node, one queue: a copy never waits for a runtime's scheduler, and a runtime's
//! tasks never wait for a copy.
//!
//! 1. Jobs start in the order in which they were submitted.
//! 2. The queue never holds more than `queued_max` jobs; a further one is refused without waiting.
//! 3. A job that panics affects no other: its lane continues with the next.
//! 4. Dropping the lanes runs what is queued and joins every thread.

use std::{
    collections::VecDeque,
    fmt, io,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{Builder, JoinHandle},
};

use crate::{
    affinity::pin_current_thread, failpoint, kernels::LINE_BYTES, prefetch::prefetch_line,
};

/// A job; a lane runs it once.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads that run jobs from one queue.
#[derive(Debug)]
pub struct Lanes {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// A job that was not accepted, with the job itself.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The queue is full: submit again when a job is done.
    #[error("the queue of copy jobs is full")]
    Full(Job),
    /// The lanes were closed and take no more jobs.
    #[error("the copy lanes are closed")]
    Closed(Job),
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Closed(_) => "Closed",
        })
    }
}

impl Lanes {
    /// Starts `threads` threads, each allowed on all of `cpus` (`None`: the CPUs of the caller).
    ///
    /// # Errors
    ///
    /// If a thread cannot be started or pinned; the others are joined then.
    pub fn start(
        name: &str,
        threads: NonZeroUsize,
        cpus: Option<Vec<usize>>,
        queued_max: NonZeroUsize,
    ) -> io::Result<Self> {
        let mut lanes = Self { queue: Arc::new(Queue::new(queued_max)), threads: Vec::new() };
        let cpus: Option<Arc<[usize]>> = cpus.map(Arc::from);
        for index in 0..threads.get() {
            let (report, pinned) = mpsc::sync_channel(1);
            let (queue, cpus) = (Arc::clone(&lanes.queue), cpus.clone());
            let name = name.to_owned();
            let thread = Builder::new().name(format!("{name}-{index}")).spawn(move || {
                let outcome = cpus.map_or(Ok(()), |cpus| pin_current_thread(&cpus));
                let is_pinned = outcome.is_ok();
                // The starting thread waits for this report, so the receiver exists.
                let _ = report.send(outcome);
                if is_pinned {
                    queue.run_jobs(&name);
                }
            })?;
            lanes.threads.push(thread);
            pinned.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(lanes)
    }

    /// Queues a job, without waiting.
    ///
    /// # Errors
    ///
    /// With the job, if the queue is full or [`Self::close`] was called.
    pub fn submit(&self, job: Job) -> Result<(), Refused> {
        self.queue.push(job)
    }

    /// Accepts no more jobs. Queued jobs still run.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Number of jobs that wait in the queue, without the running ones.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.state().jobs.len()
    }

    /// Number of jobs that panicked since the start.
    #[must_use]
    pub fn jobs_panicked(&self) -> u64 {
        self.queue.jobs_panicked.load(Ordering::Relaxed)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A lane catches the panics of its jobs, so it ends without one.
            let _ = thread.join();
        }
    }
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    queued_max: NonZeroUsize,
    jobs_panicked: AtomicU64,
}

struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Queue {
    fn new(queued_max: NonZeroUsize) -> Self {
        let jobs = VecDeque::with_capacity(queued_max.get().min(1024));
        Self {
            state: Mutex::new(State { jobs, is_closed: false }),
            changed: Condvar::new(),
            queued_max,
            jobs_panicked: AtomicU64::new(0),
        }
    }

    /// Jobs run outside the lock, so no panic can leave the state half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) -> Result<(), Refused> {
        let mut state = self.state();
        if state.is_closed {
            return Err(Refused::Closed(job));
        }
        if state.jobs.len() >= self.queued_max.get() {
            return Err(Refused::Full(job));
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    fn run_jobs(&self, name: &str) {
        while let Some(job) = self.next_job() {
            failpoint::pass(name);
            // No data of a job is used after its panic, so no broken state is visible.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                self.jobs_panicked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self
            .changed
            .wait_while(self.state(), |state| state.jobs.is_empty() && !state.is_closed)
            .unwrap_or_else(PoisonError::into_inner);
        let job = state.jobs.pop_front();
        // Another thread wrote the following job: it is prefetched while this one runs.
        state.jobs.front().into_iter().for_each(prefetch_job);
        job
    }
}

fn prefetch_job(job: &Job) {
    let start: *const u8 = ptr::from_ref(job.as_ref()).cast();
    (0..size_of_val(job.as_ref()))
        .step_by(LINE_BYTES)
        .for_each(|at| prefetch_line(start.wrapping_add(at)));
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("queued_max", &self.queued_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, atomic::AtomicUsize};

    use super::*;
    use crate::affinity::allowed_cpus;

    fn count(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    /// Blocks the only thread of `lanes` until the returned barrier is waited for.
    fn hold(lanes: &Lanes) -> Arc<Barrier> {
        let (started, ended) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (begin, end) = (Arc::clone(&started), Arc::clone(&ended));
        let job = move || {
            begin.wait();
            end.wait();
        };
        lanes.submit(Box::new(job)).unwrap();
        started.wait();
        ended
    }

    #[test]
    fn dropping_the_lanes_runs_all_jobs() {
        let done = Arc::new(AtomicUsize::new(0));
        let lanes = Lanes::start("copy", count(2), None, count(100)).unwrap();
        for _ in 0..100 {
            let done = Arc::clone(&done);
            lanes.submit(Box::new(move || _ = done.fetch_add(1, Ordering::Relaxed))).unwrap();
        }
        drop(lanes);
        assert_eq!(done.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn jobs_of_one_lane_run_in_the_order_of_submission() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let lanes = Lanes::start("copy", count(1), None, count(100)).unwrap();
        for number in 0..100 {
            let seen = Arc::clone(&seen);
            lanes.submit(Box::new(move || seen.lock().unwrap().push(number))).unwrap();
        }
        drop(lanes);
        assert!(seen.lock().unwrap().iter().copied().eq(0..100));
    }

    #[test]
    fn a_full_queue_refuses_and_returns_the_job() {
        let lanes = Lanes::start("copy", count(1), None, count(1)).unwrap();
        let end = hold(&lanes);
        let ran = Arc::new(AtomicUsize::new(0));
        lanes.submit(Box::new(|| ())).unwrap();
        let again = Arc::clone(&ran);
        let refused = lanes.submit(Box::new(move || _ = again.fetch_add(1, Ordering::Relaxed)));
        let Err(Refused::Full(job)) = refused else { panic!("a second job was queued") };
        assert_eq!(lanes.queued(), 1);
        job();
        end.wait();
        drop(lanes);
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn closed_lanes_run_what_is_queued_and_refuse_more() {
        let lanes = Lanes::start("copy", count(1), None, count(4)).unwrap();
        let end = hold(&lanes);
        let ran = Arc::new(AtomicUsize::new(0));
        let again = Arc::clone(&ran);
        lanes.submit(Box::new(move || _ = again.fetch_add(1, Ordering::Relaxed))).unwrap();
        lanes.close();
        assert!(matches!(lanes.submit(Box::new(|| ())), Err(Refused::Closed(_))));
        end.wait();
        drop(lanes);
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_panic_ends_its_job_alone() {
        let lanes = Lanes::start("copy", count(1), None, count(8)).unwrap();
        let (send, receive) = mpsc::channel();
        // `resume_unwind` panics without printing.
        lanes.submit(Box::new(|| std::panic::resume_unwind(Box::new("broken job")))).unwrap();
        lanes.submit(Box::new(move || send.send(7).unwrap())).unwrap();
        assert_eq!(receive.recv(), Ok(7));
        assert_eq!(lanes.jobs_panicked(), 1);
    }

    #[test]
    fn lanes_run_on_the_given_cpus_only() {
        let last = *allowed_cpus().unwrap().last().unwrap();
        let lanes = Lanes::start("copy", count(1), Some(vec![last]), count(1)).unwrap();
        let (send, receive) = mpsc::channel();
        let job = move || {
            let name = std::thread::current().name().map(str::to_owned);
            send.send((allowed_cpus().unwrap(), name)).unwrap();
        };
        lanes.submit(Box::new(job)).unwrap();
        assert_eq!(receive.recv(), Ok((vec![last], Some("copy-0".to_owned()))));
    }

    #[test]
    fn lanes_without_a_usable_cpu_do_not_start() {
        assert!(Lanes::start("copy", count(2), Some(vec![]), count(1)).is_err());
    }
}
