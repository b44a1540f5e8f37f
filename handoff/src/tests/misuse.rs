//! Clients that break the rules: each loses its connection and hears why, and nobody else notices.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SocketAddrUnix, SocketFlags, connect},
};
use tierfeed_core::{
    id::{ConnectionId, LeaseId},
    units::Bytes,
};
use tierfeed_numa_memory::View;

use super::stage::{LIMITS, PATIENCE, RANK, Stage, batch_id, wait};
use crate::{
    Client, ClientEvent, ConnectError, Departure, Hello, Role,
    channel::Channel,
    endpoint::seqpacket_socket,
    entry::{Parting, Submission},
    message::{self, FromAgent, FromClient, PROTOCOL},
    packet::{self, Arrival, PACKET_BYTES_MAX},
    ring::{ENTRY_BYTES, Entry, Producer, PushError},
    wake,
};

/// A client that says whatever a test makes it say.
pub(super) struct Rogue(pub(super) OwnedFd);

impl Rogue {
    pub(super) fn connect(stage: &Stage) -> Self {
        let socket = seqpacket_socket(SocketFlags::empty()).unwrap();
        connect(&socket, &SocketAddrUnix::new(&stage.path).unwrap()).unwrap();
        Self(socket)
    }

    pub(super) fn attached(stage: &Stage) -> (Self, Rings, ConnectionId) {
        let rogue = Self::connect(stage);
        rogue.say(&hello(), &[]);
        let holder = stage.admit_next();
        let (message, descriptors) = rogue.hear();
        let FromAgent::Welcome { reading: Some(reading) } = message else { panic!("{message:?}") };
        let [rings, _arena, _bell, agent_bell] = <[OwnedFd; 4]>::try_from(descriptors).unwrap();
        let memory = View::map(rings, Bytes(reading.ring_bytes)).unwrap();
        let channel = Channel::new(reading.window).unwrap();
        let rings = Rings { memory, producer: Producer::new(channel.submissions), agent_bell };
        (rogue, rings, holder)
    }

    pub(super) fn say(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        self.try_say(bytes, descriptors).unwrap();
    }

    pub(super) fn try_say(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), packet::SendError> {
        packet::send(self.0.as_fd(), bytes, descriptors)
    }

