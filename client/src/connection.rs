//! A connection to the agent as a feed and its batches share it, in the words of one dataset, and the batches that
//! the trainer still sees.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tierfeed_core::{
    id::{BatchId, LeaseId, SampleId, TierId},
    session::{Refusal, Tally, Wait},
    units::Bytes,
};
use tierfeed_handoff::{
    Client, ConnectError, ControlError, Forked, Hello, LeasedBatch, NamedDataset, NextError,
    NoDataset, ReleaseKind, Reply, SharedTiers, monotonic_now,
};
use tierfeed_numa_memory::ReadView;

use crate::attempts::{self, Attempts};

/// An agent that lives knows at once why it has no sample: training waits, and can go on without.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);

/// A training loop holds the batch that it is about to drop and the next one; that is not keeping them.
const LOOP_HOLDS: usize = 2;

/// A connection that its batches keep alive, for use in the process that connected only.
#[derive(Debug)]
pub struct Connection {
    /// `None` in a forked child that was told so.
    client: Mutex<Option<Arc<Client>>>,
    /// A forked child must not wait for a lock here: the thread that held it may not exist in the child.
    creator: u32,
    socket: PathBuf,
    dataset: NamedDataset,
    /// The epochs of the job.
    epochs: u32,
    batches_ahead: u32,
    tiers: SharedTiers,
    held: Mutex<BTreeMap<LeaseId, Held>>,
}

/// A batch that was not given back yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub batch: BatchId,
    pub address: usize,
    pub len: Bytes,
}

