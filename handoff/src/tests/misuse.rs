//! Clients that break the rules: each loses its connection and gets the reason, and no other client
//! is affected.

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

use super::test_agent::{LIMITS, PATIENCE, RANK, TestAgent, batch_id, wait};
use crate::{
    Client, ClientEvent, ConnectError, DisconnectCause, Hello, Role,
    channel::Channel,
    endpoint::seqpacket_socket,
    entry::{ReleaseKind, Submission},
    message::{self, EXPLAINED_MAX, FromAgent, FromClient, RequestId},
    packet::{self, Arrival, PACKET_BYTES_MAX},
    ring::{ENTRY_BYTES, Entry, Producer, PushError},
    wake,
};

pub(super) struct Rogue(pub(super) OwnedFd);

impl Rogue {
    pub(super) fn connect(test_agent: &TestAgent) -> Self {
        let socket = seqpacket_socket(SocketFlags::empty()).unwrap();
        connect(&socket, &SocketAddrUnix::new(&test_agent.path).unwrap()).unwrap();
        Self(socket)
    }

    pub(super) fn attached(test_agent: &TestAgent) -> (Self, Rings, ConnectionId) {
        let rogue = Self::connect(test_agent);
        rogue.say(&hello(), &[]);
        let connection = test_agent.admit_next();
        let (message, descriptors) = rogue.hear();
        let FromAgent::Welcome { reading: Some(reading) } = message else { panic!("{message:?}") };
        let [rings, _arena, _wakeup, agent_wakeup] = <[OwnedFd; 4]>::try_from(descriptors).unwrap();
        let memory = View::map(rings, Bytes(reading.ring_bytes)).unwrap();
        let channel = Channel::new(reading.window).unwrap();
        let rings = Rings { memory, producer: Producer::new(channel.submissions), agent_wakeup };
        (rogue, rings, connection)
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
    agent_wakeup: OwnedFd,
}

impl Rings {
    fn submit(&mut self, submission: Submission) {
        self.try_push(submission.encode()).unwrap();
    }

    pub(super) fn try_push(&mut self, entry: Entry) -> Result<(), PushError> {
        self.producer.push(&*self.memory, entry)
    }

