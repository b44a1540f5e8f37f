//! Carries out fetches: reads samples from the cold store to their places, many at a time.
//!
//! A [`Fetcher`] is given one [`Fetch`] after another and answers each when it ended, in any order and
//! from any thread. How reads are kept in flight is its own affair: by threads that block
//! ([`ThreadFetcher`], over any [`tierfeed_dataset::read::Source`]), by rings of the kernel, by requests over a network.
//!
//! Invariants of every fetcher:
//!
//! 1. [`Fetcher::start`] does not wait for a read.
//! 2. A fetch is answered once, or dropped, which answers it with a fault.
//! 3. After a fetch was answered nothing writes to its place any more.
//! 4. To a place that is [summed](Target::is_summed) bytes go through the methods of [`Target`] alone.
//! 5. A fetcher that is dropped has answered or dropped every fetch, and none of its threads runs.

mod choice;
#[cfg(feature = "object-store")]
pub(crate) mod objects;
mod reason;
mod ring;
mod threads;

use std::fmt;

use tierfeed_core::id::SampleId;

use tierfeed_dataset::read::ReadError;

pub use choice::{Choice, FILE_THREADS, choose};
#[cfg(feature = "object-store")]
pub use objects::{
    HEDGES_MAX, NETWORK_THREADS, ObjectCounters, ObjectFetcher, ObjectFigures, ObjectSettings,
    ObjectSource, REQUESTS_MAX, Share, Split,
};
pub use reason::{Reason, Trial};
pub use ring::{RING_DEPTH_MAX, RingCounts, RingFetcher, RingSettings};
pub use threads::{READ_THREADS, ThreadFetcher};
pub use tierfeed_dataset::read::Target;

/// What reads a cold store for the data plane.
pub trait Fetcher: Send + Sync + fmt::Debug {
    /// Starts a read. What cannot be started is dropped.
    fn start(&self, fetch: Fetch);

    /// What it reads with, in a word, for metrics.
    fn backend(&self) -> &'static str;

    /// Called when the data plane stops: reads that wait for something shall end soon, and those that
    /// have not begun are dropped.
    fn stop(&self) {}
}

/// A sample to be read, and who waits for it.
pub struct Fetch {
    /// What to read.
    pub sample: SampleId,
    /// Where to put it.
    pub to: Target,
    answer: Box<dyn FnOnce(Result<(), ReadError>) + Send>,
}

impl Fetch {
    /// A fetch of `sample` to `to`; `answer` is called when it ended, and dropped if nobody reads it.
    #[must_use]
    pub fn new(
        sample: SampleId,
        to: Target,
        answer: impl FnOnce(Result<(), ReadError>) + Send + 'static,
    ) -> Self {
        Self { sample, to, answer: Box::new(answer) }
    }

    /// Tells that the read ended. After an error the place holds garbage.
    pub fn end(self, outcome: Result<(), ReadError>) {
        (self.answer)(outcome);
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sample, to, .. } = self;
        f.debug_struct("Fetch").field("sample", sample).field("to", to).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
