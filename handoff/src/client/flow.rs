//! Counts what the client requested and holds, so that it never breaks the agent's rules.

use std::collections::BTreeSet;

use tierfeed_core::{
    id::{BatchId, LeaseId},
    session::{Tally, Wait},
};

use crate::{
    channel::Channel,
    entry::{ReleaseKind, Submission},
    ring::{Producer, PushError, Words},
};

#[derive(Debug)]
pub(super) struct Flow {
    submissions: Producer,
    window: u32,
    /// Requests without an answer.
    requests: u32,
    leases: BTreeSet<LeaseId>,
    /// Leases for which the agent was told that the trainer uses the batch.
    delivered: BTreeSet<LeaseId>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum RequestError {
    TooMany { window: u32 },
    Broken(PushError),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ReleaseError {
    NotHeld,
    Broken(PushError),
}

impl Flow {
    pub(super) fn new(channel: Channel, window: u32) -> Self {
        let submissions = Producer::new(channel.submissions);
        Self {
            submissions,
            window,
            requests: 0,
            leases: BTreeSet::new(),
            delivered: BTreeSet::new(),
        }
    }

    pub(super) fn request(
        &mut self,
        rings: &impl Words,
        batch: BatchId,
    ) -> Result<(), RequestError> {
        let window = self.window;
        if self.requests as usize + self.leases.len() >= window as usize {
            return Err(RequestError::TooMany { window });
        }
        let entry = Submission::Request(batch).encode();
        self.submissions.push(rings, entry).map_err(RequestError::Broken)?;
        self.requests += 1;
        Ok(())
    }

    pub(super) fn leased(&mut self, lease: LeaseId) {
        self.requests = self.requests.saturating_sub(1);
        self.leases.insert(lease);
    }

    pub(super) fn refused(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// A second call for a lease sends nothing.
    pub(super) fn deliver(
        &mut self,
        rings: &impl Words,
        lease: LeaseId,
        wait: Wait,
    ) -> Result<(), ReleaseError> {
        if !self.leases.contains(&lease) {
            return Err(ReleaseError::NotHeld);
        }
        if !self.delivered.insert(lease) {
            return Ok(());
        }
        let entry = Submission::Delivered(lease, wait).encode();
        self.submissions.push(rings, entry).map_err(ReleaseError::Broken)
    }

    /// Tells the agent what the trainer did without it, unless the entries in the ring leave no
    /// room: requests, deliveries and releases come first. Returns whether it was sent.
    pub(super) fn tally(&mut self, rings: &impl Words, tally: Tally) -> Result<bool, PushError> {
        if self.submissions.waiting(rings)? >= u64::from(self.window) {
            return Ok(false);
        }
        self.submissions.push(rings, Submission::Tallied(tally).encode())?;
        Ok(true)
    }

    pub(super) fn release(
        &mut self,
        rings: &impl Words,
        lease: LeaseId,
        release_kind: ReleaseKind,
    ) -> Result<(), ReleaseError> {
        if !self.leases.remove(&lease) {
            return Err(ReleaseError::NotHeld);
        }
        self.delivered.remove(&lease);
        let entry = Submission::Release(lease, release_kind).encode();
        self.submissions.push(rings, entry).map_err(ReleaseError::Broken)
    }
}
