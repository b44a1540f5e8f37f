//! The client that batches keep alive, and the leases that Python still sees.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pyo3::prelude::*;
use tierfeed_core::{id::LeaseId, session::Wait};
use tierfeed_handoff::{Client, ReleaseKind};

use crate::errors;

/// A client that its batches keep alive, until the process that made it is not this one any more.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Mutex<Option<Arc<Client>>>,
    /// The process that connected. A forked child touches no lock: the thread that held one is not there.
    pid: u32,
    /// The address and length of every batch that Python still sees.
    leases: Mutex<BTreeMap<LeaseId, (usize, usize)>>,
}

impl Connection {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client: Mutex::new(Some(Arc::new(client))),
            pid: std::process::id(),
            leases: Mutex::default(),
        }
    }

    pub(crate) fn client(&self) -> PyResult<Arc<Client>> {
        // A poisoned lock guards a plain value, which is whole at any time.
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.as_ref().map(Arc::clone).ok_or_else(errors::closed)
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, BTreeMap<LeaseId, (usize, usize)>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the agent that a batch is in use, and from when until when it was waited for.
    pub(crate) fn deliver(&self, lease: LeaseId, wait: Wait) {
        if let Ok(client) = self.client() {
            // As in `release`: whoever does not hear it has no use for it.
            let _ = client.deliver(lease, wait);
        }
    }

    /// Gives a batch back. Runs wherever the last view of it dies, and so must not fail.
    pub(crate) fn release(&self, lease: LeaseId, parting: ReleaseKind) {
        if std::process::id() != self.pid {
            return;
        }
        self.leases().remove(&lease);
        if let Ok(client) = self.client() {
            // The only failure: the agent is gone and has the batch back already.
            let _ = client.release_as(lease, parting);
        }
    }

    /// Closes what a forked process inherited, without a word to the agent. Leased memory stays.
    pub(crate) fn forget(&self) {
        // Not waiting: whoever held the lock in the parent does not exist here.
        if let Ok(mut client) = self.client.try_lock() {
            *client = None;
        }
    }
}
