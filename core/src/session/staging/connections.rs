//! The connections of the trainers of one rank.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::mem;

use crate::id::{BatchId, ConnectionId};

/// The connections of one rank: the admitted ones, and those that wait for the arena.
#[derive(Debug, Default)]
pub(super) struct Connections {
    admitted: BTreeSet<ConnectionId>,
    /// Whether a connection was ever admitted. Before the first one, batches are staged for it.
    had_any: bool,
    /// The last request of each connection.
    requested: BTreeMap<ConnectionId, BatchId>,
    pending_admissions: Vec<ConnectionId>,
}

impl Connections {
    pub(super) fn contains(&self, connection: ConnectionId) -> bool {
        self.admitted.contains(&connection)
    }

    pub(super) fn admit(&mut self, connection: ConnectionId) {
        self.admitted.insert(connection);
        self.had_any = true;
    }

    pub(super) fn wait(&mut self, connection: ConnectionId) {
        self.pending_admissions.push(connection);
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.pending_admissions.is_empty()
    }

    pub(super) fn take_waiting(&mut self) -> Vec<ConnectionId> {
        mem::take(&mut self.pending_admissions)
    }

    /// Returns whether the connection was admitted.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> bool {
        self.pending_admissions.retain(|other| *other != connection);
        self.requested.remove(&connection);
        self.admitted.remove(&connection)
    }

    pub(super) fn have_left(&self) -> bool {
        self.had_any && self.admitted.is_empty()
    }

    /// Returns the least of the last requests of all connections.
    pub(super) fn request(&mut self, connection: ConnectionId, batch: BatchId) -> BatchId {
        self.requested.insert(connection, batch);
        self.farthest_behind().unwrap_or(batch)
    }

    /// The last request of the connection that is farthest behind; `None` if none has asked.
    pub(super) fn farthest_behind(&self) -> Option<BatchId> {
        self.requested.values().min().copied()
    }
}
