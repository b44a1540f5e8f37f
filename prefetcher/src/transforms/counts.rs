//! What the pool did, in counters that only grow.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// What the pool did since the start, and how many workers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Samples that became rows.
    pub transformed: u64,
    /// Samples that cannot be transformed.
    pub untransformable: u64,
    /// Samples over which workers ended or took too long.
    pub lost: u64,
    /// Workers that were started.
    pub started: u64,
    /// Workers that ended by themselves, or by another process.
    pub crashed: u64,
    /// Workers that were ended because a sample took too long.
    pub timed_out: u64,
    /// The time of processors that workers needed for samples.
    pub worked: Duration,
    /// Workers that take tasks now.
    pub working: usize,
}

/// [`Counts`] that the thread of the pool adds to.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transformed: AtomicU64,
    pub(super) untransformable: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) started: AtomicU64,
    pub(super) crashed: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) worked_ns: AtomicU64,
    pub(super) working: AtomicUsize,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn worked(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.worked_ns.fetch_add(time, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            transformed: read(&self.transformed),
            untransformable: read(&self.untransformable),
            lost: read(&self.lost),
            started: read(&self.started),
            crashed: read(&self.crashed),
            timed_out: read(&self.timed_out),
            worked: Duration::from_nanos(read(&self.worked_ns)),
            working: self.working.load(Ordering::Relaxed),
        }
    }
}
