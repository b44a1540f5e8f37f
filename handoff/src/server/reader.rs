//! What the agent keeps about a client that reads batches: its rings, its arena, what it holds.
//!
//! The ring says what the client claims; the counts here say what is true.

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
    Shelved,
    channel::Channel,
    entry::{Completion, Ready, Submission},
    message::ShelfBytes,
    ring::{Consumer, Producer, PushError},
    table::{self, Unwritten},
    wake::{self, ClientBell},
};

/// A client that was let in.
#[derive(Debug)]
pub(super) struct Reader {
    arena: Arc<Region>,
    shelves: Vec<Shelved>,
    rings: Region,
    submissions: Consumer,
    completions: Producer,
    client_bell: ClientBell,
    agent_bell: OwnedFd,
    window: u32,
    /// Batches asked for and not yet answered.
    requests: u32,
    leases: BTreeSet<LeaseId>,
    delivered: BTreeSet<LeaseId>,
}

/// Why an answer was not put into the ring.
#[derive(Debug, Clone, Copy)]
pub(super) enum AnswerError {
    /// The client did not ask.
    NotRequested,
    /// The batch does not lie in the arena.
    OutsideArena(RangeError),
    /// A sample lies where the client cannot read it.
    NotShown(InPlace),
    /// The client broke its ring.
    Broken(PushError),
}

impl Reader {
    pub(super) fn new(
        arena: Arc<Region>,
        shelves: Vec<Shelved>,
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
            shelves,
            rings: Region::allocate(&request).map_err(AdmitError::Rings)?,
            submissions: Consumer::new(channel.submissions),
            completions: Producer::new(channel.completions),
            client_bell: ClientBell::new().map_err(AdmitError::system)?,
            agent_bell: wake::agent_bell().map_err(AdmitError::system)?,
            window,
            requests: 0,
            leases: BTreeSet::new(),
            delivered: BTreeSet::new(),
        })
    }

    pub(super) fn ring_bytes(&self) -> Bytes {
        self.rings.len()
    }

    pub(super) fn arena_bytes(&self) -> Bytes {
        self.arena.len()
    }

    /// What the client may read beside its arena, as the welcome says it.
    pub(super) fn shelves(&self) -> Vec<ShelfBytes> {
        let bytes = |it: &Shelved| ShelfBytes { tier: it.tier().0, bytes: it.shelf().len().0 };
        self.shelves.iter().map(bytes).collect()
    }

    /// What the client needs, in the order of the welcome.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let client_end = self.client_bell.client_end();
        let first = [self.rings.fd(), self.arena.fd(), client_end, self.agent_bell.as_fd()];
        first.into_iter().chain(self.shelves.iter().map(|it| it.shelf().fd())).collect()
    }

    pub(super) fn agent_bell(&self) -> BorrowedFd<'_> {
        self.agent_bell.as_fd()
    }

    /// Takes what the client has put into its ring up to now.
    ///
    /// What comes later comes with another ring of the bell, so one call does bounded work.
    pub(super) fn drain(
        &mut self,
        holder: ConnectionId,
        rank: Rank,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Rule> {
        for _ in 0..self.submissions.waiting(&*self.rings)? {
            let Some(entry) = self.submissions.pop(&*self.rings)? else { break };
            events.push(match Submission::decode(entry)? {
                Submission::Request(batch) => {
                    self.count_request()?;
                    ClientEvent::Requested { holder, batch }
                }
                Submission::Delivered(lease, wait) => {
                    if !self.leases.contains(&lease) || !self.delivered.insert(lease) {
                        return Err(Rule::NotHeld { lease });
                    }
                    ClientEvent::Delivered { holder, lease, wait }
                }
                Submission::Tallied(tally) => ClientEvent::Tallied { holder, rank, tally },
                Submission::Release(lease, parting) => {
                    if !self.leases.remove(&lease) {
                        return Err(Rule::NotHeld { lease });
                    }
                    self.delivered.remove(&lease);
                    ClientEvent::Released { holder, lease, parting }
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
        let rows =
            u32::try_from(batch.entries.len()).expect("a batch has at most 2^32 - 1 samples");
        if offset.0.checked_add(len.0).is_none_or(|end| end > self.arena.len().0) {
            let mapped = self.arena.len();
            return Err(AnswerError::OutsideArena(RangeError::Outside { offset, len, mapped }));
        }
        let shelves = &self.shelves;
        let on_shelf = |shown: InPlace| {
            shelves.iter().find(|shelf| shelf.tier() == shown.tier)?.offset_of(shown)
        };
        table::write(&self.arena, offset, batch, label, on_shelf).map_err(|why| match why {
            Unwritten::Outside(range) => AnswerError::OutsideArena(range),
            Unwritten::NotShown(shown) => AnswerError::NotShown(shown),
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
        self.client_bell.ring();
        Ok(())
    }
}