    pub(super) fn hear(&self) -> (FromAgent, Vec<OwnedFd>) {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::try_from(PATIENCE).unwrap())).unwrap();
        match packet::receive(self.0.as_fd(), PACKET_BYTES_MAX).unwrap() {
            Arrival::Packet(packet) => {
                (message::from_bytes(&packet.bytes).unwrap(), packet.descriptors)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn reason(&self) -> String {
        match self.hear().0 {
            FromAgent::Error { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) struct Rings {
    pub(super) memory: View,
    producer: Producer,
    agent_bell: OwnedFd,
}

impl Rings {
    fn submit(&mut self, submission: Submission) {
        self.try_push(submission.encode()).unwrap();
    }

    pub(super) fn try_push(&mut self, entry: Entry) -> Result<(), PushError> {
        self.producer.push(&*self.memory, entry)
    }

    pub(super) fn ring(&self) {
        wake::ring_agent(&self.agent_bell);
    }
}

/// The first message of a trainer of this process.
pub(super) fn hello() -> Vec<u8> {
    let (protocol, role, pid) = (PROTOCOL, Role::Trainer, std::process::id());
    let variables = Hello::of_rank(RANK, role).variables;
    let hello = FromClient::Hello { protocol, role, pid, trainer: pid, variables };
    message::to_bytes(&hello).unwrap()
}

/// The server still lets an honest client in.
pub(super) fn assert_serving(stage: &Stage) {
    let (client, holder) = stage.attach();
    drop(client);
    assert_eq!(stage.gone(), holder);
    stage.assert_quiet();
}

pub(super) fn assert_expelled(stage: &Stage, reason: &str) {
    match stage.event() {
        ClientEvent::Gone { cause: Departure::Violation(violation), .. } => {
            assert!(violation.to_string().contains(reason), "{violation}");
        }
        other => panic!("{other:?}"),
    }
    assert_serving(stage);
}

#[test]
fn what_is_no_message_ends_the_connection_and_is_no_event() {
    let stage = Stage::new();
    for (bytes, reason) in [
        (&b"\xff\xfe not json"[..], "makes no sense"),
        (&br#"{"type":"hello","protocol":4}"#[..], "makes no sense"),
        (
            &br#"{"type":"hello","protocol":4,"role":"trainer","pid":1,"trainer":1,"variables":{"HOME":"/"}}"#[..],
            "not in the table",
        ),
        (&br#"{"type":"free_memory","grant":1}"#[..], "does not have"),
        (&br#"{"type":"allocate_memory","request":1,"bytes":5}"#[..], "no hello"),
        (&br#"{"type":"hello","protocol":1,"rank":0,"role":"trainer","pid":1}"#[..], "protocol 1"),
        (&[b' '; 5000][..], "longer than 4096 bytes"),
    ] {
        let rogue = Rogue::connect(&stage);
        rogue.say(bytes, &[]);
        let heard = rogue.reason();
        assert!(heard.contains(reason), "{heard}");
    }
    assert_serving(&stage);
}

#[test]
fn a_second_hello_is_one_too_many() {
    let stage = Stage::new();
    let (rogue, _rings, _) = Rogue::attached(&stage);
    rogue.say(&hello(), &[]);
    assert!(rogue.reason().contains("twice"));
    assert_expelled(&stage, "twice");
}

#[test]
fn more_requests_than_the_window_end_the_connection() {
    let stage = Stage::new();
    let (rogue, mut rings, _) = Rogue::attached(&stage);
    for step in 0..=LIMITS.window {
        rings.submit(Submission::Request(batch_id(step)));
    }
    rings.ring();
    assert!(rogue.reason().contains("more than 16 batches"));
    for step in 0..LIMITS.window {
        assert_eq!(stage.requested().1, batch_id(step), "what was allowed is reported");
    }
    assert_expelled(&stage, "more than 16 batches");
}

#[test]
fn a_lease_that_is_not_held_cannot_be_released() {
    let stage = Stage::new();
    let (rogue, mut rings, _) = Rogue::attached(&stage);
    rings.submit(Submission::Release(LeaseId(5), Parting::Used));
    rings.ring();
    assert!(rogue.reason().contains("released lease 5"));
    assert_expelled(&stage, "released lease 5");
}

#[test]
fn a_batch_is_delivered_once_and_only_to_its_holder() {
    let stage = Stage::new();
    let (rogue, mut rings, holder) = Rogue::attached(&stage);
    rings.submit(Submission::Request(batch_id(0)));
    rings.ring();
    stage.requested();
    stage.lease(holder, 0);
    let delivered = Submission::Delivered(LeaseId(0), wait(5));
    rings.submit(delivered);
    rings.submit(delivered);
    rings.ring();
    assert!(rogue.reason().contains("lease 0"));
    let ClientEvent::Delivered { wait: told, .. } = stage.event() else { panic!("not delivered") };
    assert_eq!(told, wait(5));
    assert_expelled(&stage, "lease 0");
}

#[test]
fn a_broken_ring_ends_the_connection() {
    let stage = Stage::new();
    let pushed = Bytes(0);
    for position in [4 * u64::from(LIMITS.window) + 1, u64::MAX] {
        let (rogue, rings, _) = Rogue::attached(&stage);
        rings.memory.atomic_u64(pushed).unwrap().store(position, Ordering::Release);
        rings.ring();
        assert!(rogue.reason().contains("ring is broken"));
        assert_expelled(&stage, "ring is broken");
    }
    let (rogue, rings, _) = Rogue::attached(&stage);
    rings.memory.atomic_u64(Bytes(2 * ENTRY_BYTES)).unwrap().store(77, Ordering::Relaxed);
    rings.memory.atomic_u64(pushed).unwrap().store(1, Ordering::Release);
    rings.ring();
    assert!(rogue.reason().contains("ring is broken"));
    assert_expelled(&stage, "ring is broken");
}

#[test]
fn an_agent_that_meets_a_full_ring_closes_it_instead_of_waiting() {
    let stage = Stage::new();
    let (rogue, mut rings, _) = Rogue::attached(&stage);
    let completions = Channel::new(LIMITS.window).unwrap().submissions.end();
    // The client claims to have read nothing for a long time.
    let popped = Bytes(completions + ENTRY_BYTES);
    let full = 0_u64.wrapping_sub(u64::from(LIMITS.window));
    rings.memory.atomic_u64(popped).unwrap().store(full, Ordering::Release);
    rings.submit(Submission::Request(batch_id(0)));
    rings.ring();
    let (holder, _) = stage.requested();
    stage.lease(holder, 0);
    assert!(rogue.reason().contains("full"));
    assert_eq!(stage.gone(), holder);
    assert_serving(&stage);
}

#[test]
fn a_bell_that_rings_without_cause_is_no_event() {
    let stage = Stage::new();
    let (_rogue, mut rings, _) = Rogue::attached(&stage);
    for _ in 0..100 {
        rings.ring();
    }
    rings.submit(Submission::Request(batch_id(0)));
    rings.ring();
    assert_eq!(stage.requested().1, batch_id(0));
}

#[test]
fn open_requests_for_memory_have_a_limit() {
    let stage = Stage::new();
    for requests in [&[0, 1, 2, 3, 4, 5, 6, 7, 8][..], &[1, 1], &[u64::MAX]] {
        let (rogue, _rings, _) = Rogue::attached(&stage);
        for request in requests {
            // The last of these asks for nothing.
            let bytes = request.wrapping_add(1);
            let text =
                format!(r#"{{"type":"allocate_memory","request":{request},"bytes":{bytes}}}"#);
            rogue.say(text.as_bytes(), &[]);
        }
        rogue.reason();
        for _ in 1..requests.len() {
            assert!(matches!(stage.event(), ClientEvent::MemoryRequested { .. }));
        }
        assert_expelled(&stage, "memory");
    }
}

#[test]
fn connections_have_a_limit_and_the_next_one_hears_it() {
    let stage = Stage::new();
    let clients: Vec<_> = (0..LIMITS.connections_max).map(|_| stage.attach()).collect();
    let hello = Hello::of_rank(RANK, Role::Worker);
    match Client::connect(&stage.path, &hello, PATIENCE) {
        Err(ConnectError::Refused { reason }) => {
            assert_eq!(reason, "the agent has 8 connections already");
        }
        other => panic!("{other:?}"),
    }
    for (client, holder) in clients {
        drop(client);
        assert_eq!(stage.gone(), holder);
    }
    assert_serving(&stage);
}

#[test]
fn a_client_that_does_not_read_its_packets_is_let_go() {
    let stage = Stage::new();
    let (rogue, _rings, _) = Rogue::attached(&stage);
    // The agent answers each with a file.
    let publish = br#"{"type":"publish","request":1,"epoch":0,"samples":1}"#;
    // Ends when the agent has closed the connection.
    while !matches!(packet::send(rogue.0.as_fd(), publish, &[]), Err(packet::SendError::End)) {
        std::thread::yield_now();
    }
    assert!(matches!(stage.event(), ClientEvent::Gone { .. }));
    assert_serving(&stage);
}
