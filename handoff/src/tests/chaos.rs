//! A client that sends arbitrary data in any order. Invariants 1 and 3 of the server must hold.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::Ordering,
};

use proptest::prelude::*;
use tierfeed_core::{
    id::{ConnectionId, LeaseId},
    units::Bytes,
};

use super::{
    misuse::Rogue,
    test_agent::{LIMITS, TestAgent, batch_id, wait},
};
use crate::{
    ClientEvent, Delivery, GrantId,
    channel::Channel,
    entry::{ReleaseKind, Submission},
    message::PROTOCOL,
    packet,
    ring::Entry,
};

#[derive(Debug, Clone)]
enum Move {
    /// Bytes that are almost certainly no message.
    Noise(Vec<u8>),
    /// A message that is valid at some point of the protocol.
    Message(String),
    /// Requests a file for an order, and states that it is written.
    Publish(u32),
    Request(u32),
    Deliver(u64),
    Release(u64),
    /// Writes any word of the rings.
    Scribble(u64, u64),
    /// Pushes any entry in a valid way.
    Entry(Entry),
    Ring,
}

fn any_move() -> impl Strategy<Value = Move> {
    let message = (0_usize..6, 0_u64..4).prop_map(|(kind, number)| match kind {
        0 => format!(
            r#"{{"type":"hello","protocol":{PROTOCOL},"role":"worker","pid":1,"trainer":2,"variables":{{"RANK":"{number}"}}}}"#
        ),
        1 => format!(r#"{{"type":"allocate_memory","request":{number},"bytes":{number}}}"#),
        2 => format!(r#"{{"type":"free_memory","grant":{number}}}"#),
        3 => format!(r#"{{"type":"publish","request":{number},"epoch":0,"samples":1}}"#),
        4 => format!(r#"{{"type":"explain","request":{number},"samples":[3,{number}]}}"#),
        _ => "{".repeat(1 << number),
    });
    let words = Channel::new(LIMITS.window).unwrap().len() / 8;
    let value = prop_oneof![0_u64..40, any::<u64>()];
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 1..50).prop_map(Move::Noise),
        2 => message.prop_map(Move::Message),
        1 => (0_u32..3).prop_map(Move::Publish),
        6 => (0_u32..40).prop_map(Move::Request),
        2 => (0_u64..6).prop_map(Move::Deliver),
        3 => (0_u64..6).prop_map(Move::Release),
        1 => (0..words, value).prop_map(|(word, value)| Move::Scribble(word * 8, value)),
        1 => (0_u64..7, any::<Entry>()).prop_map(|(kind, mut entry)| {
            entry[0] = kind;
            Move::Entry(entry)
        }),
        6 => Just(Move::Ring),
    ]
}

/// Answers like an agent until `connection` is gone.
fn serve_until_gone(test_agent: &TestAgent, connection: ConnectionId) {
    let mut leases = 0;
    loop {
        match test_agent.event() {
            ClientEvent::Requested { batch, .. } => {
                let layout = super::test_agent::batch(batch.step.0 % 1000, &[64]);
                let lease = LeaseId(leases);
                leases += 1;
                test_agent.server.lease(connection, lease, Bytes(0), &layout, |_| None).unwrap();
            }
            ClientEvent::MemoryRequested { request, bytes, .. } => {
                let chunk = super::test_agent::region(Bytes(4096));
                let granted =
                    test_agent.server.grant(connection, request, GrantId(bytes.0), &[&chunk]);
                assert!(matches!(granted, Ok(Delivery::Sent | Delivery::Gone)));
            }
            ClientEvent::Delivered { .. }
            | ClientEvent::Tallied { .. }
            | ClientEvent::Released { .. }
            | ClientEvent::MemoryFreed { .. } => (),
            ClientEvent::Published { request, .. } => {
                test_agent.server.took_order(connection, request);
            }
            ClientEvent::ExplanationWanted { request, samples, .. } => {
                let reasons = samples.iter().map(|sample| (*sample, "no image".to_owned()));
                test_agent.server.explain(connection, request, reasons);
            }
            ClientEvent::Gone { connection: gone, .. } => {
                assert_eq!(gone, connection);
                return;
            }
            ClientEvent::Attached { .. } | ClientEvent::TurnedAway { .. } => {
                panic!("a second hello breaks a rule in any case")
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_client_disturbs_the_server(moves in prop::collection::vec(any_move(), 0..40)) {
        let test_agent = TestAgent::new();
        let (rogue, mut rings, connection) = Rogue::attached(&test_agent);
        std::thread::scope(|scope| {
            scope.spawn(|| serve_until_gone(&test_agent, connection));
            let say = |bytes: &[u8], descriptors: &[BorrowedFd<'_>]| {
                // It fails once the agent has closed the connection.
                let _ = packet::send(rogue.0.as_fd(), bytes, descriptors);
            };
            for step in moves {
                let entry = match step {
                    Move::Request(step) => Submission::Request(batch_id(step)).encode(),
                    Move::Deliver(lease) => {
                        Submission::Delivered(LeaseId(lease), wait(1)).encode()
                    }
                    Move::Release(lease) => Submission::Release(LeaseId(lease), ReleaseKind::Used).encode(),
                    Move::Entry(entry) => entry,
                    Move::Noise(bytes) => {
                        say(&bytes, &[]);
                        continue;
                    }
                    Move::Message(text) => {
                        say(text.as_bytes(), &[]);
                        continue;
                    }
                    Move::Publish(samples) => {
                        let text = format!(
                            r#"{{"type":"publish","request":1,"epoch":0,"samples":{samples}}}"#
                        );
                        say(text.as_bytes(), &[]);
                        say(br#"{"type":"order_written","request":1}"#, &[]);
                        continue;
                    }
                    Move::Scribble(offset, value) => {
                        let word = rings.memory.atomic_u64(Bytes(offset)).unwrap();
                        word.store(value, Ordering::Relaxed);
                        continue;
                    }
                    Move::Ring => {
                        rings.ring();
                        continue;
                    }
                };
                // It fails once the positions in the ring are invalid.
                let _ = rings.try_push(entry);
            }
            drop(rogue);
        });
        super::misuse::assert_serving(&test_agent);
    }
}
