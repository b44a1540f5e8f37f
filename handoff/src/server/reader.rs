//! The agent's record of a client that reads batches: its rings, its arena, its leases.
//!
//! The entries in the ring are claims of the client; these counts are the agent's own and decide.

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use tierfeed_core::{
    batch::{Batch, InPlace},
    id::{BatchId, ConnectionId, LeaseId, Rank, SampleId},
    session::Refusal,
    tier::Locality,
    units::Bytes,
};
use tierfeed_numa_memory::{Pages, RangeError, Region, Request};

use super::{ClientEvent, error::AdmitError, violation::Rule};
use crate::{
    SharedTier,
    briefing::Briefing,
    channel::Channel,
    entry::{Completion, Ready, Submission},
    message::{Reading, SharedTierBytes},
    ring::{Consumer, Producer, PushError},
    table::{self, WriteError},
    wake::{self, ClientWakeup},
};

#[derive(Debug)]
pub(super) struct Reader {
    arena: Arc<Region>,
    shared_tiers: Vec<SharedTier>,
    rings: Region,
    submissions: Consumer,
    completions: Producer,
    client_wakeup: ClientWakeup,
    agent_wakeup: OwnedFd,
    window: u32,
    /// Batches that are requested and not answered yet.
    requests: u32,
    leases: BTreeSet<LeaseId>,
    delivered: BTreeSet<LeaseId>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum AnswerError {
    NotRequested,
    OutsideArena(RangeError),
    NotShared(InPlace),
    Broken(PushError),
}

impl Reader {
    pub(super) fn new(
        arena: Arc<Region>,
        shared_tiers: Vec<SharedTier>,
        channel: Channel,
        window: u32,
    ) -> Result<Self, AdmitError> {
        let request = Request {
            len: Bytes(channel.len()),
            locality: Locality::Anywhere,
            name: "tierfeed-rings",
            pages: Pages::Small,
        };
        Ok(Self {
            arena,
            shared_tiers,
            rings: Region::allocate(&request).map_err(AdmitError::Rings)?,
            submissions: Consumer::new(channel.submissions),
            completions: Producer::new(channel.completions),
            client_wakeup: ClientWakeup::new().map_err(AdmitError::system)?,
            agent_wakeup: wake::agent_wakeup().map_err(AdmitError::system)?,
            window,
            requests: 0,
            leases: BTreeSet::new(),
            delivered: BTreeSet::new(),
        })
    }

    /// The welcome of its client.
    pub(super) fn reading(&self, briefing: Briefing) -> Reading {
        let bytes =
            |it: &SharedTier| SharedTierBytes { tier: it.tier().0, bytes: it.memory().len().0 };
        Reading {
            briefing,
            window: self.window,
            ring_bytes: self.rings.len().0,
            arena_bytes: self.arena.len().0,
            shared_tiers: self.shared_tiers.iter().map(bytes).collect(),
        }
    }

    /// The descriptors that the client needs, in the order of the welcome.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let client_end = self.client_wakeup.client_end();
        let first = [self.rings.fd(), self.arena.fd(), client_end, self.agent_wakeup.as_fd()];
        first.into_iter().chain(self.shared_tiers.iter().map(|it| it.memory().fd())).collect()
    }

    pub(super) fn agent_wakeup(&self) -> BorrowedFd<'_> {
        self.agent_wakeup.as_fd()
    }

    /// Handles the entries that are in the client's ring at the time of the call.
    ///
    /// Later entries come with another wake-up, so one call does bounded work.
    pub(super) fn drain(
        &mut self,
        id: ConnectionId,
        rank: Rank,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Rule> {
        for _ in 0..self.submissions.waiting(&*self.rings)? {
            let Some(entry) = self.submissions.pop(&*self.rings)? else { break };
            events.push(match Submission::decode(entry)? {
                Submission::Request(batch) => {
                    self.count_request()?;
                    ClientEvent::Requested { connection: id, batch }
                }
                Submission::Delivered(lease, wait) => {
                    if !self.leases.contains(&lease) || !self.delivered.insert(lease) {
                        return Err(Rule::NotHeld { lease });
                    }
                    ClientEvent::Delivered { connection: id, lease, wait }
                }
                Submission::Tallied(tally) => ClientEvent::Tallied { connection: id, rank, tally },
                Submission::Release(lease, release_kind) => {
                    if !self.leases.remove(&lease) {
                        return Err(Rule::NotHeld { lease });
                    }
                    self.delivered.remove(&lease);
                    ClientEvent::Released { connection: id, lease, release_kind }
                }
            });
        }
        Ok(())
    }

    fn count_request(&mut self) -> Result<(), Rule> {
        let unsettled = self.requests as usize + self.leases.len();
        if unsettled >= self.window as usize {
            return Err(Rule::TooManyUnsettled { window: self.window });
        }
        self.requests += 1;
        Ok(())
    }

    pub(super) fn lease(
        &mut self,
        lease: LeaseId,
        offset: Bytes,
        batch: &Batch,
        label: impl Fn(SampleId) -> Option<i64>,
    ) -> Result<(), AnswerError> {
        let Batch { id, table_offset, len, .. } = *batch;
        let rows = u32::try_from(batch.table_rows()).expect("a batch has at most 2^31 - 1 samples");
        if offset.0.checked_add(len.0).is_none_or(|end| end > self.arena.len().0) {
            let mapped = self.arena.len();
            return Err(AnswerError::OutsideArena(RangeError::Outside { offset, len, mapped }));
        }
        let shared_tiers = &self.shared_tiers;
        let offset_of = |in_place: InPlace| {
            shared_tiers
                .iter()
                .find(|shared_tier| shared_tier.tier() == in_place.tier)?
                .offset_of(in_place)
        };
        table::write(&self.arena, offset, batch, label, offset_of).map_err(|why| match why {
            WriteError::Outside(range) => AnswerError::OutsideArena(range),
            WriteError::NotShared(in_place) => AnswerError::NotShared(in_place),
        })?;
        self.answer(Completion::Lease(Ready {
            lease,
            batch: id,
            offset,
            len,
            table_offset,
            rows,
        }))?;
        self.leases.insert(lease);
        Ok(())
    }

    pub(super) fn refuse(&mut self, batch: BatchId, refusal: Refusal) -> Result<(), AnswerError> {
        self.answer(Completion::Refused { batch, refusal })
    }

    fn answer(&mut self, completion: Completion) -> Result<(), AnswerError> {
        let left = self.requests.checked_sub(1).ok_or(AnswerError::NotRequested)?;
        self.completions.push(&*self.rings, completion.encode()).map_err(AnswerError::Broken)?;
        self.requests = left;
        self.client_wakeup.wake();
        Ok(())
    }
}
