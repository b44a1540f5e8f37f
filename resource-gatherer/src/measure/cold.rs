//! Measures a cold store by reads of its own: the time to the first byte, then the rate of many reads at a
//! time.
//!
//! 1. Every extent is read at most once, so that no cache on the way has it from an earlier read.
//! 2. The caller never reads: threads do, and are left behind if the store does not answer. They end with the
//!    read that they are in.
//! 3. One read at a time gives the latency, then more threads join and everything that arrives counts for the
//!    rate.

mod files;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use tierfeed_core::units::{Bytes, Nanoseconds};

pub use self::files::{ColdFiles, FileExtent};
use super::{
    cell::{Occupation, StopRule},
    clock::{Clock, SystemClock},
    histogram::Histogram,
    laps::{LapEnd, Laps},
};
use crate::figures::estimate::{Estimate, to_f64};

/// The number of reads that give the latency.
const LATENCIES: u64 = 9;

/// Arrivals that the measuring thread has not counted yet; when there are more, readers wait.
const ARRIVALS_MAX: usize = 1024;

const HALF_WIDTH: f64 = 0.05;

/// A store that is read past the caches of this host.
pub trait ColdReads: Send + Sync {
    fn count(&self) -> usize;

    /// The number of reads at a time that give its rate.
    fn at_a_time(&self) -> usize;

    /// Reads extent `number`, and tells `progress` what arrived, piece by piece.
    ///
    /// # Errors
    ///
    /// The extent cannot be read, or `progress` wants no more.
    fn read(&self, number: usize, progress: &Arc<Progress>) -> io::Result<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// The time to the first byte: the first piece shall be small.
    FirstByte,
    /// The rate: pieces shall be as large as the store reads them fastest.
    Rate,
}

#[derive(Debug)]
pub struct Progress {
    begun: Nanoseconds,
    has_first: AtomicBool,
    is_stopped: Arc<AtomicBool>,
    aim: Aim,
    events: SyncSender<Event>,
}

impl Progress {
    #[must_use]
    pub fn aim(&self) -> Aim {
        self.aim
    }

    /// # Errors
    ///
    /// The measurement has ended, and the read shall end too.
    pub fn arrived(&self, bytes: Bytes) -> io::Result<()> {
        let now = SystemClock.wall();
        let is_first = !self.has_first.swap(true, Ordering::Relaxed);
        let latency = is_first.then(|| Nanoseconds(now.0.saturating_sub(self.begun.0)));
        let over = || io::Error::from(io::ErrorKind::Interrupted);
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(over());
        }
        self.events.send(Event::Arrived { at: now, latency, bytes }).map_err(|_| over())
    }
}

