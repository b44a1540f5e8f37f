//! One client as the agent sees it, from its first word to its end.

use std::{
    collections::BTreeSet,
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::net::{Shutdown, shutdown};
use tierfeed_core::{
    batch::Batch,
    id::{BatchId, ConnectionId, Epoch, LeaseId, Rank, SampleId},
    session::Refusal,
    units::Bytes,
};
use tierfeed_numa_memory::Region;

use super::{
    ClientEvent, Delivery, Shared,
    error::{AdmitError, GrantError, LeaseError},
    member::Member,
    publication::{OrderFile, Publication},
    reader::{AnswerError, Reader},
    violation::Rule,
    watch::Source,
};
use crate::{
    briefing::Briefing,
    message::{
        self, FromAgent, GRANT_CHUNKS_MAX, GrantId, MEMORY_REQUESTS_MAX, Malformed, Reading,
        RequestId, Role,
    },
    packet::{self, DESCRIPTORS_MAX, SendError},
};

/// How far a connection has come.
#[derive(Debug)]
enum Stage {
    /// It has not said who it is.
    New,
    /// It wants to read batches for a rank and waits to be let in.
    Waiting(Rank),
    /// It reads batches for a rank.
    Reading(Rank, Box<Reader>),
    /// It only wants memory.
    Memory,
}

/// One client.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    pub(super) process: Option<OwnedFd>,
    stage: Stage,
    member: Option<Member>,
    publication: Publication,
    requests: BTreeSet<RequestId>,
    grants: BTreeSet<GrantId>,
    /// It was told that it is over; what it still says counts no more.
    is_dismissed: bool,
    /// An event has named it, so its end is an event too.
    is_known: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            process: None,
            stage: Stage::New,
            member: None,
            publication: Publication::None,
            requests: BTreeSet::new(),
            grants: BTreeSet::new(),
            is_dismissed: false,
            is_known: false,
        }
    }

    pub(super) fn is_dismissed(&self) -> bool {
        self.is_dismissed
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// The rank it reads for.
    pub(super) fn rank(&self) -> Result<Rank, Rule> {
        match self.stage {
            Stage::New => Err(Rule::NoHello),
            Stage::Memory => Err(Rule::NotAReader),
            Stage::Waiting(rank) | Stage::Reading(rank, _) => Ok(rank),
        }
    }

    /// Takes what a reader has put into its ring up to now.
    pub(super) fn drain(
        &mut self,
        holder: ConnectionId,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Rule> {
        match &mut self.stage {
            Stage::Reading(rank, reader) => reader.drain(holder, *rank, events),
            Stage::New | Stage::Waiting(_) | Stage::Memory => Ok(()),
        }
    }

    pub(super) fn reader(&mut self) -> Option<&mut Reader> {
        match &mut self.stage {
            Stage::Reading(_, reader) => Some(reader),
            Stage::New | Stage::Waiting(_) | Stage::Memory => None,
        }
    }

    /// Takes a hello, which comes first and once. Returns whether the client wants to read batches.
    pub(super) fn hello(&mut self, protocol: u32, role: Role) -> Result<bool, Rule> {
        if protocol != message::PROTOCOL {
            return Err(Rule::Protocol { theirs: protocol });
        }
        if !matches!(self.stage, Stage::New) {
            return Err(Rule::SecondHello);
        }
        if role == Role::Memory {
            self.stage = Stage::Memory;
            self.send(&FromAgent::Welcome { reading: None });
            return Ok(false);
        }
        Ok(true)
    }

    /// The client reads for a rank from now on, and waits to be let in.
    pub(super) fn wait_as(&mut self, member: Member) {
        self.stage = Stage::Waiting(member.rank);
        self.member = Some(member);
        self.is_known = true;
    }

    /// Tells the client that it is none of the ranks of the job, and ends the conversation.
    pub(super) fn turn_away(&mut self, reason: &str) {
        self.send(&FromAgent::TurnedAway { reason: shortened(&reason) });
        self.cut();
    }

    /// Its place in the job, if it reads batches.
    pub(super) fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    pub(super) fn admit(
        &mut self,
        holder: ConnectionId,
        briefing: &Briefing,
        arena: Arc<Region>,
        shared: &Shared,
    ) -> Result<Delivery, AdmitError> {
        let Stage::Waiting(rank) = self.stage else {
            return Err(AdmitError::NotWaiting { holder });
        };
        let window = shared.limits.window;
        let shelves = shared.shelves.get().cloned().unwrap_or_default();
        let reader = Reader::new(arena, shelves, shared.channel, window)?;
        let reading = Reading {
            briefing: briefing.clone(),
            window,
            ring_bytes: reader.ring_bytes().0,
            arena_bytes: reader.arena_bytes().0,
            shelves: reader.shelves(),
        };
        let welcome = message::to_bytes(&FromAgent::Welcome { reading: Some(Box::new(reading)) })
            .map_err(|error: Malformed| AdmitError::Briefing(error.into()))?;
        shared.watch.add(reader.agent_bell(), Source::Bell(holder)).map_err(AdmitError::system)?;
        match packet::send(self.socket(), &welcome, &reader.descriptors()) {
            Ok(()) => {
                self.stage = Stage::Reading(rank, Box::new(reader));
                Ok(Delivery::Sent)
            }
            Err(error @ SendError::TooLong { .. }) => {
                shared.watch.remove(reader.agent_bell());
                Err(AdmitError::Briefing(error.into()))
            }
            Err(_) => {
                shared.watch.remove(reader.agent_bell());
                self.cut();
                Ok(Delivery::Gone)
            }
        }
    }

    pub(super) fn lease(
        &mut self,
        lease: LeaseId,
        offset: Bytes,
        batch: &Batch,
        label: impl Fn(SampleId) -> Option<i64>,
    ) -> Result<Delivery, LeaseError> {
        let reader = self.reader().ok_or(LeaseError::NotRequested)?;
        let answered = reader.lease(lease, offset, batch, label);
        self.delivery(answered)
    }

    pub(super) fn refuse(
        &mut self,
        batch: BatchId,
        refusal: Refusal,
    ) -> Result<Delivery, LeaseError> {
        let reader = self.reader().ok_or(LeaseError::NotRequested)?;
        let answered = reader.refuse(batch, refusal);
        self.delivery(answered)
    }

    fn delivery(&mut self, answered: Result<(), AnswerError>) -> Result<Delivery, LeaseError> {
        match answered {
            Ok(()) => Ok(Delivery::Sent),
            Err(AnswerError::NotRequested) => Err(LeaseError::NotRequested),
            Err(AnswerError::OutsideArena(range)) => Err(LeaseError::OutsideArena(range)),
            Err(AnswerError::NotShown(shown)) => Err(LeaseError::NotShown { shown }),
            Err(AnswerError::Broken(error)) => {
                self.dismiss(&format_args!("the ring is broken: {error}"));
                Ok(Delivery::Gone)
            }
        }
    }

    /// Hands out the file for an order.
    pub(super) fn publish(
        &mut self,
        request: RequestId,
        epoch: Epoch,
        samples: u32,
        samples_max: u32,
    ) -> Result<(), Rule> {
        self.rank()?;
        let offered = match self.publication.offer(request, epoch, samples, samples_max)? {
            Ok(order) => {
                let text = message::to_bytes(&FromAgent::OrderFile { request })
                    .expect("numbers always have a JSON form");
                packet::send(self.socket.as_fd(), &text, &[order.as_fd()]).is_ok()
            }
            Err(error) => {
                let reason = format!("there is no memory for the order: {error}");
                self.send(&FromAgent::Denied { request, reason });
                true
            }
        };
        if !offered {
            self.cut();
        }
        Ok(())
    }

    /// Takes the file back.
    pub(super) fn order_written(
        &mut self,
        request: RequestId,
    ) -> Result<(Rank, Epoch, OrderFile), Rule> {
        let rank = self.rank()?;
        let (epoch, order) = self.publication.written(request)?;
        Ok((rank, epoch, order))
    }

    pub(super) fn took_order(&mut self, request: RequestId) -> Delivery {
        if self.publication.answer(request) {
            return self.send(&FromAgent::Published { request });
        }
        Delivery::Gone
    }

    pub(super) fn request_memory(
        &mut self,
        holder: ConnectionId,
        request: RequestId,
        bytes: Bytes,
    ) -> Result<ClientEvent, Rule> {
        if matches!(self.stage, Stage::New) {
            return Err(Rule::NoHello);
        }
        if bytes.0 == 0 {
            return Err(Rule::NoMemory);
        }
        if self.requests.len() >= MEMORY_REQUESTS_MAX || !self.requests.insert(request) {
            return Err(Rule::TooManyMemoryRequests);
        }
        self.is_known = true;
        Ok(ClientEvent::MemoryRequested { holder, request, bytes })
    }

    pub(super) fn free_memory(
        &mut self,
        holder: ConnectionId,
        grant: GrantId,
    ) -> Result<ClientEvent, Rule> {
        if !self.grants.remove(&grant) {
            return Err(Rule::NotGranted { grant });
        }
        Ok(ClientEvent::MemoryFreed { holder, grant })
    }

    pub(super) fn grant(
        &mut self,
        request: RequestId,
        grant: GrantId,
        chunks: &[&Region],
    ) -> Result<Delivery, GrantError> {
        let count = chunks.len();
        if count == 0 || count > GRANT_CHUNKS_MAX {
            return Err(GrantError::Chunks { count });
        }
        if !self.requests.remove(&request) {
            return Err(GrantError::NotRequested { request });
        }
        self.grants.insert(grant);
        let chunks_total = u32::try_from(count).expect("the limit above is far below 2^32");
        for part in chunks.chunks(DESCRIPTORS_MAX) {
            let chunk_bytes = part.iter().map(|chunk| chunk.len().0).collect();
            let granted = FromAgent::Granted { request, grant, chunks_total, chunk_bytes };
            let descriptors: Vec<_> = part.iter().map(|chunk| chunk.fd()).collect();
            let bytes = message::to_bytes(&granted).expect("numbers always have a JSON form");
            if packet::send(self.socket(), &bytes, &descriptors).is_err() {
                self.cut();
                return Ok(Delivery::Gone);
            }
        }
        Ok(Delivery::Sent)
    }

    pub(super) fn deny(
        &mut self,
        request: RequestId,
        reason: &impl fmt::Display,
    ) -> Result<Delivery, GrantError> {
        if !self.requests.remove(&request) {
            return Err(GrantError::NotRequested { request });
        }
        Ok(self.send(&FromAgent::Denied { request, reason: shortened(reason) }))
    }

    /// Sends a message that needs no descriptors. A client that does not read is let go.
    pub(super) fn send(&mut self, message: &FromAgent) -> Delivery {
        let bytes = message::to_bytes(message).expect("numbers and texts always have a JSON form");
        if packet::send(self.socket(), &bytes, &[]).is_ok() {
            return Delivery::Sent;
        }
        self.cut();
        Delivery::Gone
    }

    /// Tells the client why it is over, once, and ends the conversation.
    pub(super) fn dismiss(&mut self, reason: &impl fmt::Display) {
        if !self.is_dismissed {
            self.send(&FromAgent::Error { reason: shortened(reason) });
            self.cut();
        }
    }

    /// The thread of the server sees the end of the socket and does the rest.
    fn cut(&mut self) {
        self.is_dismissed = true;
        // It fails only if the client has closed its side, which has the same effect.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Closes everything else.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

/// At most so many characters of a reason are sent, so that it always fits in a packet.
const REASON_CHARS_MAX: usize = 2000;

fn shortened(reason: &impl fmt::Display) -> String {
    reason.to_string().chars().take(REASON_CHARS_MAX).collect()
}
