//! The client of the hand-off as a connection and its batches share it, and the leases that Python sees.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pyo3::prelude::*;
use tierfeed_core::{id::LeaseId, session::Wait};
use tierfeed_handoff::{Client, ReleaseKind};

use crate::errors;

/// A client that its batches keep alive, for use in the process that connected only.
#[derive(Debug)]
pub(crate) struct SharedClient {
    client: Mutex<Option<Arc<Client>>>,
    /// The process that connected. A forked child must not wait for a lock here: the thread that held it may
    /// not exist in the child.
    pid: u32,
    /// The address and length of every batch that Python still sees.
    leases: Mutex<BTreeMap<LeaseId, (usize, usize)>>,
}

impl SharedClient {
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

    pub(crate) fn deliver(&self, lease: LeaseId, wait: Wait) {
        if let Ok(client) = self.client() {
            // The only failure, as in `release`: the agent is gone, and its report with it.
            let _ = client.deliver(lease, wait);
        }
    }

    /// Runs on any thread, where the last view of the batch is dropped, and must not fail.
    pub(crate) fn release(&self, lease: LeaseId, kind: ReleaseKind) {
        if std::process::id() != self.pid {
            return;
        }
        self.leases().remove(&lease);
        if let Ok(client) = self.client() {
            // The only failure: the agent is gone and has the batch back already.
            let _ = client.release_as(lease, kind);
        }
    }

    /// Closes what a forked process inherited, without a message to the agent. Leased memory stays mapped.
    pub(crate) fn forget(&self) {
        // Does not wait: a thread that held the lock in the parent does not exist here.
        if let Ok(mut client) = self.client.try_lock() {
            *client = None;
        }
    }
}
