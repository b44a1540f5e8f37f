//! The state that the requests of a fetcher share: the index, the client, and the limits of retries and
//! hedges.

use std::{os::unix::ffi::OsStrExt as _, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tierfeed_core::{
    id::SampleId,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::Index;
use tierfeed_object_stores::Client;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    HEDGES_MAX, ObjectCounters, ObjectSettings, hedge_delay::HedgeDelays, token_bucket::TokenBucket,
};

#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) index: Arc<Index>,
    pub(super) client: Client,
    pub(super) settings: ObjectSettings,
    pub(super) counters: Arc<ObjectCounters>,
    /// One permit for each request in flight.
    pub(super) slots: Arc<Semaphore>,
    hedge_slots: Semaphore,
    observations: Mutex<Observations>,
}

#[derive(Debug)]
struct Observations {
    hedge_delays: HedgeDelays,
    hedges: TokenBucket,
    retries: TokenBucket,
}

impl Requests {
    pub(crate) fn new(index: Arc<Index>, client: Client, settings: ObjectSettings) -> Self {
        let observations = Observations {
            hedge_delays: HedgeDelays::default(),
            hedges: TokenBucket::empty(settings.hedges),
            retries: TokenBucket::full(settings.retries),
        };
        Self {
            index,
            client,
            settings,
            counters: Arc::default(),
            slots: Arc::new(Semaphore::new(settings.requests_max.get())),
            hedge_slots: Semaphore::new(HEDGES_MAX),
            observations: Mutex::new(observations),
        }
    }

    /// The name of the object of a sample in messages; the name of the dataset for an unknown sample.
    pub(crate) fn path(&self, sample: SampleId) -> PathBuf {
        if sample.0 >= self.index.len() {
            return PathBuf::from(self.client.place());
        }
        let extent = self.index.extent(sample);
        PathBuf::from(self.client.place_of(extent.path.as_os_str().as_bytes()))
    }

    /// Counts a needed request, which allows a share of extra ones.
    pub(super) fn count_needed(&self) {
        let mut observations = self.observations.lock();
        observations.hedges.deposit();
        observations.retries.deposit();
    }

    pub(super) fn observe(&self, len: Bytes, took: Nanoseconds) {
        self.observations.lock().hedge_delays.observe(len, took);
    }

    pub(super) fn hedge_delay(&self, len: Bytes) -> Option<Duration> {
        self.observations.lock().hedge_delays.delay(len).map(|delay| Duration::from_nanos(delay.0))
    }

    /// The permit for a hedge; `None` if too many are in flight or were sent lately.
    pub(super) fn try_hedge(&self) -> Option<SemaphorePermit<'_>> {
        let slot = self.hedge_slots.try_acquire().ok()?;
        self.observations.lock().hedges.try_spend().then_some(slot)
    }

    /// Counts a retry. Returns whether it is within the share of retries; one beyond it is delayed.
    pub(super) fn count_retry(&self) -> bool {
        self.observations.lock().retries.try_spend()
    }
}