    pub(super) fn ring(&self) {
        wake::wake_agent(&self.agent_wakeup);
    }
}

pub(super) fn hello() -> Vec<u8> {
    let hello = Hello::of_rank(RANK, Role::Trainer).sent_by(std::process::id());
    message::to_bytes(&FromClient::Hello(hello)).unwrap()
}

pub(super) fn assert_serving(test_agent: &TestAgent) {
    let (client, connection) = test_agent.attach();
    drop(client);
    assert_eq!(test_agent.gone(), connection);
    test_agent.assert_quiet();
}

pub(super) fn assert_expelled(test_agent: &TestAgent, reason: &str) {
    match test_agent.event() {
        ClientEvent::Gone { cause: DisconnectCause::Violation(violation), .. } => {
            assert!(violation.to_string().contains(reason), "{violation}");
        }
        other => panic!("{other:?}"),
    }
    assert_serving(test_agent);
}

#[test]
fn what_is_no_message_ends_the_connection_and_is_no_event() {
    let test_agent = TestAgent::new();
    for (bytes, reason) in [
        (&b"\xff\xfe not json"[..], "makes no sense"),
        (&br#"{"type":"hello","protocol":7}"#[..], "makes no sense"),
        (
            &br#"{"type":"hello","protocol":7,"role":"trainer","pid":1,"trainer":1,"pages":"pinned","variables":{"HOME":"/"}}"#[..],
            "not in the table",
        ),
        (&br#"{"type":"free_memory","grant":1}"#[..], "does not have"),
        (&br#"{"type":"allocate_memory","request":1,"bytes":5}"#[..], "no hello"),
        (&br#"{"type":"explain","request":1,"samples":[1]}"#[..], "no hello"),
        (&br#"{"type":"hello","protocol":1,"rank":0,"role":"trainer","pid":1}"#[..], "protocol 1"),
        (&[b' '; 5000][..], "longer than 4096 bytes"),
    ] {
        let rogue = Rogue::connect(&test_agent);
        rogue.say(bytes, &[]);
        let received = rogue.reason();
        assert!(received.contains(reason), "{received}");
    }
    assert_serving(&test_agent);
}

#[test]
fn a_second_hello_is_one_too_many() {
    let test_agent = TestAgent::new();
    let (rogue, _rings, _) = Rogue::attached(&test_agent);
    rogue.say(&hello(), &[]);
    assert!(rogue.reason().contains("twice"));
    assert_expelled(&test_agent, "twice");
}

#[test]
fn a_question_about_more_samples_than_have_room_in_the_answer_ends_the_connection() {
    let test_agent = TestAgent::new();
    let (rogue, _rings, _) = Rogue::attached(&test_agent);
    let (request, samples) = (RequestId(1), vec![1; EXPLAINED_MAX + 1]);
    rogue.say(&message::to_bytes(&FromClient::Explain { request, samples }).unwrap(), &[]);
    assert!(rogue.reason().contains("33 samples at once"));
    assert_expelled(&test_agent, "32 at most");
}

#[test]
fn more_requests_than_the_window_end_the_connection() {
    let test_agent = TestAgent::new();
    let (rogue, mut rings, _) = Rogue::attached(&test_agent);
    for step in 0..=LIMITS.window {
        rings.submit(Submission::Request(batch_id(step)));
    }
    rings.ring();
    assert!(rogue.reason().contains("more than 16 batches"));
    for step in 0..LIMITS.window {
        assert_eq!(test_agent.requested().1, batch_id(step), "what was allowed is reported");
    }
    assert_expelled(&test_agent, "more than 16 batches");
}

#[test]
fn a_lease_that_is_not_held_cannot_be_released() {
    let test_agent = TestAgent::new();
    let (rogue, mut rings, _) = Rogue::attached(&test_agent);
    rings.submit(Submission::Release(LeaseId(5), ReleaseKind::Used));
    rings.ring();
    assert!(rogue.reason().contains("released lease 5"));
    assert_expelled(&test_agent, "released lease 5");
}

#[test]
fn a_batch_is_delivered_once_and_only_to_its_connection() {
    let test_agent = TestAgent::new();
    let (rogue, mut rings, connection) = Rogue::attached(&test_agent);
    rings.submit(Submission::Request(batch_id(0)));
    rings.ring();
    test_agent.requested();
    test_agent.lease(connection, 0);
    let delivered = Submission::Delivered(LeaseId(0), wait(5));
    rings.submit(delivered);
    rings.submit(delivered);
    rings.ring();
    assert!(rogue.reason().contains("lease 0"));
    let ClientEvent::Delivered { wait: told, .. } = test_agent.event() else {
        panic!("not delivered")
    };
    assert_eq!(told, wait(5));
    assert_expelled(&test_agent, "lease 0");
}

#[test]
fn a_broken_ring_ends_the_connection() {
    let test_agent = TestAgent::new();
    let pushed = Bytes(0);
    for position in [4 * u64::from(LIMITS.window) + 1, u64::MAX] {
        let (rogue, rings, _) = Rogue::attached(&test_agent);
        rings.memory.atomic_u64(pushed).unwrap().store(position, Ordering::Release);
        rings.ring();
        assert!(rogue.reason().contains("ring is broken"));
        assert_expelled(&test_agent, "ring is broken");
    }
    let (rogue, rings, _) = Rogue::attached(&test_agent);
    rings.memory.atomic_u64(Bytes(2 * ENTRY_BYTES)).unwrap().store(77, Ordering::Relaxed);
    rings.memory.atomic_u64(pushed).unwrap().store(1, Ordering::Release);
    rings.ring();
    assert!(rogue.reason().contains("ring is broken"));
    assert_expelled(&test_agent, "ring is broken");
}

#[test]
fn an_agent_that_meets_a_full_ring_closes_it_instead_of_waiting() {
    let test_agent = TestAgent::new();
    let (rogue, mut rings, _) = Rogue::attached(&test_agent);
    let completions = Channel::new(LIMITS.window).unwrap().submissions.end();
    // The client states that it has read nothing for a long time.
    let popped = Bytes(completions + ENTRY_BYTES);
    let full = 0_u64.wrapping_sub(u64::from(LIMITS.window));
    rings.memory.atomic_u64(popped).unwrap().store(full, Ordering::Release);
    rings.submit(Submission::Request(batch_id(0)));
    rings.ring();
    let (connection, _) = test_agent.requested();
    test_agent.lease(connection, 0);
    assert!(rogue.reason().contains("full"));
    assert_eq!(test_agent.gone(), connection);
    assert_serving(&test_agent);
}

#[test]
fn a_bell_that_rings_without_cause_is_no_event() {
    let test_agent = TestAgent::new();
    let (_rogue, mut rings, _) = Rogue::attached(&test_agent);
    for _ in 0..100 {
        rings.ring();
    }
    rings.submit(Submission::Request(batch_id(0)));
    rings.ring();
    assert_eq!(test_agent.requested().1, batch_id(0));
}

#[test]
fn open_requests_for_memory_have_a_limit() {
    let test_agent = TestAgent::new();
    for requests in [&[0, 1, 2, 3, 4, 5, 6, 7, 8][..], &[1, 1], &[u64::MAX]] {
        let (rogue, _rings, _) = Rogue::attached(&test_agent);
        for request in requests {
            // The last of these requests 0 bytes.
            let bytes = request.wrapping_add(1);
            let text =
                format!(r#"{{"type":"allocate_memory","request":{request},"bytes":{bytes}}}"#);
            rogue.say(text.as_bytes(), &[]);
        }
        rogue.reason();
        for _ in 1..requests.len() {
            assert!(matches!(test_agent.event(), ClientEvent::MemoryRequested { .. }));
        }
        assert_expelled(&test_agent, "memory");
    }
}

#[test]
fn connections_have_a_limit_and_the_next_one_hears_it() {
    let test_agent = TestAgent::new();
    let clients: Vec<_> = (0..LIMITS.connections_max).map(|_| test_agent.attach()).collect();
    let hello = Hello::of_rank(RANK, Role::Worker);
    match Client::connect(&test_agent.path, &hello, PATIENCE) {
        Err(ConnectError::Refused { reason }) => {
            assert_eq!(reason, "the agent has 8 connections already");
        }
        other => panic!("{other:?}"),
    }
    for (client, connection) in clients {
        drop(client);
        assert_eq!(test_agent.gone(), connection);
    }
    assert_serving(&test_agent);
}

#[test]
fn a_client_that_does_not_read_its_packets_is_let_go() {
    let test_agent = TestAgent::new();
    let (rogue, _rings, _) = Rogue::attached(&test_agent);
    // The agent answers each with a file.
    let publish = br#"{"type":"publish","request":1,"epoch":0,"samples":1}"#;
    // Ends when the agent has closed the connection.
    while !matches!(packet::send(rogue.0.as_fd(), publish, &[]), Err(packet::SendError::End)) {
        std::thread::yield_now();
    }
    assert!(matches!(test_agent.event(), ClientEvent::Gone { .. }));
    assert_serving(&test_agent);
}
