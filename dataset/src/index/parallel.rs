//! Does something to every object on several threads, and takes the results in order.
//!
//! What comes out, and which error is told, do not depend on the timing of the threads.

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

/// Enough to hide round trips, few enough not to trouble a shared file server.
const THREADS_MAX: usize = 16;

/// Hands the results of `task` for the numbers below `count` to `take`, in order. The first error in
/// that order ends it.
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

/// What the threads share.
struct Counter {
    next: AtomicUsize,
    count: usize,
    has_failed: AtomicBool,
}

impl Counter {
    /// Numbers are taken in order, so one that is behind a failure is never missed.
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
