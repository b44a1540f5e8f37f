//! Fetches by `io_uring` with direct I/O: for samples that share files on a disk.
//!
//! A few threads have a ring each and take from one queue, so that adjacent samples are merged into one read
//! no matter which thread takes them. A read goes directly into staging if target and file are aligned as
//! the disk requires, else through a bounce buffer and one copy.
//!
//! Only the usual case is handled here. Samples that a ring does not read (a file of its own, a compressed
//! one, one that the page cache holds or is going to hold) and all failures (a file that is gone, shorter or
//! changed since it was indexed, an error, a short read) are handed to blocking threads ([`ThreadFetcher`]),
//! which repeat the read and report the error. So both engines give the same bytes and the same errors.

mod bounces;
mod pending;
mod sample;
mod worker;

use std::{
    collections::VecDeque,
    io, mem,
    num::{NonZeroU16, NonZeroUsize},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{Builder, JoinHandle},
};

use parking_lot::Mutex;
use tierfeed_core::id::SampleId;
use tierfeed_file_io::reads::Waker;
use tierfeed_numa_memory::affinity::pin_current_thread;

use crate::fetcher::{Fetch, Fetcher, Reason, ThreadFetcher};
use tierfeed_dataset::read::{FileSource, open_files::OpenFiles};

use pending::Pending;
use sample::{Direct, Piece, is_plain_part};
use worker::Worker;

/// The most reads that a ring keeps in flight; the session allows fewer
/// ([`tierfeed_core::session::Windows`]).
pub const RING_DEPTH_MAX: NonZeroU16 = NonZeroU16::new(256).expect("256 is not 0");

/// Samples that are examined to classify a dataset.
const CANDIDATES: u32 = 64;

#[derive(Debug, Clone)]
pub struct RingSettings {
    /// Number of threads; each has a ring.
    pub threads: NonZeroUsize,
    /// The CPUs that they are pinned to; `None` for no pinning.
    pub cpus: Option<Vec<usize>>,
    /// The most reads in flight on each ring.
    pub depth: NonZeroU16,
    pub files_max: usize,
    pub blocking_threads: NonZeroUsize,
    /// The most fetches that the session has in flight.
    pub queued_max: NonZeroUsize,
}

#[derive(Debug)]
pub struct RingFetcher {
    state: Arc<RingState>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingCounts {
    /// Read requests that were submitted to the kernel.
    pub reads: u64,
    /// Samples that these requests completed.
    pub samples: u64,
    /// Samples that were handed to blocking threads.
    pub handed_over: u64,
}

#[derive(Debug)]
struct RingState {
    queue: Mutex<Queue>,
    wakers: Vec<ThreadWaker>,
    source: Arc<FileSource>,
    files: OpenFiles<Direct>,
    blocking: ThreadFetcher,
    reads: AtomicU64,
    samples: AtomicU64,
    handed_over: AtomicU64,
    is_unregistered: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order of arrival, at most as many as the session has in flight.
    fetches: VecDeque<Fetch>,
    pieces: Pending<Piece>,
    is_stopped: bool,
}

#[derive(Debug)]
struct ThreadWaker {
    waker: Waker,
    is_asleep: AtomicBool,
}

impl RingFetcher {
    /// Starts threads that read the files of `source` by rings, and blocking threads that read `source`.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started or pinned, or the kernel gives no ring.
    pub fn start(source: Arc<FileSource>, settings: &RingSettings) -> io::Result<Self> {
        let RingSettings { threads, depth, files_max, blocking_threads, queued_max, .. } = settings;
        let waker = |_| Ok(ThreadWaker { waker: Waker::new()?, is_asleep: AtomicBool::new(false) });
        let wakers = (0..threads.get()).map(waker).collect::<io::Result<_>>()?;
        let state = Arc::new(RingState {
            queue: Mutex::default(),
            wakers,
            blocking: ThreadFetcher::start(
                Arc::clone(&source) as _,
                *blocking_threads,
                *queued_max,
            )?,
            source,
            files: OpenFiles::new(*files_max, Direct::open),
            reads: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            handed_over: AtomicU64::new(0),
            is_unregistered: AtomicBool::new(false),
        });
        let mut fetcher = Self { state, threads: Vec::new() };
        for index in 0..threads.get() {
            fetcher.start_thread(index, *depth, settings.cpus.clone())?;
        }
        Ok(fetcher)
    }

