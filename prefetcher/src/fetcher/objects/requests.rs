//! What the requests of a fetcher share: the index, the client, and the bounds within which requests are
//! repeated or get company.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tierfeed_core::{
    id::SampleId,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::Index;
use tierfeed_object_stores::Client;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    HEDGES_MAX, ObjectCounters, ObjectSettings, allowance::Allowance, stragglers::Stragglers,
};

/// What all requests of a fetcher share.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) index: Arc<Index>,
    pub(super) client: Client,
    pub(super) settings: ObjectSettings,
    pub(super) counters: Arc<ObjectCounters>,
    /// One permit for each request in flight.
    pub(super) slots: Arc<Semaphore>,
    hedge_slots: Semaphore,
    record: Mutex<Record>,
}

/// What was seen of the store, and what may be asked of it.
#[derive(Debug)]
struct Record {
    stragglers: Stragglers,
    hedges: Allowance,
    retries: Allowance,
}

impl Requests {
    pub(crate) fn new(index: Arc<Index>, client: Client, settings: ObjectSettings) -> Self {
        let record = Record {
            stragglers: Stragglers::default(),
            hedges: Allowance::empty(settings.hedges),
            retries: Allowance::full(settings.retries),
        };
        Self {
            index,
            client,
            settings,
            counters: Arc::default(),
            slots: Arc::new(Semaphore::new(settings.requests_max.get())),
            hedge_slots: Semaphore::new(HEDGES_MAX),
            record: Mutex::new(record),
        }
    }

    /// What the user calls the object of a sample that there is.
    pub(crate) fn path(&self, sample: SampleId) -> PathBuf {
        if sample.0 >= self.index.len() {
            return PathBuf::from(self.client.place());
        }
        let extent = self.index.extent(sample);
        PathBuf::from(self.client.place_of(extent.path.as_os_str().as_bytes()))
    }

    /// A request that is needed is made.
    pub(super) fn earn(&self) {
        let mut record = self.record();
        record.hedges.earn();
        record.retries.earn();
    }

    /// A request for `len` bytes ended well.
    pub(super) fn observe(&self, len: Bytes, took: Nanoseconds) {
        self.record().stragglers.observe(len, took);
    }

    /// How long to wait for `len` bytes before they are asked for again.
    pub(super) fn patience(&self, len: Bytes) -> Option<Duration> {
        self.record().stragglers.patience(len).map(|patience| Duration::from_nanos(patience.0))
    }

    /// The right to make one request because another is late.
    pub(super) fn extra(&self) -> Option<SemaphorePermit<'_>> {
        let slot = self.hedge_slots.try_acquire().ok()?;
        self.record().hedges.spend().then_some(slot)
    }

    /// Counts a repetition. Returns whether it is within the share of repetitions; one beyond comes late.
    pub(super) fn repeat(&self) -> bool {
        self.record().retries.spend()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
