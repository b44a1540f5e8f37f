//! A connection to the agent, and the leases of its batches that TensorFlow still sees.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tierfeed_core::{
    id::{BatchId, LeaseId, SampleId},
    session::{Tally, Wait},
    units::Bytes,
};
use tierfeed_handoff::{
    Client, ConnectError, Hello, LeasedBatch, NextError, ReleaseKind, Reply, RequestError,
};

/// An agent that lives knows at once why it has no sample.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A training loop holds the batch that it is about to drop and the next one; TensorFlow keeps more.
const LOOP_HOLDS: usize = 2;

/// A connection that its batches keep alive.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    held: Mutex<BTreeMap<LeaseId, Held>>,
}

/// A batch that was not given back yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) batch: BatchId,
    pub(crate) address: usize,
    pub(crate) len: Bytes,
}

/// The right to a staged batch; given back on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Arc<Connection>,
    id: LeaseId,
    kind: ReleaseKind,
}

pub(crate) type Memory = tierfeed_client::Memory<Lease>;

impl Connection {
    pub(crate) fn open(
        socket: &Path,
        hello: &Hello,
        within: Duration,
    ) -> Result<Self, ConnectError> {
        let client = Client::connect(socket, hello, within)?;
        Ok(Self { client, held: Mutex::default() })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn request(&self, batch: BatchId) -> Result<(), RequestError> {
        self.client.request(batch)
    }

    pub(crate) fn next(&self, timeout: Duration) -> Result<Reply, NextError> {
        self.client.next(timeout)
    }

    /// Why the agent could not hand over a sample, if it still knows and answers.
    pub(crate) fn reason(&self, sample: SampleId) -> Option<String> {
        let reasons = self.client.explain(&[sample], EXPLAIN_TIMEOUT).ok()?;
        reasons.into_iter().find_map(|(of, reason)| (of == sample).then_some(reason))
    }

    /// Whether the agent says why it has not handed over one of these: then it waits for their store and does
    /// not hang.
    pub(crate) fn waits_for_store(&self, samples: &[SampleId]) -> bool {
        let reasons = self.client.explain(samples, EXPLAIN_TIMEOUT);
        reasons.is_ok_and(|reasons| !reasons.is_empty())
    }

    /// Takes over the lease of a batch, which its dataset calls `own`.
    pub(crate) fn lease(self: &Arc<Self>, own: BatchId, leased: &LeasedBatch) -> Lease {
        let first = leased.arena.as_ptr_range(leased.offset, leased.len);
        let address = first.map_or(0, <*mut u8>::addr);
        let held = Held { batch: own, address, len: leased.len };
        self.lock().insert(leased.lease, held);
        Lease { connection: Arc::clone(self), id: leased.lease, kind: ReleaseKind::Used }
    }

    /// The batches that TensorFlow still sees.
    pub(crate) fn held(&self) -> Vec<Held> {
        self.lock().values().copied().collect()
    }

    /// Whether TensorFlow sees as many batches as the agent stages, which then has no room for the next one.
    pub(crate) fn holds_all(&self) -> bool {
        self.lock().len() >= self.client.briefing().batches_ahead as usize
    }

    /// Whether TensorFlow itself keeps that many, not only the training loop.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.holds_all() && self.lock().len() > LOOP_HOLDS
    }

    pub(crate) fn deliver(&self, lease: LeaseId, wait: Wait) {
        // The only failure: the agent is gone, and its report with it.
        let _ = self.client.deliver(lease, wait);
    }

    /// Sends figures for the report; false if there is no agent or no room for them now.
    pub(crate) fn tally(&self, tally: Tally) -> bool {
        self.client.tally(tally).unwrap_or(false)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        // A poisoned lock guards a plain value, which is whole at any time.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    pub(crate) fn id(&self) -> LeaseId {
        self.id
    }

    /// Says that training goes on with a copy, because it keeps so many batches.
    pub(crate) fn copied(mut self) -> Self {
        self.kind = ReleaseKind::Copied;
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.lock().remove(&self.id);
        // The only failures: the agent is gone and has the batch back already, or this is a forked child.
        let _ = self.connection.client.release_as(self.id, self.kind);
    }
}