    /// Up to `count` samples, spread over the dataset, that a ring would read and the page cache does not
    /// hold.
    pub(super) fn cold_samples(&self, count: usize) -> Vec<SampleId> {
        let index = self.state.source.index();
        let candidates = u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(2).max(1);
        let stride = (index.len() / candidates).max(1);
        let is_cold = |sample: &SampleId| {
            let extent = index.extent(*sample);
            let direct = is_plain_part(&extent).then(|| self.state.files.get(&extent.path).ok());
            direct.flatten().is_some_and(|it| !it.is_cached(extent.offset, extent.len))
        };
        let samples = (0..index.len()).step_by(stride as usize).map(SampleId);
        samples.filter(is_cold).take(count).collect()
    }

    #[must_use]
    pub fn counts(&self) -> RingCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RingCounts {
            reads: read(&self.state.reads),
            samples: read(&self.state.samples),
            handed_over: read(&self.state.handed_over),
        }
    }

    /// A ring belongs to the thread that creates it, so the thread reports the outcome.
    fn start_thread(
        &mut self,
        index: usize,
        depth: NonZeroU16,
        cpus: Option<Vec<usize>>,
    ) -> io::Result<()> {
        let (report, started) = mpsc::sync_channel(1);
        let state = Arc::clone(&self.state);
        let thread = Builder::new().name(format!("ring-{index}")).spawn(move || {
            let pinned = cpus.map_or(Ok(()), |cpus| pin_current_thread(&cpus));
            let worker = pinned.and_then(|()| Worker::new(state, index, depth));
            // The starting thread waits for this report, so its channel is open.
            match worker {
                Ok(worker) => {
                    let _ = report.send(Ok(()));
                    worker.run();
                }
                Err(error) => drop(report.send(Err(error))),
            }
        })?;
        self.threads.push(thread);
        started.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl Fetcher for RingFetcher {
    fn start(&self, fetch: Fetch) {
        let mut queue = self.state.queue.lock();
        if queue.is_stopped {
            return;
        }
        queue.fetches.push_back(fetch);
        drop(queue);
        self.state.wake_one();
    }

    fn backend(&self) -> &'static str {
        "io_uring"
    }

    fn stop(&self) {
        self.state.blocking.stop();
        let mut queue = self.state.queue.lock();
        queue.is_stopped = true;
        let dropped = (mem::take(&mut queue.fetches), mem::take(&mut queue.pieces));
        drop(queue);
        // Dropping them answers them, which must not happen under the lock.
        drop(dropped);
        self.state.wakers.iter().for_each(|waker| waker.waker.wake());
    }
}

impl Drop for RingFetcher {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too, and its fetches are dropped.
            let _ = thread.join();
        }
    }
}

impl RingState {
    /// A thread that is awake checks the queue before it sleeps.
    fn wake_one(&self) {
        let waker = self.wakers.iter().find(|waker| waker.is_asleep.swap(false, Ordering::SeqCst));
        if let Some(waker) = waker {
            waker.waker.wake();
        }
    }

    fn warn_unregistered(&self, registration: Result<(), &io::Error>) {
        if let Err(error) = registration
            && !self.is_unregistered.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                %error,
                "memory cannot be registered with the kernel, so reads cost a little more; \
                 raise `ulimit -l`"
            );
        }
    }

    fn hand_over(&self, fetch: Fetch) {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
        self.blocking.start(fetch);
    }
}

/// Whether rings can read this dataset: samples share files, on a file system that has direct I/O.
///
/// # Errors
///
/// If the file of such a sample cannot be opened for direct I/O, or the kernel does not report its cached
/// bytes.
pub(super) fn is_for_rings(source: &FileSource) -> Result<bool, Reason> {
    let index = source.index();
    let stride = (index.len() / CANDIDATES).max(1);
    let mut samples = (0..index.len()).step_by(stride as usize).map(SampleId);
    let extent = samples.find_map(|sample| Some(index.extent(sample)).filter(is_plain_part));
    let Some(extent) = extent else { return Ok(false) };
    let direct = Direct::open(&extent.path).map_err(Reason::NoDirect)?;
    direct.cached(0, 1).map_err(Reason::NoView)?;
    Ok(true)
}
