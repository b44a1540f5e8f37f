//! Fetches over rings of the kernel, past the page cache: for samples that share files on a disk.
//!
//! A few threads have a ring each and take from one list, so that neighbours in a file meet wherever they
//! were asked for. Straight into staging where place and file are aligned as the disk wants, else through
//! a buffer and one copy.
//!
//! Only the usual case is handled here. What a ring does not read (a sample that is a file of its own,
//! one that has to be decoded, one that the page cache holds) and everything that goes wrong (a file that
//! is gone, shorter or another than it was indexed, an error, a short read) is handed to threads that
//! block ([`ThreadFetcher`]), which read anew and say what is wrong. So both engines give the same bytes
//! and the same errors.

mod bounces;
mod pending;
mod sample;
mod worker;

use std::{
    collections::VecDeque,
    io, mem,
    num::{NonZeroU16, NonZeroUsize},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{Builder, JoinHandle},
};

use tierfeed_core::id::SampleId;
use tierfeed_file_io::reads::Waker;
use tierfeed_numa_memory::affinity::pin_current_thread;

use crate::fetcher::{Fetch, Fetcher, Reason, ThreadFetcher};
use tierfeed_dataset::read::{FileSource, open_files::OpenFiles};

use pending::Pending;
use sample::{Direct, Piece, is_plain_part};
use worker::Worker;

/// Reads that a ring keeps in flight at most; the session gives out fewer ([`tierfeed_core::session::Windows`]).
pub const RING_DEPTH_MAX: NonZeroU16 = NonZeroU16::new(256).expect("256 is not 0");

/// Samples that are looked at to see what a dataset is like.
const CANDIDATES: u32 = 64;

/// What rings are started with.
#[derive(Debug, Clone)]
pub struct RingSettings {
    /// Threads with a ring each.
    pub threads: NonZeroUsize,
    /// Where they run; `None`: wherever the caller may.
    pub cpus: Option<Vec<usize>>,
    /// Reads in flight on each ring.
    pub depth: NonZeroU16,
    /// Files that stay open.
    pub files_max: usize,
    /// Threads that read what rings do not.
    pub blocking_threads: NonZeroUsize,
    /// The most fetches that the session has in flight.
    pub queued_max: NonZeroUsize,
}

/// Reads files by rings.
#[derive(Debug)]
pub struct RingFetcher {
    board: Arc<Board>,
    threads: Vec<JoinHandle<()>>,
}

/// What rings did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingCounts {
    /// Requests that the kernel was given.
    pub reads: u64,
    /// Samples that they brought.
    pub samples: u64,
    /// Samples that were handed to threads that block.
    pub handed_over: u64,
}

/// What the threads share.
#[derive(Debug)]
struct Board {
    list: Mutex<List>,
    seats: Vec<Seat>,
    source: Arc<FileSource>,
    files: OpenFiles<Direct>,
    blocking: ThreadFetcher,
    reads: AtomicU64,
    samples: AtomicU64,
    handed_over: AtomicU64,
    is_unregistered: AtomicBool,
}

#[derive(Debug, Default)]
struct List {
    /// As they were given, at most as many as the session has in flight.
    fetches: VecDeque<Fetch>,
    pieces: Pending<Piece>,
    is_stopped: bool,
}

/// Where one thread waits.
#[derive(Debug)]
struct Seat {
    waker: Waker,
    is_asleep: AtomicBool,
}

impl RingFetcher {
    /// Starts threads that read the files of `source` by rings, and others that read by `source` itself.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started or pinned, or the kernel gives no ring.
    pub fn start(source: Arc<FileSource>, settings: &RingSettings) -> io::Result<Self> {
        let RingSettings { threads, depth, files_max, blocking_threads, queued_max, .. } = settings;
        let seat = |_| Ok(Seat { waker: Waker::new()?, is_asleep: AtomicBool::new(false) });
        let seats = (0..threads.get()).map(seat).collect::<io::Result<_>>()?;
        let board = Arc::new(Board {
            list: Mutex::default(),
            seats,
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
        let mut fetcher = Self { board, threads: Vec::new() };
        for seat in 0..threads.get() {
            fetcher.start_thread(seat, *depth, settings.cpus.clone())?;
        }
        Ok(fetcher)
    }

    /// Up to `count` samples from all over the dataset that a ring would read, none of them in the page
    /// cache.
    pub(super) fn cold_samples(&self, count: usize) -> Vec<SampleId> {
        let index = self.board.source.index();
        let candidates = u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(2).max(1);
        let stride = (index.len() / candidates).max(1);
        let is_cold = |sample: &SampleId| {
            let extent = index.extent(*sample);
            let direct = is_plain_part(&extent).then(|| self.board.files.get(&extent.path).ok());
            direct.flatten().is_some_and(|it| !it.is_cached(extent.offset, extent.len))
        };
        let samples = (0..index.len()).step_by(stride as usize).map(SampleId);
        samples.filter(is_cold).take(count).collect()
    }

    /// What was done since the start.
    #[must_use]
    pub fn counts(&self) -> RingCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RingCounts {
            reads: read(&self.board.reads),
            samples: read(&self.board.samples),
            handed_over: read(&self.board.handed_over),
        }
    }

    /// A ring belongs to the thread that makes it, so the thread reports how that went.
    fn start_thread(
        &mut self,
        seat: usize,
        depth: NonZeroU16,
        cpus: Option<Vec<usize>>,
    ) -> io::Result<()> {
        let (report, started) = mpsc::sync_channel(1);
        let board = Arc::clone(&self.board);
        let thread = Builder::new().name(format!("ring-{seat}")).spawn(move || {
            let pinned = cpus.map_or(Ok(()), |cpus| pin_current_thread(&cpus));
            let worker = pinned.and_then(|()| Worker::new(board, seat, depth));
            // The starter waits for this report, so it cannot be gone.
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
        let mut list = self.board.list();
        if list.is_stopped {
            return;
        }
        list.fetches.push_back(fetch);
        drop(list);
        self.board.wake_one();
    }

    fn backend(&self) -> &'static str {
        "io_uring"
    }

    fn stop(&self) {
        self.board.blocking.stop();
        let mut list = self.board.list();
        list.is_stopped = true;
        let dropped = (mem::take(&mut list.fetches), list.pieces.take_all());
        drop(list);
        // Answers them, which must not happen under the lock.
        drop(dropped);
        self.board.seats.iter().for_each(|seat| seat.waker.wake());
    }
}

impl Drop for RingFetcher {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // One that panicked has ended too, and said so on stderr; what it had is dropped.
            let _ = thread.join();
        }
    }
}

impl Board {
    /// Nothing that can panic is done under the lock.
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that is awake looks at the list before it sleeps.
    fn wake_one(&self) {
        let seat = self.seats.iter().find(|seat| seat.is_asleep.swap(false, Ordering::SeqCst));
        if let Some(seat) = seat {
            seat.waker.wake();
        }
    }

    /// Says once that memory cannot be registered.
    fn note_registration(&self, registration: Result<(), &io::Error>) {
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

/// Whether rings have something to read here: samples that share files, on a file system that can bypass
/// the page cache.
///
/// # Errors
///
/// If the file of such a sample cannot be opened that way.
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
