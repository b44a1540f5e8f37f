//! One client as the agent sees it, from its first message to its end.

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
        self, EXPLAINED_MAX, FromAgent, GRANT_CHUNKS_MAX, GrantId, MEMORY_REQUESTS_MAX, Malformed,
        RequestId, Role,
    },
    packet::{self, DESCRIPTORS_MAX, SendError},
};

#[derive(Debug)]
enum State {
    /// The client has not sent its hello.
    New,
    /// The client wants to read batches for a rank and waits to be admitted.
    Waiting(Rank),
    Reading(Rank, Box<Reader>),
    Memory,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    pub(super) process: Option<OwnedFd>,
    state: State,
    /// `None` if the client reads no batches.
    pub(super) member: Option<Member>,
    publication: Publication,
    requests: BTreeSet<RequestId>,
    grants: BTreeSet<GrantId>,
    /// Whether the client was told that the connection has ended; its later messages are ignored.
    pub(super) has_ended: bool,
    /// Whether an event has named the connection, so that its end is an event too.
    pub(super) is_reported: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            process: None,
            state: State::New,
            member: None,
            publication: Publication::None,
            requests: BTreeSet::new(),
            grants: BTreeSet::new(),
            has_ended: false,
            is_reported: false,
        }
    }

    pub(super) fn rank(&self) -> Result<Rank, Rule> {
        match self.state {
            State::New => Err(Rule::NoHello),
            State::Memory => Err(Rule::NotAReader),
            State::Waiting(rank) | State::Reading(rank, _) => Ok(rank),
        }
    }

    /// Handles the entries that are in the client's ring at the time of the call.
    pub(super) fn drain(
        &mut self,
        id: ConnectionId,
        events: &mut Vec<ClientEvent>,
    ) -> Result<(), Rule> {
        match &mut self.state {
            State::Reading(rank, reader) => reader.drain(id, *rank, events),
            State::New | State::Waiting(_) | State::Memory => Ok(()),
        }
    }

    pub(super) fn reader(&mut self) -> Option<&mut Reader> {
        match &mut self.state {
            State::Reading(_, reader) => Some(reader),
            State::New | State::Waiting(_) | State::Memory => None,
        }
    }

    /// Checks a hello, which must be the first message and come once. Returns whether the client
    /// wants to read batches.
    pub(super) fn hello(&mut self, protocol: u32, role: Role) -> Result<bool, Rule> {
        if protocol != message::PROTOCOL {
            return Err(Rule::Protocol { theirs: protocol });
        }
        if !matches!(self.state, State::New) {
            return Err(Rule::SecondHello);
        }
        if role == Role::Memory {
            self.state = State::Memory;
            self.send(&FromAgent::Welcome { reading: None });
            return Ok(false);
        }
        Ok(true)
    }

    pub(super) fn await_admission(&mut self, member: Member) {
        self.state = State::Waiting(member.rank);
        self.member = Some(member);
        self.is_reported = true;
    }

    /// Tells the client that it is none of the ranks of the job, and ends the conversation.
    pub(super) fn turn_away(&mut self, reason: &str) {
        self.send(&FromAgent::TurnedAway { reason: shortened(&reason) });
        self.shut_down();
    }

    pub(super) fn admit(
        &mut self,
        id: ConnectionId,
        briefing: &Briefing,
        arena: Arc<Region>,
        shared: &Shared,
    ) -> Result<Delivery, AdmitError> {
        let State::Waiting(rank) = self.state else {
            return Err(AdmitError::NotWaiting { connection: id });
        };
        let shared_tiers = shared.tiers.get().cloned().unwrap_or_default();
        let reader = Reader::new(arena, shared_tiers, shared.channel, shared.limits.window)?;
        let reading = Some(Box::new(reader.reading(briefing.clone())));
        let welcome = message::to_bytes(&FromAgent::Welcome { reading })
            .map_err(|error: Malformed| AdmitError::Briefing(error.into()))?;
        shared.watch.add(reader.agent_wakeup(), Source::Wakeup(id)).map_err(AdmitError::system)?;
        match packet::send(self.socket(), &welcome, &reader.descriptors()) {
            Ok(()) => {
                self.state = State::Reading(rank, Box::new(reader));
                Ok(Delivery::Sent)
            }
            Err(error @ SendError::TooLong { .. }) => {
                shared.watch.remove(reader.agent_wakeup());
                Err(AdmitError::Briefing(error.into()))
            }
            Err(_) => {
                shared.watch.remove(reader.agent_wakeup());
                self.shut_down();
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
            Err(AnswerError::NotShared(in_place)) => Err(LeaseError::NotShared { in_place }),
            Err(AnswerError::Broken(error)) => {
                self.end_with_reason(&format_args!("the ring is broken: {error}"));
                Ok(Delivery::Gone)
            }
        }
    }

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
            self.shut_down();
        }
        Ok(())
    }

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

    pub(super) fn explain(
        &self,
        id: ConnectionId,
        request: RequestId,
        samples: &[u32],
    ) -> Result<ClientEvent, Rule> {
        self.rank()?;
        if samples.len() > EXPLAINED_MAX {
            return Err(Rule::TooManyQuestions { samples: samples.len() });
        }
        let samples = samples.iter().map(|sample| SampleId(*sample)).collect();
        Ok(ClientEvent::ExplanationWanted { connection: id, request, samples })
    }

    pub(super) fn request_memory(
        &mut self,
        id: ConnectionId,
        request: RequestId,
        bytes: Bytes,
    ) -> Result<ClientEvent, Rule> {
        if matches!(self.state, State::New) {
            return Err(Rule::NoHello);
        }
        if bytes.0 == 0 {
            return Err(Rule::NoMemory);
        }
        if self.requests.len() >= MEMORY_REQUESTS_MAX || !self.requests.insert(request) {
            return Err(Rule::TooManyMemoryRequests);
        }
        self.is_reported = true;
        Ok(ClientEvent::MemoryRequested { connection: id, request, bytes })
    }

    pub(super) fn free_memory(
        &mut self,
        id: ConnectionId,
        grant: GrantId,
    ) -> Result<ClientEvent, Rule> {
        if !self.grants.remove(&grant) {
            return Err(Rule::NotGranted { grant });
        }
        Ok(ClientEvent::MemoryFreed { connection: id, grant })
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
                self.shut_down();
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

    /// Sends a message that needs no descriptors. A client that does not read is disconnected.
    pub(super) fn send(&mut self, message: &FromAgent) -> Delivery {
        let bytes = message::to_bytes(message).expect("numbers and texts always have a JSON form");
        if packet::send(self.socket(), &bytes, &[]).is_ok() {
            return Delivery::Sent;
        }
        self.shut_down();
        Delivery::Gone
    }

    /// Tells the client once why the connection ends, and ends the conversation.
    pub(super) fn end_with_reason(&mut self, reason: &impl fmt::Display) {
        if !self.has_ended {
            self.send(&FromAgent::Error { reason: shortened(reason) });
            self.shut_down();
        }
    }

    /// Shuts the socket down; the thread of the server sees that and removes the connection.
    fn shut_down(&mut self) {
        self.has_ended = true;
        // It fails only if the client has closed its side, which has the same effect.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Closes everything except the socket.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

/// Longest reason that is sent, so that it always fits in a packet.
const REASON_CHARS_MAX: usize = 2000;

fn shortened(reason: &impl fmt::Display) -> String {
    reason.to_string().chars().take(REASON_CHARS_MAX).collect()
}
