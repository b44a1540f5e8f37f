//! Fetches by blocking threads, one read each: for file systems that cache, and for any [`Source`].
//!
//! Reads that the page cache can answer are copied by a few threads, as many as reach full copy speed, so
//! that each read does not wake another thread. Reads that block go to many threads, which sleep most of the
//! time.

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

/// The most threads that copy cached bytes: one for each CPU, and no more than saturate the memory of a
/// node.
const COPY_THREADS_MAX: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

/// After a read that would block, this many others go to blocking threads without a try.
const TAKEN_FOR_COLD: u32 = 31;

#[derive(Debug)]
pub struct ThreadFetcher {
    reads: Arc<Reads>,
    /// For reads that do not block. Dropped before `waiting`, because its jobs may submit to that.
    copying: Lanes,
    waiting: Arc<Lanes>,
}

#[derive(Debug)]
struct Reads {
    source: Arc<dyn Source>,
    /// Number of next reads that are assumed to block.
    skipped: AtomicU32,
    is_stopped: AtomicBool,
}

impl ThreadFetcher {
    /// Starts `threads` threads that read `source`, and a few that only copy; at most `queued_max` fetches
    /// are queued for each of the two groups.
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
    fn may_be_ready(&self) -> bool {
        let left = |skipped: u32| skipped.checked_sub(1);
        self.skipped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err()
    }

    /// Reads the sample if that does not block; else returns the fetch.
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

/// A refused job is dropped with its fetch.
fn submit_blocking(reads: Arc<Reads>, fetch: Fetch, waiting: &Lanes) {
    drop(waiting.submit(Box::new(move || reads.read(fetch))));
}

impl Fetcher for ThreadFetcher {
    fn start(&self, fetch: Fetch) {
        let (reads, waiting) = (Arc::clone(&self.reads), Arc::clone(&self.waiting));
        if !self.reads.may_be_ready() {
            return submit_blocking(reads, fetch, &waiting);
        }
        let read = move || {
            if let Some(fetch) = reads.read_ready(fetch) {
                submit_blocking(reads, fetch, &waiting);
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

    #[derive(Debug)]
    struct CountingSource {
        is_ready: bool,
        asked: AtomicU32,
        waited: AtomicU32,
    }

    impl Source for CountingSource {
        fn read(&self, _: SampleId, _: &Target) -> Result<(), ReadError> {
            self.waited.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn read_ready(&self, _: SampleId, _: &Target) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.is_ready
        }
    }

    /// For `reads` reads in sequence: how many were tried without blocking, and how many blocked.
    fn asked_and_waited(reads: u32, is_ready: bool) -> (u32, u32) {
        let source = Arc::new(CountingSource {
            is_ready,
            asked: AtomicU32::new(0),
            waited: AtomicU32::new(0),
        });
        let count = NonZeroUsize::new(4).unwrap();
        let fetcher = ThreadFetcher::start(Arc::clone(&source) as _, count, count).unwrap();
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
        (figure(&source.asked), figure(&source.waited))
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
