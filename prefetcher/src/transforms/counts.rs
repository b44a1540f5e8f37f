//! Counters of what the pool did, and the number of its tasks and workers now.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tierfeed_core::units::Nanoseconds;

use super::TransformError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    Damaged,
    /// It has more pixels than the job allows.
    TooLarge,
    /// It is sound, but the steps of the job are not for it.
    Unsuitable,
    OutOfMemory,
    Crashed,
    TimedOut,
}

impl Rejection {
    /// In the order of [`Counts::rejected`].
    pub const ALL: [Self; 6] = [
        Self::Damaged,
        Self::TooLarge,
        Self::Unsuitable,
        Self::OutOfMemory,
        Self::Crashed,
        Self::TimedOut,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::TooLarge => "too-large",
            Self::Unsuitable => "unsuitable",
            Self::OutOfMemory => "out-of-memory",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed-out",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub transformed: u64,
    /// By [`Rejection`], in the order of [`Rejection::ALL`].
    pub rejected: [u64; Rejection::ALL.len()],
    /// Samples that wait for a worker now.
    pub waiting: usize,
    pub started: u64,
    /// Workers that ended by themselves, or by another process.
    pub crashed: u64,
    /// Workers that were ended because a sample took too long.
    pub timed_out: u64,
    /// The processor time that workers needed for samples.
    pub worked: Duration,
    /// How long workers had samples that they answered: longer than they worked if they waited for a
    /// processor.
    pub held: Duration,
    /// Workers that take tasks now.
    pub working: usize,
}

impl Counts {
    /// The samples that did not become rows, by the name of the reason, without reasons that have none.
    pub fn rejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Rejection::ALL.map(Rejection::name);
        names.into_iter().zip(self.rejected).filter(|(_, count)| *count > 0)
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transformed: AtomicU64,
    rejected: [AtomicU64; Rejection::ALL.len()],
    pub(super) started: AtomicU64,
    pub(super) crashed: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) worked_ns: AtomicU64,
    held_ns: AtomicU64,
    pub(super) working: AtomicUsize,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reject(&self, error: &TransformError) {
        if let Some(rejection) = error.rejection() {
            Self::add(&self.rejected[rejection as usize]);
        }
    }

    pub(super) fn worked(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.worked_ns.fetch_add(time, Ordering::Relaxed);
    }

    pub(super) fn held(&self, time: Nanoseconds) {
        self.held_ns.fetch_add(time.0, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            transformed: read(&self.transformed),
            rejected: self.rejected.each_ref().map(read),
            waiting: 0,
            started: read(&self.started),
            crashed: read(&self.crashed),
            timed_out: read(&self.timed_out),
            worked: Duration::from_nanos(read(&self.worked_ns)),
            held: Duration::from_nanos(read(&self.held_ns)),
            working: self.working.load(Ordering::Relaxed),
        }
    }
}
