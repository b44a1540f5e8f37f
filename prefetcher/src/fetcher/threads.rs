//! Fetches by threads that block, one read each: for file systems that cache, and for any [`Source`].
//!
//! What the page cache has is copied by few threads, as many as copy at full speed, so that reads do not
//! wake a thread each. What would wait is for many, which sleep most of the time.

use std::{
    io,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use tierfeed_numa_memory::lanes::Lanes;

use crate::fetcher::{Fetch, Fetcher};
use tierfeed_dataset::read::Source;

/// Threads that read the cold store, unless somebody says otherwise: parallel reads are what makes cold
/// files fast, and eight keep most single devices busy.
pub const READ_THREADS: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

/// Threads that copy what is there: as many as can run, and no more than a node's memory is worth.
const COPY_THREADS_MAX: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

/// After a read that would have waited, so many others are not asked whether they would.
const TAKEN_FOR_COLD: u32 = 31;

/// Reads a source by threads of its own.
#[derive(Debug)]
pub struct ThreadFetcher {
    reads: Arc<Reads>,
    /// For reads that wait for nothing. Before the others: its jobs may become theirs.
    copying: Lanes,
    waiting: Arc<Lanes>,
}

/// What the threads share.
#[derive(Debug)]
struct Reads {
    source: Arc<dyn Source>,
    /// Reads that are taken for cold without being asked.
    skipped: AtomicU32,
    is_stopped: AtomicBool,
}

impl ThreadFetcher {
    /// Starts `threads` threads that read `source`, and a few that only copy; at most `queued_max`
    /// fetches wait for one.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(
        source: Arc<dyn Source>,
        threads: NonZeroUsize,
        queued_max: NonZeroUsize,
    ) -> io::Result<Self> {
        let cpus = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let copies = cpus.min(COPY_THREADS_MAX).min(threads);
        Ok(Self {
            reads: Arc::new(Reads {
                source,
                skipped: AtomicU32::new(0),
                is_stopped: AtomicBool::new(false),
            }),
            copying: Lanes::start("read-cached", copies, None, queued_max)?,
            waiting: Arc::new(Lanes::start("read", threads, None, queued_max)?),
        })
    }
}

impl Reads {
    /// Whether to try a read that does not wait.
    fn may_be_ready(&self) -> bool {
        let left = |skipped: u32| skipped.checked_sub(1);
        self.skipped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err()
    }

    /// Reads what takes no wait, and gives back the fetch of what does.
    fn read_ready(&self, fetch: Fetch) -> Option<Fetch> {
        if self.is_stopped() {
            return None;
        }
        if !self.source.read_ready(fetch.sample, &fetch.to) {
            self.skipped.store(TAKEN_FOR_COLD, Ordering::Relaxed);
            return Some(fetch);
        }
        fetch.end(Ok(()));
        None
    }

    fn read(&self, fetch: Fetch) {
        if !self.is_stopped() {
            let outcome = self.source.read(fetch.sample, &fetch.to);
            fetch.end(outcome);
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Leaves a read to a thread that may wait. A refused job is dropped, and with it its fetch.
fn wait_for(reads: Arc<Reads>, fetch: Fetch, waiting: &Lanes) {
    drop(waiting.submit(Box::new(move || reads.read(fetch))));
}

impl Fetcher for ThreadFetcher {
    fn start(&self, fetch: Fetch) {
        let (reads, waiting) = (Arc::clone(&self.reads), Arc::clone(&self.waiting));
        if !self.reads.may_be_ready() {
            return wait_for(reads, fetch, &waiting);
        }
        let read = move || {
            if let Some(fetch) = reads.read_ready(fetch) {
                wait_for(reads, fetch, &waiting);
            }
        };
        drop(self.copying.submit(Box::new(read)));
    }

    fn backend(&self) -> &'static str {
        "threads"
    }

    fn stop(&self) {
        self.reads.is_stopped.store(true, Ordering::Relaxed);
        self.reads.source.stop();
    }
}

impl Drop for ThreadFetcher {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tierfeed_core::{id::SampleId, tier::Locality, units::Bytes};
    use tierfeed_numa_memory::{Pages, Region, Request};

    use super::*;
    use crate::fetcher::Target;
    use tierfeed_dataset::read::ReadError;

    /// Says of each read whether it was there at once.
    #[derive(Debug)]
    struct Told {
        is_ready: bool,
        asked: AtomicU32,
        waited: AtomicU32,
    }

    impl Source for Told {
        fn read(&self, _: SampleId, _: &Target) -> Result<(), ReadError> {
            self.waited.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn read_ready(&self, _: SampleId, _: &Target) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.is_ready
        }
    }

    /// How many of `reads`, one after another, were asked whether they are there, and how many waited.
    fn asked_and_waited(reads: u32, is_ready: bool) -> (u32, u32) {
        let told = Arc::new(Told { is_ready, asked: AtomicU32::new(0), waited: AtomicU32::new(0) });
        let count = NonZeroUsize::new(4).unwrap();
        let fetcher = ThreadFetcher::start(Arc::clone(&told) as _, count, count).unwrap();
        let (locality, pages) = (Locality::Anywhere, Pages::Small);
        let request = Request { len: Bytes(64), locality, name: "test", pages };
        let region = Arc::new(Region::allocate(&request).unwrap());
        for sample in 0..reads {
            let to = Target::new(Arc::clone(&region), Bytes(0), Bytes(64));
            let (send, receive) = mpsc::channel();
            let answer = move |outcome: Result<(), ReadError>| send.send(outcome).unwrap();
            fetcher.start(Fetch::new(SampleId(sample), to, answer));
            receive.recv().unwrap().unwrap();
        }
        let figure = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        (figure(&told.asked), figure(&told.waited))
    }

    #[test]
    fn what_is_there_is_read_by_no_thread_that_waits() {
        assert_eq!(asked_and_waited(100, true), (100, 0));
    }

    #[test]
    fn where_nothing_is_there_one_read_in_thirty_two_looks() {
        assert_eq!(asked_and_waited(100, false), (4, 100));
    }
}
