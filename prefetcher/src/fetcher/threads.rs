//! Fetches by threads that block, one read each: for file systems that cache, and for any [`Source`].

use std::{
    io,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tierfeed_numa_memory::lanes::Lanes;

use crate::{
    fetcher::{Fetch, Fetcher, Target},
    source::Source,
};

/// Threads that read the cold store, unless somebody says otherwise: parallel reads are what makes cold
/// files fast, and eight keep most single devices busy.
pub const READ_THREADS: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

/// Reads a source by threads of its own.
#[derive(Debug)]
pub struct ThreadFetcher {
    source: Arc<dyn Source>,
    lanes: Lanes,
    is_stopped: Arc<AtomicBool>,
}

impl ThreadFetcher {
    /// Starts `threads` threads that read `source`; at most `queued_max` fetches wait for one.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(
        source: Arc<dyn Source>,
        threads: NonZeroUsize,
        queued_max: NonZeroUsize,
    ) -> io::Result<Self> {
        let lanes = Lanes::start("read", threads, None, queued_max)?;
        Ok(Self { source, lanes, is_stopped: Arc::default() })
    }
}

impl Fetcher for ThreadFetcher {
    fn start(&self, fetch: Fetch) {
        let (source, is_stopped) = (Arc::clone(&self.source), Arc::clone(&self.is_stopped));
        let read = move || {
            if !is_stopped.load(Ordering::Relaxed) {
                let Target { region, offset, len } = &fetch.to;
                let outcome = source.read(fetch.sample, region, *offset, *len);
                fetch.end(outcome);
            }
        };
        // A refused job is dropped, and with it its fetch.
        drop(self.lanes.submit(Box::new(read)));
    }

    fn backend(&self) -> &'static str {
        "threads"
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.source.stop();
    }
}

impl Drop for ThreadFetcher {
    fn drop(&mut self) {
        self.stop();
    }
}
