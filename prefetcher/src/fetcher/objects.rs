//! Fetches by requests to an object store: each is a task, and many are in flight on few threads.
//!
//! What arrives is copied to its place piece by piece; no body is kept, but of deflated samples. A large
//! sample is divided ([`Split`]) and each part is a task of its own, so that no single thread copies all of
//! it. A request that is late gets company, one that fails is repeated ([`ObjectSettings`]).
//!
//! Whoever can still write to a place shares the fetch with all others who can, and the fetch is answered
//! when it has one owner left, or none. So invariant 3 of every fetcher holds however tasks end.

mod allowance;
mod figures;
mod landing;
mod network;
mod race;
mod reading;
mod requests;
mod settings;
mod source;
mod split;
mod stragglers;

use std::{
    io,
    num::NonZeroUsize,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::{Index, format::Encoding};
use tierfeed_numa_memory::drill;
use tierfeed_object_stores::Client;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
};

use self::{figures::count, race::Miss, reading::Located};
use crate::fetcher::{Fetch, Fetcher, Target};
use tierfeed_dataset::read::ReadError;

pub use self::{
    allowance::Share,
    figures::{ObjectCounters, ObjectFigures},
    network::NETWORK_THREADS,
    settings::{HEDGES_MAX, ObjectSettings, REQUESTS_MAX},
    source::ObjectSource,
    split::Split,
};
pub(crate) use self::{landing::Put, network::Network, requests::Requests};

/// Reads the samples of an index from an object store.
#[derive(Debug)]
pub struct ObjectFetcher {
    requests: Arc<Requests>,
    /// One permit for each fetch that is not answered.
    places: Arc<Semaphore>,
    network: Network,
}

impl ObjectFetcher {
    /// Reads the samples of `index`, which is one of what `client` reads; at most `fetches_max` are begun
    /// or wait, further ones are dropped.
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
            places: Arc::new(Semaphore::new(fetches_max.get().min(Semaphore::MAX_PERMITS))),
            network: Network::start()?,
        })
    }

    /// What was asked for since the start; it lives longer than this, if somebody wants to know.
    #[must_use]
    pub fn counters(&self) -> Arc<ObjectCounters> {
        Arc::clone(&self.requests.counters)
    }
}

impl Fetcher for ObjectFetcher {
    fn start(&self, fetch: Fetch) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        let (requests, shared) = (Arc::clone(&self.requests), Arc::new(Shared::new(fetch)));
        self.network.spawn(async move {
            drill::pass("request");
            let outcome = requests.fetch(&shared).await;
            drop(place);
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

/// A fetch with all who can write to its place.
struct Shared {
    sample: SampleId,
    to: Target,
    fetch: Mutex<Fetch>,
}

impl Shared {
    fn new(fetch: Fetch) -> Self {
        Self { sample: fetch.sample, to: fetch.to.clone(), fetch: Mutex::new(fetch) }
    }

    /// Puts bytes of the sample to their place.
    fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.to.write(Bytes(at), bytes)
    }

    /// Answers, if nobody else can write; else whoever is last drops the fetch.
    fn end(shared: Arc<Self>, outcome: Result<(), ReadError>) {
        if let Some(shared) = Arc::into_inner(shared) {
            let fetch = shared.fetch.into_inner().unwrap_or_else(PoisonError::into_inner);
            fetch.end(outcome);
        }
    }
}

impl Requests {
    async fn fetch(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<(), ReadError> {
        let located = self.locate(shared.sample, shared.to.len)?;
        let mut parts = self.settings.split.parts(located.range());
        let is_whole = parts.by_ref().take(2).count() < 2;
        let outcome = if is_whole || located.extent.encoding != Encoding::Plain {
            self.read_located(&located, &mut |at, bytes| shared.put(at, bytes)).await
        } else {
            self.fetch_parts(shared, &located).await
        };
        self.explained(&located, outcome).await
    }

    /// Reads the parts of a sample, each when it may be in flight, and ends with the first that fails.
    async fn fetch_parts(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        located: &Located,
    ) -> Result<(), Miss> {
        count(&self.counters.split, 1);
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
            outcome = ended.unwrap_or_else(lost);
        }
        // Returns when none of the tasks is left, and so nobody who writes.
        running.shutdown().await;
        outcome
    }

    async fn slot_or_failure(
        &self,
        running: &mut JoinSet<Result<(), Miss>>,
    ) -> Result<OwnedSemaphorePermit, Miss> {
        loop {
            tokio::select! {
                slot = Arc::clone(&self.slots).acquire_owned() => {
                    return slot.map_err(|closed| Miss::Place(io::Error::other(closed)));
                }
                Some(ended) = running.join_next() => ended.unwrap_or_else(lost)?,
            }
        }
    }

    async fn part(
        self: Arc<Self>,
        shared: Arc<Shared>,
        located: Located,
        range: Range<u64>,
        _slot: OwnedSemaphorePermit,
    ) -> Result<(), Miss> {
        self.bring(&located, range, &mut |at, bytes| shared.put(at, bytes)).await
    }
}

/// A task panicked.
fn lost(error: JoinError) -> Result<(), Miss> {
    Err(Miss::Place(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