/// The right to a staged batch; given back on drop, on any thread.
#[derive(Debug)]
pub struct Lease {
    connection: Arc<Connection>,
    id: LeaseId,
    /// Whether training goes on with a copy, because it keeps so many batches.
    is_copied: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoConnection {
    #[error("the agent was silent, and is tried again later")]
    NotDue,
    #[error(transparent)]
    Agent(#[from] ConnectError),
    #[error(transparent)]
    Dataset(#[from] NoDataset),
}

impl Connection {
    /// Tries to connect to the agent at `socket`, if that is due, for a dataset of its job; without a name that is
    /// the first one.
    pub fn open(socket: &Path, hello: &Hello, dataset: Option<&str>) -> Result<Self, NoConnection> {
        let began = monotonic_now();
        let due = attempts::of_process(socket, |attempts| attempts.due(began));
        let within = due.unwrap_or(Attempts::NONE.due(began)).ok_or(NoConnection::NotDue)?;
        let connected = Client::connect(socket, hello, within);
        attempts::of_process(socket, |attempts| match &connected {
            Ok(_) => *attempts = Attempts::NONE,
            Err(ConnectError::TurnedAway { .. }) => (),
            Err(_) => attempts.failed(began, monotonic_now()),
        });
        let client = connected?;
        let briefing = client.briefing();
        Ok(Self {
            creator: std::process::id(),
            socket: socket.to_owned(),
            dataset: NamedDataset::find(briefing, dataset)?,
            epochs: briefing.order.epochs,
            batches_ahead: briefing.batches_ahead,
            tiers: client.shared_tiers().clone(),
            client: Mutex::new(Some(Arc::new(client))),
            held: Mutex::default(),
        })
    }

    /// The client itself, for calls that name no batch and no sample. An error in a process that forgot it.
    pub fn client(&self) -> Result<Arc<Client>, Forked> {
        // A poisoned lock guards a plain value, which is whole at any time.
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let forked = || Forked { creator: self.creator, current: std::process::id() };
        client.as_ref().map(Arc::clone).ok_or_else(forked)
    }

    pub fn dataset(&self) -> NamedDataset {
        self.dataset
    }

    /// The agent's name of a batch; `None` if the job does not read the dataset in that epoch, or has no such
    /// epoch, so that the trainer reads it itself.
    pub fn name_in_job(&self, batch: BatchId) -> Option<BatchId> {
        self.dataset.in_job(batch).filter(|_| batch.epoch.0 < self.epochs)
    }

    /// Waits for the next answer, as the dataset calls its batch and samples.
    pub fn next(&self, timeout: Duration) -> Result<Reply, NextError> {
        self.client()?.next(timeout).map(|reply| self.own(reply))
    }

    /// An answer that is in the ring already, likewise.
    pub fn try_next(&self) -> Result<Option<Reply>, NextError> {
        Ok(self.client()?.try_next()?.map(|reply| self.own(reply)))
    }

    fn own(&self, reply: Reply) -> Reply {
        let dataset = self.dataset;
        match reply {
            Reply::Batch(mut leased) => {
                leased.id = dataset.own(leased.id);
                leased.rows.iter_mut().for_each(|row| row.sample = dataset.own_sample(row.sample));
                Reply::Batch(leased)
            }
            Reply::Refused { batch, mut refusal } => {
                if let Refusal::Unreadable(sample, _) | Refusal::TooManySkipped { sample, .. } =
                    &mut refusal
                {
                    *sample = dataset.own_sample(*sample);
                }
                Reply::Refused { batch: dataset.own(batch), refusal }
            }
        }
    }

    /// Why the agent has not handed over samples, as far as it still knows. An agent that says so of a batch waits
    /// for its store and does not hang.
    pub fn explain(
        &self,
        samples: impl IntoIterator<Item = SampleId>,
    ) -> Result<BTreeMap<SampleId, String>, ControlError> {
        let samples = samples.into_iter().map(|sample| self.dataset.sample_in_job(sample));
        let samples: Vec<_> = samples.collect();
        let reasons = self.client()?.explain(&samples, EXPLAINED_WITHIN)?;
        let own = |(sample, reason)| (self.dataset.own_sample(sample), reason);
        Ok(reasons.into_iter().map(own).collect())
    }

    /// Sends figures for the report; false if there is no agent or no room for them now.
    pub fn tally(&self, tally: Tally) -> bool {
        self.client().is_ok_and(|client| client.tally(tally).unwrap_or(false))
    }

    /// Takes over the lease of a batch.
    pub fn lease(self: &Arc<Self>, leased: &LeasedBatch) -> Lease {
        let first = leased.arena.as_ptr_range(leased.offset, leased.len);
        let address = first.map_or(0, <*mut u8>::addr);
        let held = Held { batch: leased.id, address, len: leased.len };
        self.lock().insert(leased.lease, held);
        let is_copied = AtomicBool::new(false);
        Lease { connection: Arc::clone(self), id: leased.lease, is_copied }
    }

    /// The batches that the trainer still sees, first the one that it has seen for the longest time.
    pub fn held(&self) -> Vec<Held> {
        self.lock().values().copied().collect()
    }

    pub fn held_count(&self) -> usize {
        self.lock().len()
    }

    /// How many batches the agent stages ahead; more requests at a time gain nothing.
    pub fn batches_ahead(&self) -> u32 {
        self.batches_ahead
    }

    /// Whether the trainer sees as many batches as the agent stages, which then has no room for the next one: a wait
    /// may be for the trainer itself.
    pub fn holds_all(&self) -> bool {
        self.held_count() >= self.batches_ahead as usize
    }

    /// Whether training keeps as many batches as the agent stages, beside those that it has not taken yet: further
    /// ones are copied out, so that staging goes on.
    pub fn is_exhausted(&self, not_taken: usize) -> bool {
        is_exhausted(self.held_count().saturating_sub(not_taken), self.batches_ahead)
    }

    /// The agent does not answer: the next attempts to connect are short.
    pub fn note_silence(&self) {
        attempts::of_process(&self.socket, Attempts::silent);
    }

    /// In a forked child: closes what it inherited, without a message to the agent. Leased memory stays mapped.
    pub fn forget(&self) {
        // Does not wait: a thread that held the lock in the parent does not exist here.
        if let Ok(mut client) = self.client.try_lock() {
            *client = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        // A poisoned lock guards a plain value, which is whole at any time.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_exhausted(kept: usize, batches_ahead: u32) -> bool {
    kept >= batches_ahead as usize && kept > LOOP_HOLDS
}

impl Lease {
    /// Tells the agent that training takes the batch, and when it waited for it.
    pub fn deliver(&self, wait: Wait) {
        if let Ok(client) = self.connection.client() {
            // The only failure: the agent is gone, and its report with it.
            let _ = client.deliver(self.id, wait);
        }
    }

    /// Training goes on with a copy, which the agent learns when the batch goes back.
    pub fn note_copied(&self) {
        self.is_copied.store(true, Ordering::Relaxed);
    }

    /// The memory of a tier that the agent shares, where samples of the batch may lie.
    pub fn shared_tier(&self, tier: TierId) -> Option<&Arc<ReadView>> {
        self.connection.tiers.get(tier)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Self { connection, id, is_copied } = self;
        if std::process::id() != connection.creator {
            return;
        }
        connection.lock().remove(id);
        let kind = if *is_copied.get_mut() { ReleaseKind::Copied } else { ReleaseKind::Used };
        if let Ok(client) = connection.client() {
            // The only failure: the agent is gone and has the batch back already.
            let _ = client.release_as(*id, kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_holds_two_batches_keeps_none_however_few_are_staged() {
        assert!(!is_exhausted(2, 2) && is_exhausted(3, 2), "of two that are staged");
        assert!(!is_exhausted(3, 4) && is_exhausted(4, 4), "of four that are staged");
    }
}
