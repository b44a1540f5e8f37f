//! A client that does anything, in any order. Invariants 1 and 3 of the server must hold.

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
    stage::{LIMITS, Stage, batch_id, wait},
};
use crate::{
    ClientEvent, Delivery, GrantId,
    channel::Channel,
    entry::{Parting, Submission},
    message::PROTOCOL,
    packet,
    ring::Entry,
};

#[derive(Debug, Clone)]
enum Move {
    /// Bytes that are most likely no message.
    Noise(Vec<u8>),
    /// A message that makes sense somewhere, if not here.
    Message(String),
    /// Asks for a file for an order, and says that it is written.
    Publish(u32),
    Request(u32),
    Deliver(u64),
    Release(u64),
    /// Any word of the rings.
    Scribble(u64, u64),
    /// Any entry, announced as it should be.
    Entry(Entry),
    Ring,
}

fn any_move() -> impl Strategy<Value = Move> {
    let message = (0_usize..5, 0_u64..4).prop_map(|(kind, number)| match kind {
        0 => format!(
            r#"{{"type":"hello","protocol":{PROTOCOL},"role":"worker","pid":1,"trainer":2,"variables":{{"RANK":"{number}"}}}}"#
        ),
        1 => format!(r#"{{"type":"allocate_memory","request":{number},"bytes":{number}}}"#),
        2 => format!(r#"{{"type":"free_memory","grant":{number}}}"#),
        3 => format!(r#"{{"type":"publish","request":{number},"epoch":0,"samples":1}}"#),
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

/// Answers like an agent until `holder` is gone.
fn serve_until_gone(stage: &Stage, holder: ConnectionId) {
    let mut leases = 0;
    loop {
        match stage.event() {
            ClientEvent::Requested { batch, .. } => {
                let layout = super::stage::batch(batch.step.0 % 1000, &[64]);
                let lease = LeaseId(leases);
                leases += 1;
                stage.server.lease(holder, lease, Bytes(0), &layout, |_| None).unwrap();
            }
            ClientEvent::MemoryRequested { request, bytes, .. } => {
                let chunk = super::stage::region(Bytes(4096));
                let granted = stage.server.grant(holder, request, GrantId(bytes.0), &[&chunk]);
                assert!(matches!(granted, Ok(Delivery::Sent | Delivery::Gone)));
            }
            ClientEvent::Delivered { .. }
            | ClientEvent::Tallied { .. }
            | ClientEvent::Released { .. }
            | ClientEvent::MemoryFreed { .. } => (),
            ClientEvent::Published { request, .. } => {
                stage.server.took_order(holder, request);
            }
            ClientEvent::Gone { holder: gone, .. } => {
                assert_eq!(gone, holder);
                return;
            }
            ClientEvent::Attached { .. } | ClientEvent::TurnedAway { .. } => {
                panic!("a second hello is a broken rule, whatever it says")
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_client_disturbs_the_server(moves in prop::collection::vec(any_move(), 0..40)) {
        let stage = Stage::new();
        let (rogue, mut rings, holder) = Rogue::attached(&stage);
        std::thread::scope(|scope| {
            scope.spawn(|| serve_until_gone(&stage, holder));
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
                    Move::Release(lease) => Submission::Release(LeaseId(lease), Parting::Used).encode(),
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
                // It fails once the rings say nonsense.
                let _ = rings.try_push(entry);
            }
            drop(rogue);
        });
        super::misuse::assert_serving(&stage);
    }
}
