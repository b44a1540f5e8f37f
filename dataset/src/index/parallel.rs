//! Applies a task to every object on several threads, and returns the results in order.
//!
//! The results, and which error is returned, do not depend on the timing of the threads.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use super::{IndexError, Progress, Stage};

/// Enough to hide round trips, few enough not to overload a shared file server.
const THREADS_MAX: usize = 16;

/// Passes the results of `task` for the numbers below `count` to `take`, in order. The first error
/// in that order ends it.
pub(super) fn in_order<T: Send>(
    count: usize,
    stage: Stage,
    task: impl Fn(usize) -> Result<T, IndexError> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), IndexError>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), IndexError> {
    let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = count.min(cpus * 4).clamp(1, THREADS_MAX);
    let counter = Counter { next: AtomicUsize::new(0), count, has_failed: AtomicBool::new(false) };
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(threads);
        for _ in 0..threads {
            let (sender, counter, task) = (sender.clone(), &counter, &task);
            scope.spawn(move || counter.work(task, &sender));
        }
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut done = 0;
        for (number, result) in receiver {
            waiting.insert(number, result);
            while let Some(result) = waiting.remove(&done) {
                take(done, result?)?;
                done += 1;
            }
            progress(Progress { stage, done: done as u64, total: Some(count as u64) });
        }
        Ok(())
    })
}

struct Counter {
    next: AtomicUsize,
    count: usize,
    has_failed: AtomicBool,
}

impl Counter {
    /// Numbers are taken in order, so a number before a failure is never skipped.
    fn work<T>(
        &self,
        task: &(impl Fn(usize) -> Result<T, IndexError> + Sync),
        sender: &mpsc::SyncSender<(usize, Result<T, IndexError>)>,
    ) {
        while !self.has_failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            let result = task(number);
            self.has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
            if sender.send((number, result)).is_err() {
                return;
            }
        }
    }
}