#[derive(Debug)]
enum Event {
    Arrived { at: Nanoseconds, latency: Option<Nanoseconds>, bytes: Bytes },
    Failed(io::Error),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ColdRates {
    /// From a request to its first byte.
    pub latency_ns: Estimate,
    /// Many reads at a time.
    pub read_bytes_per_s: Estimate,
    pub read: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColdLimits {
    /// The time for the latency, beyond which only the first read may go.
    pub latency: Nanoseconds,
    /// The time for the rate, beyond which only the first read may go.
    pub rate: Nanoseconds,
    /// After this time there are no figures.
    pub total: Nanoseconds,
    /// The most that is read, apart from what is on its way.
    pub bytes: Bytes,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColdError {
    #[error("it has no bytes")]
    Empty,
    #[error("no answer within {0}")]
    NoAnswer(Nanoseconds),
    #[error("{0} are too few for a rate")]
    TooSmall(Bytes),
    #[error("{0}")]
    Failed(#[source] io::Error),
    #[error("cannot start a thread to read on: {0}")]
    Thread(#[source] io::Error),
}

/// # Errors
///
/// The store does not answer in time, or a read fails.
pub(crate) fn measure(
    reads: &Arc<dyn ColdReads>,
    limits: &ColdLimits,
) -> Result<ColdRates, ColdError> {
    if reads.count() == 0 {
        return Err(ColdError::Empty);
    }
    let (events, told) = sync_channel(ARRIVALS_MAX);
    let readers = Readers {
        reads: Arc::clone(reads),
        next: Arc::default(),
        is_stopped: Arc::default(),
        aims_at_rate: Arc::default(),
    };
    let begun = SystemClock.wall();
    let mut count =
        Count { told: &told, end: begun.0.saturating_add(limits.total.0), limits, read: 0 };
    readers.start(&events)?;
    let found = count.latency(begun).and_then(|latency_ns| {
        readers.aims_at_rate.store(true, Ordering::Relaxed);
        for _ in 1..reads.at_a_time() {
            readers.start(&events)?;
        }
        drop(events);
        let read_bytes_per_s = count.rate(latency_ns.median)?;
        Ok(ColdRates { latency_ns, read_bytes_per_s, read: Bytes(count.read) })
    });
    readers.is_stopped.store(true, Ordering::Relaxed);
    found
}

struct Readers {
    reads: Arc<dyn ColdReads>,
    next: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
    aims_at_rate: Arc<AtomicBool>,
}

impl Readers {
    fn start(&self, events: &SyncSender<Event>) -> Result<(), ColdError> {
        let (reads, next) = (Arc::clone(&self.reads), Arc::clone(&self.next));
        let (is_stopped, at_rate) = (Arc::clone(&self.is_stopped), Arc::clone(&self.aims_at_rate));
        let events = events.clone();
        let read = move || {
            while !is_stopped.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= reads.count() {
                    return;
                }
                let aim = if at_rate.load(Ordering::Relaxed) { Aim::Rate } else { Aim::FirstByte };
                let progress = Progress {
                    begun: SystemClock.wall(),
                    has_first: AtomicBool::new(false),
                    is_stopped: Arc::clone(&is_stopped),
                    aim,
                    events: events.clone(),
                };
                let outcome = reads.read(number, &Arc::new(progress));
                if let Err(error) = outcome {
                    // An error because the measurement is over finds no receiver.
                    let _ = events.send(Event::Failed(error));
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("tierfeed-cold".to_owned());
        thread.spawn(read).map(drop).map_err(ColdError::Thread)
    }
}

struct Count<'a> {
    told: &'a Receiver<Event>,
    /// After this time there are no figures.
    end: u64,
    limits: &'a ColdLimits,
    read: u64,
}

type Arrival = (Nanoseconds, Option<Nanoseconds>, u64);

impl Count<'_> {
    /// The next arrival; `None` if there is none before `until`, or if everything is read.
    fn next(&mut self, until: u64) -> Result<Option<Arrival>, ColdError> {
        let left = until.min(self.end).saturating_sub(SystemClock.wall().0);
        match self.told.recv_timeout(Duration::from_nanos(left)) {
            Ok(Event::Arrived { at, latency, bytes }) => {
                self.read += bytes.0;
                Ok(Some((at, latency, bytes.0)))
            }
            Ok(Event::Failed(error)) => Err(ColdError::Failed(error)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// Latencies, until there are enough or the time is over; at least one.
    fn latency(&mut self, begun: Nanoseconds) -> Result<Estimate, ColdError> {
        let until = begun.0.saturating_add(self.limits.latency.0);
        let mut latencies = Histogram::default();
        while latencies.samples() < LATENCIES {
            let until = if latencies.samples() == 0 { self.end } else { until };
            let Some((_, latency, _)) = self.next(until)? else { break };
            latency.into_iter().for_each(|latency| latencies.record(latency));
        }
        latencies.median(HALF_WIDTH).ok_or(ColdError::NoAnswer(self.limits.total))
    }

    /// A few reads may all have been under way before this starts, so they count as taking no less than the
    /// latency of one.
    fn rate(&mut self, latency_ns: f64) -> Result<Estimate, ColdError> {
        let (begun, before) = (SystemClock.wall(), self.read);
        let until = begun.0.saturating_add(self.limits.rate.0);
        let rule = StopRule {
            half_width: HALF_WIDTH,
            samples_min: 10,
            samples_max: 100,
            time: self.limits.rate,
        };
        let lap = LapEnd::Time(Nanoseconds((self.limits.rate.0 / 15).max(1)));
        let mut laps = Laps::new(begun, lap, rule, Occupation::Waits);
        let mut last = begun;
        let is_enough = |read: u64| read - before >= self.limits.bytes.0;
        while laps.cell.wants_more() && !is_enough(self.read) {
            let until = if self.read == before { self.end } else { until };
            let Some((at, _, bytes)) = self.next(until)? else { break };
            last = Nanoseconds(at.0.max(last.0));
            if laps.counts_last_of_lap(last, None, bytes) {
                laps.close(last);
            }
        }
        let (read, took) = (self.read - before, last.0 - begun.0);
        if read == 0 {
            let is_over = SystemClock.wall().0 >= self.end;
            return Err(if is_over {
                ColdError::NoAnswer(self.limits.total)
            } else {
                ColdError::TooSmall(Bytes(self.read))
            });
        }
        let whole = || Estimate {
            samples: 1,
            ..Estimate::stated(to_f64(read) * 1e9 / to_f64(took).max(latency_ns).max(1.0))
        };
        Ok(laps.rate().filter(|rate| rate.samples > 2).unwrap_or_else(whole))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    const LIMITS: ColdLimits = ColdLimits {
        latency: Nanoseconds(5_000_000),
        rate: Nanoseconds(20_000_000),
        total: Nanoseconds(50_000_000),
        bytes: Bytes::mib(1),
    };

    /// A store whose reads hang from this number on.
    struct Store {
        count: usize,
        hangs_from: usize,
        never: (Mutex<bool>, Condvar),
        read: AtomicUsize,
    }

    fn store(count: usize, hangs_from: usize) -> Arc<Store> {
        let never = (Mutex::new(false), Condvar::new());
        Arc::new(Store { count, hangs_from, never, read: AtomicUsize::new(0) })
    }

    impl ColdReads for Store {
        fn count(&self) -> usize {
            self.count
        }

        fn at_a_time(&self) -> usize {
            4
        }

        fn read(&self, number: usize, progress: &Arc<Progress>) -> io::Result<()> {
            if number >= self.hangs_from {
                let (lock, woken) = &self.never;
                let mut is_over = lock.lock().unwrap();
                while !*is_over {
                    is_over = woken.wait(is_over).unwrap();
                }
            }
            self.read.fetch_add(1, Ordering::Relaxed);
            progress.arrived(Bytes(1 << 10))
        }
    }

    impl Store {
        fn answer(&self) {
            *self.never.0.lock().unwrap() = true;
            self.never.1.notify_all();
        }
    }

    fn measured(store: &Arc<Store>) -> Result<ColdRates, ColdError> {
        let reads: Arc<dyn ColdReads> = Arc::clone(store) as _;
        let found = measure(&reads, &LIMITS);
        store.answer();
        found
    }

    #[test]
    fn a_store_has_a_latency_and_a_rate_and_is_not_read_without_end() {
        let store = store(1_000_000, usize::MAX);
        let found = measured(&store).unwrap();
        assert!(found.latency_ns.median > 0.0 && found.read_bytes_per_s.median > 0.0, "{found:?}");
        let beside = Bytes(LATENCIES << 10);
        assert!(found.read.0 <= LIMITS.bytes.0 + beside.0 + (1 << 10), "{found:?}");
    }

    #[test]
    fn a_read_that_arrived_before_the_rate_is_taken_took_at_least_the_latency_of_one() {
        let (events, told) = sync_channel(1);
        let (at, latency, bytes) = (Nanoseconds(0), None, Bytes(50_000));
        events.send(Event::Arrived { at, latency, bytes }).unwrap();
        drop(events);
        let mut count = Count { told: &told, end: u64::MAX, limits: &LIMITS, read: 0 };
        let rate = count.rate(100_000.0).unwrap();
        assert!((rate.median - 5e8).abs() < 1.0, "{rate:?}");
    }

    #[test]
    fn a_store_that_hangs_has_no_figures_and_holds_up_no_longer_than_the_limit() {
        let begun = SystemClock.wall();
        let error = measured(&store(100, 0)).unwrap_err();
        assert_eq!(error.to_string(), "no answer within 50 ms");
        let took = SystemClock.wall().0 - begun.0;
        assert!(took >= LIMITS.total.0, "it was given its time");
        let error = measured(&store(100, 20)).err();
        assert!(
            error.is_none_or(|it| matches!(it, ColdError::NoAnswer(_))),
            "what arrived before counts"
        );
    }

    #[test]
    fn every_extent_is_read_at_most_once() {
        let store = store(30, usize::MAX);
        let found = measured(&store);
        assert!(store.read.load(Ordering::Relaxed) <= 30, "{found:?}");
        assert!(matches!(measured(&self::store(0, 0)), Err(ColdError::Empty)));
    }

    #[test]
    fn a_store_that_fails_says_why() {
        struct Broken;
        impl ColdReads for Broken {
            fn count(&self) -> usize {
                9
            }
            fn at_a_time(&self) -> usize {
                2
            }
            fn read(&self, _: usize, _: &Arc<Progress>) -> io::Result<()> {
                Err(io::Error::other("the disk is on fire"))
            }
        }
        let reads: Arc<dyn ColdReads> = Arc::new(Broken);
        let error = measure(&reads, &LIMITS).unwrap_err();
        assert_eq!(error.to_string(), "the disk is on fire");
    }
}
