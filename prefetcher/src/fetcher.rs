//! Carries out fetches: reads samples from the cold store into memory, many at a time.
//!
//! A [`Fetcher`] is given one [`Fetch`] after another and answers each when it ended, in any order and
//! from any thread. Engines keep reads in flight in different ways: blocking threads ([`ThreadFetcher`], over
//! any [`tierfeed_dataset::read::Source`]), `io_uring` ([`RingFetcher`]), requests over a network.
//!
//! Invariants of every fetcher:
//!
//! 1. [`Fetcher::start`] does not wait for a read.
//! 2. A fetch is answered once, or dropped, which answers it with a fault.
//! 3. After the answer of a fetch, no thread writes to its target.
//! 4. Bytes of a target without [memory of its own](Target::direct) are written only by its methods.
//! 5. A fetcher that is dropped has answered or dropped every fetch, and none of its threads runs.

mod choice;
mod datasets;
#[cfg(feature = "object-store")]
pub(crate) mod objects;
mod patient;
mod reason;
mod ring;
mod threads;

use std::fmt;

use tierfeed_core::id::SampleId;

use tierfeed_dataset::read::ReadError;

pub use choice::{Choice, FILE_THREADS, choose};
pub use datasets::DatasetFetchers;
#[cfg(feature = "object-store")]
pub use objects::{
    HEDGES_MAX, NETWORK_THREADS, ObjectCounters, ObjectFetcher, ObjectFigures, ObjectSettings,
    ObjectSource, REQUESTS_MAX, Share, Split,
};
pub use patient::PatientFetcher;
pub use reason::{Reason, Trial};
pub use ring::{RING_DEPTH_MAX, RingCounts, RingFetcher, RingSettings};
pub use threads::ThreadFetcher;
pub use tierfeed_dataset::read::Target;

pub trait Fetcher: Send + Sync + fmt::Debug {
    /// Starts a read. A fetch that cannot be started is dropped.
    fn start(&self, fetch: Fetch);

    fn backend(&self) -> &'static str;

    /// The error of the store that a fetch of `sample` waits for; `None` if it does not wait.
    fn waits_for(&self, _sample: SampleId) -> Option<String> {
        None
    }

    /// Called when the data plane stops: blocked reads must end soon, and reads that have not begun are
    /// dropped.
    fn stop(&self) {}
}

pub struct Fetch {
    pub sample: SampleId,
    pub to: Target,
    answer: Box<dyn FnOnce(Result<(), ReadError>) + Send>,
}

impl Fetch {
    /// `answer` is called when the read ended, and dropped if it never starts.
    #[must_use]
    pub fn new(
        sample: SampleId,
        to: Target,
        answer: impl FnOnce(Result<(), ReadError>) + Send + 'static,
    ) -> Self {
        Self { sample, to, answer: Box::new(answer) }
    }

    /// After an error the content of the target is undefined.
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
