//! Fetches by requests to an object store: each is a task, and many are in flight on few threads.
//!
//! Arriving bytes are copied to the target piece by piece; only bodies of deflated samples are buffered. A
//! large sample is divided ([`Split`]) and each part is a task of its own, so that no single thread copies
//! all of it. A late request is hedged by a second one, a failed one is repeated ([`ObjectSettings`]).
//!
//! All tasks that can still write to a target own the fetch together, and it is answered when one owner is
//! left, or dropped with the last. So invariant 3 of every fetcher holds no matter how tasks end.

mod figures;
mod hedge_delay;
mod race;
mod range_writer;
mod reading;
mod requests;
mod settings;
mod source;
mod split;
mod token_bucket;

use std::{io, num::NonZeroUsize, ops::Range, sync::Arc};

use parking_lot::Mutex;
use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::{Index, format::Encoding};
use tierfeed_numa_memory::failpoint;
use tierfeed_object_stores::Client;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
};

use self::{race::FetchError, reading::Located};
use crate::{
    fetcher::{Fetch, Fetcher, Target},
    network::Network,
};
use tierfeed_dataset::read::ReadError;

pub use self::{
    figures::{ObjectCounters, ObjectFigures},
    settings::{HEDGES_MAX, ObjectSettings, REQUESTS_MAX},
    source::ObjectSource,
    split::Split,
    token_bucket::Share,
};
pub use crate::network::NETWORK_THREADS;

pub(crate) use self::{range_writer::Put, requests::Requests};

#[derive(Debug)]
pub struct ObjectFetcher {
    requests: Arc<Requests>,
    /// One permit for each fetch that is not answered.
    permits: Arc<Semaphore>,
    network: Network,
}

impl ObjectFetcher {
    /// Reads the samples of `index`, which was built from the objects of `client`. At most `fetches_max`
    /// fetches run or wait; further ones are dropped.
    ///
    /// The client must not repeat requests itself ([`Patience::without_retries`]).
    ///
    /// [`Patience::without_retries`]: tierfeed_object_stores::Patience::without_retries
    ///
    /// # Errors
    ///
    /// If the threads for the network cannot be started.
    pub fn start(
        index: Arc<Index>,
        client: Client,
        settings: ObjectSettings,
        fetches_max: NonZeroUsize,
    ) -> io::Result<Self> {
        Ok(Self {
            requests: Arc::new(Requests::new(index, client, settings)),
            permits: Arc::new(Semaphore::new(fetches_max.get().min(Semaphore::MAX_PERMITS))),
            network: Network::start("tierfeed-objects", NETWORK_THREADS)?,
        })
    }

    /// They can outlive the fetcher.
    #[must_use]
    pub fn counters(&self) -> Arc<ObjectCounters> {
        Arc::clone(&self.requests.counters)
    }
}

impl Fetcher for ObjectFetcher {
    fn start(&self, fetch: Fetch) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return };
        let (requests, shared) = (Arc::clone(&self.requests), Arc::new(Shared::new(fetch)));
        self.network.spawn(async move {
            failpoint::pass("request");
            let outcome = requests.fetch(&shared).await;
            drop(permit);
            Shared::end(shared, outcome);
        });
    }

    fn backend(&self) -> &'static str {
        "requests"
    }

    fn stop(&self) {
        self.network.stop();
    }
}

/// A fetch that is shared by all tasks that can write to its target.
struct Shared {
    sample: SampleId,
    to: Target,
    fetch: Mutex<Fetch>,
}

impl Shared {
    fn new(fetch: Fetch) -> Self {
        Self { sample: fetch.sample, to: fetch.to.clone(), fetch: Mutex::new(fetch) }
    }

    fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.to.write(Bytes(at), bytes)
    }

    /// Answers the fetch if no other task can write; else the last owner drops it.
    fn end(shared: Arc<Self>, outcome: Result<(), ReadError>) {
        if let Some(shared) = Arc::into_inner(shared) {
            let fetch = shared.fetch.into_inner();
            fetch.end(outcome);
        }
    }
}

impl Requests {
    async fn fetch(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<(), ReadError> {
        let located = self.locate(shared.sample, shared.to.len())?;
        let mut parts = self.settings.split.parts(located.range());
        let is_whole = parts.by_ref().take(2).count() < 2;
        let outcome = if is_whole || located.extent.encoding != Encoding::Plain {
            self.read_located(&located, &mut |at, bytes| shared.put(at, bytes)).await
        } else {
            self.fetch_parts(shared, &located).await
        };
        self.explained(&located, outcome).await
    }

    /// Reads the parts of a sample, as many at a time as there are slots; ends at the first failure.
    async fn fetch_parts(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        located: &Located,
    ) -> Result<(), FetchError> {
        self.counters.count(|figures| figures.split += 1);
        let mut running = JoinSet::new();
        let mut outcome = Ok(());
        for part in self.settings.split.parts(located.range()) {
            let slot = self.slot_or_failure(&mut running).await;
            match slot {
                Ok(slot) => drop(running.spawn(Arc::clone(self).part(
                    Arc::clone(shared),
                    located.clone(),
                    part,
                    slot,
                ))),
                Err(miss) => {
                    outcome = Err(miss);
                    break;
                }
            }
        }
        while outcome.is_ok() {
            let Some(ended) = running.join_next().await else { break };
            outcome = ended.unwrap_or_else(panicked);
        }
        // Returns when no task is left, so none can write any more.
        running.shutdown().await;
        outcome
    }

    async fn slot_or_failure(
        &self,
        running: &mut JoinSet<Result<(), FetchError>>,
    ) -> Result<OwnedSemaphorePermit, FetchError> {
        loop {
            tokio::select! {
                slot = Arc::clone(&self.slots).acquire_owned() => {
                    return slot.map_err(|closed| FetchError::Target(io::Error::other(closed)));
                }
                Some(ended) = running.join_next() => ended.unwrap_or_else(panicked)?,
            }
        }
    }

    async fn part(
        self: Arc<Self>,
        shared: Arc<Shared>,
        located: Located,
        range: Range<u64>,
        _slot: OwnedSemaphorePermit,
    ) -> Result<(), FetchError> {
        self.fetch_range(&located, range, &mut |at, bytes| shared.put(at, bytes)).await
    }
}

fn panicked(error: JoinError) -> Result<(), FetchError> {
    Err(FetchError::Target(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
