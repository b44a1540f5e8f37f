//! Tests of both sides together; those that need two processes are in [`processes`].

mod admission;
mod chaos;
mod hostile;
mod misuse;
mod processes;
mod rogue_agent;
mod shared_tiers;
mod test_agent;

use std::time::Duration;

use tierfeed_core::{
    id::{Epoch, LeaseId, SampleId},
    session::{Fault, Refusal, Tally},
    units::{Bytes, Nanoseconds},
};

use self::test_agent::{PATIENCE, TestAgent, batch, batch_id, wait};
use super::*;

#[test]
fn a_batch_is_the_same_bytes_on_both_sides() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    client.request(batch_id(3)).unwrap();
    assert_eq!(test_agent.requested(), (connection, batch_id(3)));

    let batch = batch(3, &[100, 0, 70]);
    test_agent.arena.write(Bytes(4096), b"first sample").unwrap();
    let label = |sample: SampleId| (sample.0 != 31).then_some(i64::from(sample.0));
    test_agent.server.lease(connection, LeaseId(9), Bytes(4096), &batch, label).unwrap();

    let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
    assert_eq!((leased.id, leased.lease, leased.offset), (batch.id, LeaseId(9), Bytes(4096)));
    let samples: Vec<_> =
        leased.rows.iter().map(|row| (row.sample.0, row.label, row.len)).collect();
    let bytes = |len| Some(Bytes(len));
    assert_eq!(
        samples,
        [(30, Some(30), bytes(100)), (31, None, bytes(0)), (32, Some(32), bytes(70))]
    );
    let mut first = [0; 12];
    leased.arena.read(Bytes(leased.offset.0 + leased.rows[0].offset.0), &mut first).unwrap();
    assert_eq!(&first, b"first sample");

    // No copy: a write of the trainer changes the agent's memory.
    leased.arena.write(leased.offset, b"FIRST").unwrap();
    test_agent.arena.read(Bytes(4096), &mut first).unwrap();
    assert_eq!(&first, b"FIRST sample");

    for _ in 0..2 {
        client.deliver(leased.lease, wait(77)).unwrap();
    }
    client.release(leased.lease).unwrap();
    match test_agent.event() {
        ClientEvent::Delivered { connection: who, lease, wait: told } => {
            assert_eq!((who, lease, told), (connection, LeaseId(9), wait(77)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(test_agent.released(), (connection, LeaseId(9)), "said twice, sent once");
    assert_eq!(
        client.deliver(leased.lease, wait(0)),
        Err(ReleaseError::NotHeld { lease: LeaseId(9) })
    );
    assert_eq!(client.release(leased.lease), Err(ReleaseError::NotHeld { lease: LeaseId(9) }));
}

#[test]
fn a_release_tells_whether_the_trainer_keeps_a_copy() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    for (step, release_kind) in [(1, ReleaseKind::Copied), (2, ReleaseKind::Used)] {
        client.request(batch_id(step)).unwrap();
        assert_eq!(test_agent.requested(), (connection, batch_id(step)));
        test_agent.lease(connection, step);
        assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
        let given = LeaseId(u64::from(step));
        client.release_as(given, release_kind).unwrap();
        match test_agent.event() {
            ClientEvent::Released { lease, release_kind: said, .. } => {
                assert_eq!((lease, said), (given, release_kind));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_request_for_later_is_read_with_the_next_release_or_wait() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    assert!(client.request_later(batch_id(1)).unwrap());
    drop(test_agent.attach());
    test_agent.gone();
    test_agent.assert_quiet();
    assert_eq!(client.next(Duration::from_millis(1)).unwrap_err(), NextError::TimedOut);
    assert_eq!(
        test_agent.requested(),
        (connection, batch_id(1)),
        "a process that waits says what for"
    );
    test_agent.lease(connection, 1);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
    assert!(client.request_later(batch_id(2)).unwrap());
    client.release(LeaseId(1)).unwrap();
    assert_eq!(test_agent.requested(), (connection, batch_id(2)));
    assert_eq!(test_agent.released(), (connection, LeaseId(1)));
}

#[test]
fn a_delivery_is_read_when_the_trainer_waits_for_the_next_batch() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    client.request(batch_id(1)).unwrap();
    client.request(batch_id(2)).unwrap();
    assert_eq!(test_agent.requested(), (connection, batch_id(1)));
    assert_eq!(test_agent.requested(), (connection, batch_id(2)));
    test_agent.lease(connection, 1);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
    client.deliver(LeaseId(1), wait(5)).unwrap();
    assert_eq!(client.next(Duration::from_millis(1)).unwrap_err(), NextError::TimedOut);
    assert!(matches!(test_agent.event(), ClientEvent::Delivered { lease: LeaseId(1), .. }));
}

#[test]
fn a_delivery_is_read_while_another_thread_waits() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    client.request(batch_id(1)).unwrap();
    assert_eq!(test_agent.requested(), (connection, batch_id(1)));
    test_agent.lease(connection, 1);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| client.next(PATIENCE));
        while !client.is_waited_for() {
            std::thread::yield_now();
        }
        client.deliver(LeaseId(1), wait(5)).unwrap();
        assert!(matches!(test_agent.event(), ClientEvent::Delivered { lease: LeaseId(1), .. }));
        client.request(batch_id(2)).unwrap();
        assert_eq!(test_agent.requested(), (connection, batch_id(2)));
        test_agent.lease(connection, 2);
        assert!(matches!(waits.join().unwrap(), Ok(Reply::Batch(_))));
    });
}

#[test]
fn a_refusal_reaches_the_client_with_its_sample() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    client.request(batch_id(1)).unwrap();
    test_agent.requested();
    let refusal = Refusal::Unreadable(SampleId(12), Fault::Vanished);
    test_agent.server.refuse(connection, batch_id(1), refusal).unwrap();
    let Reply::Refused { batch, refusal: received } = client.next(PATIENCE).unwrap() else {
        panic!("leased")
    };
    assert_eq!((batch, received), (batch_id(1), refusal));
}

#[test]
fn the_briefing_tells_the_client_all_it_needs() {
    let test_agent = TestAgent::new();
    let (client, _) = test_agent.attach();
    assert_eq!(client.briefing(), &test_agent.briefing);
    assert_eq!(client.arena().len(), test_agent.arena.len());
}

#[test]
fn waiting_ends_with_its_limit() {
    let test_agent = TestAgent::new();
    let (client, _) = test_agent.attach();
    let nothing = client.next(Duration::from_millis(1));
    assert!(matches!(nothing, Err(NextError::TimedOut)), "{nothing:?}");
}

#[test]
fn as_many_batches_as_the_window_pass_and_one_more_is_refused() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    let window = test_agent::LIMITS.window;
    for _ in 0..3 {
        for step in 0..window {
            client.request(batch_id(step)).unwrap();
        }
        assert_eq!(client.request(batch_id(window)), Err(RequestError::TooMany { window }));
        for step in 0..window {
            assert_eq!(test_agent.requested(), (connection, batch_id(step)));
            test_agent.lease(connection, step);
        }
        for step in 0..window {
            let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
            assert_eq!(leased.id, batch_id(step));
        }
        assert_eq!(client.request(batch_id(window)), Err(RequestError::TooMany { window }));
        for step in 0..window {
            client.deliver(LeaseId(u64::from(step)), wait(0)).unwrap();
            client.release(LeaseId(u64::from(step))).unwrap();
        }
        for step in 0..window {
            assert!(matches!(test_agent.event(), ClientEvent::Delivered { .. }));
            assert_eq!(test_agent.released(), (connection, LeaseId(u64::from(step))));
        }
    }
}

#[test]
fn a_trainer_tells_what_it_did_itself_as_far_as_what_must_be_said_leaves_room() {
    let test_agent = TestAgent::new();
    let (client, told_by) = test_agent.attach();
    let told = Tally {
        epoch: Epoch(1),
        self_read_batches: 3,
        self_read_samples: 7,
        self_read_bytes: Bytes(70),
        skipped_samples: 2,
        unanswered: Nanoseconds(11),
        self_read: Nanoseconds(12),
        decoding: Nanoseconds(13),
        decode_threads: 4,
    };
    // The agent is woken by the first and reads it though no batch is requested.
    assert_eq!(client.tally(told), Ok(true));
    let ClientEvent::Tallied { connection, rank, tally } = test_agent.event() else {
        panic!("not told")
    };
    assert_eq!((connection, rank, tally), (told_by, test_agent::RANK, told));
    let quiet = Tally { self_read_batches: 0, ..told };
    let window = u64::from(test_agent::LIMITS.window);
    let said = (0..5 * window).filter(|_| client.tally(quiet) == Ok(true)).count();
    assert_eq!(said as u64, window, "nothing was read meanwhile");
    // Tallies never take the room of requests, deliveries and releases.
    for step in 0..test_agent::LIMITS.window {
        client.request(batch_id(step)).unwrap();
    }
    for _ in 0..window {
        assert!(matches!(test_agent.event(), ClientEvent::Tallied { .. }));
    }
    assert_eq!(test_agent.requested().0, told_by);
}

#[test]
fn of_several_requests_as_many_pass_as_the_window_has_room_for() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    let window = test_agent::LIMITS.window;
    client.request(batch_id(0)).unwrap();
    let sent = client.request_each((1..window + 5).map(batch_id)).unwrap();
    assert_eq!(sent, window as usize - 1);
    for step in 0..window {
        assert_eq!(test_agent.requested(), (connection, batch_id(step)));
    }
    let more = client.request_each([batch_id(window)]);
    assert_eq!(more, Err(RequestError::TooMany { window }));
}

#[test]
fn an_answer_that_is_there_is_taken_without_waiting_for_one_that_is_not() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    client.request(batch_id(0)).unwrap();
    assert_eq!(test_agent.requested(), (connection, batch_id(0)));
    assert!(client.try_next().unwrap().is_none());
    test_agent.lease(connection, 0);
    let taken = std::iter::repeat_with(|| client.try_next().unwrap()).flatten().next();
    assert!(matches!(taken, Some(Reply::Batch(leased)) if leased.id == batch_id(0)));
    assert!(client.try_next().unwrap().is_none());
}

#[test]
fn a_published_order_is_taken_before_the_first_request_for_it() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    let order: Vec<_> = (0..20_000).rev().map(SampleId).collect();
    for epoch in 0..5 {
        std::thread::scope(|scope| {
            let publishing = scope.spawn(|| client.publish(Epoch(epoch), &order, PATIENCE));
            assert_eq!(test_agent.published(connection), (Epoch(epoch), order.clone()));
            publishing.join().unwrap().unwrap();
        });
        client.request(batch_id(epoch)).unwrap();
        assert_eq!(test_agent.requested(), (connection, batch_id(epoch)));
    }
}

#[test]
fn an_order_that_is_answered_late_holds_up_the_next_one_only() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    let short = Duration::from_millis(200);
    // The agent hands the file out and then does not answer.
    let late = client.publish(Epoch(0), &[SampleId(1)], short);
    assert!(matches!(late, Err(ControlError::TimedOut)), "{late:?}");
    let ClientEvent::Published { request, .. } = test_agent.event() else {
        panic!("not published")
    };
    let next = client.publish(Epoch(1), &[SampleId(2)], short);
    assert!(matches!(next, Err(ControlError::TimedOut)), "{next:?}");
    test_agent.assert_quiet();
    test_agent.server.took_order(connection, request);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| client.publish(Epoch(1), &[SampleId(2)], PATIENCE));
        assert_eq!(test_agent.published(connection), (Epoch(1), vec![SampleId(2)]));
        publishing.join().unwrap().unwrap();
    });
}

#[test]
fn memory_is_granted_in_chunks_and_freed() {
    let test_agent = TestAgent::new();
    let client = MemoryClient::connect(&test_agent.path, PATIENCE).unwrap();
    let chunks: Vec<_> = (0..70).map(|_| test_agent::region(Bytes(4096))).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ClientEvent::MemoryRequested { connection, request, bytes } = test_agent.event()
            else {
                panic!("no request")
            };
            assert_eq!(bytes, Bytes(70 * 4096));
            let chunks: Vec<_> = chunks.iter().collect();
            let granted = test_agent.server.grant(connection, request, GrantId(5), &chunks);
            assert_eq!(granted, Ok(Delivery::Sent));
            let again = test_agent.server.grant(connection, request, GrantId(6), &chunks);
            assert_eq!(again, Err(GrantError::NotRequested { request }));
        });
        let grant = client.allocate(Bytes(70 * 4096), PATIENCE).unwrap();
        assert_eq!((grant.id, grant.chunks.len()), (GrantId(5), 70));
        grant.chunks[69].write(Bytes(0), b"shared").unwrap();
        let mut seen = [0; 6];
        chunks[69].read(Bytes(0), &mut seen).unwrap();
        assert_eq!(&seen, b"shared");
        client.free(grant).unwrap();
    });
    let ClientEvent::MemoryFreed { connection, grant: GrantId(5) } = test_agent.event() else {
        panic!("not freed")
    };
    drop(client);
    assert_eq!(test_agent.gone(), connection);
}

#[test]
fn a_denial_says_why() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ClientEvent::MemoryRequested { request, .. } = test_agent.event() else {
                panic!("no request")
            };
            test_agent.server.deny(connection, request, "512 MiB are free").unwrap();
        });
        match client.allocate(Bytes::mib(1024), PATIENCE) {
            Err(ControlError::Denied { reason }) => assert_eq!(reason, "512 MiB are free"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn the_reasons_of_failed_samples_come_however_many_are_asked_about() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    let asked: Vec<_> = (0..70).map(SampleId).collect();
    let answer = || {
        let ClientEvent::ExplanationWanted { request, samples, .. } = test_agent.event() else {
            panic!("no question")
        };
        let known = samples.iter().filter(|it| it.0 % 2 == 0);
        let reasons = known.map(|it| (*it, "cut off\nhere".to_owned()));
        test_agent.server.explain(connection, request, reasons);
        samples.len()
    };
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.explain(&asked, PATIENCE));
        assert_eq!([answer(), answer(), answer()], [32, 32, 6]);
        let reasons = asking.join().unwrap().unwrap();
        let expected = (0..70).step_by(2).map(|it| (SampleId(it), "cut off here".to_owned()));
        assert_eq!(reasons, expected.collect::<Vec<_>>());
    });
    let unanswered = client.explain(&asked[..1], Duration::ZERO);
    assert!(matches!(unanswered, Err(ControlError::TimedOut)), "{unanswered:?}");
}

#[test]
fn a_grant_that_comes_too_late_goes_back() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    let late = client.allocate(Bytes(4096), Duration::ZERO);
    assert!(matches!(late, Err(ControlError::TimedOut)), "{late:?}");
    let ClientEvent::MemoryRequested { request, .. } = test_agent.event() else {
        panic!("no request")
    };
    let chunk = test_agent::region(Bytes(4096));
    let chunks = vec![&chunk; 65];
    test_agent.server.grant(connection, request, GrantId(8), &chunks).unwrap();
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| client.publish(Epoch(0), &[SampleId(0)], PATIENCE));
        let freed = test_agent.event();
        assert!(matches!(freed, ClientEvent::MemoryFreed { grant: GrantId(8), .. }), "{freed:?}");
        test_agent.published(connection);
        publishing.join().unwrap().unwrap();
    });
    drop(client);
    match test_agent.event() {
        // A second free would be a violation.
        ClientEvent::Gone { connection: gone, cause: DisconnectCause::Left } => {
            assert_eq!(gone, connection);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_handed_over_before_the_agent_ended_is_still_delivered() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    for step in 0..3 {
        client.request(batch_id(step)).unwrap();
        test_agent.requested();
        test_agent.lease(connection, step);
    }
    test_agent.arena.write(Bytes(0), b"bytes").unwrap();
    drop(test_agent);
    let mut held = Vec::new();
    for step in 0..3 {
        let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
        assert_eq!(leased.id, batch_id(step));
        held.push(leased);
    }
    for _ in 0..2 {
        match client.next(PATIENCE) {
            Err(NextError::Disconnected(Disconnected { reason })) => {
                assert_eq!(reason, "the agent ends");
            }
            other => panic!("{other:?}"),
        }
    }
    let mut bytes = [0; 5];
    held[0].arena.read(held[0].offset, &mut bytes).unwrap();
    assert_eq!(&bytes, b"bytes", "mapped memory outlives the agent");
    assert_eq!(client.release(held[0].lease), Ok(()));
    assert!(matches!(client.request(batch_id(9)), Err(RequestError::Disconnected(_))));
    assert!(matches!(
        client.publish(Epoch(0), &[SampleId(0)], PATIENCE),
        Err(ControlError::Disconnected(_))
    ));
}

#[test]
fn a_client_that_leaves_is_reported_gone_once() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    client.request(batch_id(0)).unwrap();
    test_agent.requested();
    drop(client);
    assert_eq!(test_agent.gone(), connection);
    let (other, other_connection) = test_agent.attach();
    assert_ne!(connection, other_connection, "names are never used again");
    assert_eq!(
        test_agent.server.lease(connection, LeaseId(1), Bytes(0), &batch(0, &[1]), |_| None),
        Ok(Delivery::Gone)
    );
    drop(other);
    assert_eq!(test_agent.gone(), other_connection);
    test_agent.assert_quiet();
}

#[test]
fn a_client_that_is_closed_hears_why_and_is_reported_gone() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    test_agent.server.close(connection, "the job was cancelled");
    let ClientEvent::Gone { connection: gone, cause } = test_agent.event() else {
        panic!("not gone")
    };
    assert_eq!((gone, cause.to_string().as_str()), (connection, "the agent closed it"));
    match client.next(PATIENCE) {
        Err(NextError::Disconnected(it)) => assert_eq!(it.reason, "the job was cancelled"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_outside_the_arena_is_never_handed_over() {
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    client.request(batch_id(0)).unwrap();
    test_agent.requested();
    let batch = batch(0, &[100]);
    for offset in [test_agent.arena.len(), Bytes(u64::MAX - 4095)] {
        let refused = test_agent.server.lease(connection, LeaseId(1), offset, &batch, |_| None);
        assert!(matches!(refused, Err(LeaseError::OutsideArena(_))), "{refused:?}");
    }
    test_agent.lease(connection, 0);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
}

#[test]
fn an_answer_without_a_request_is_an_error() {
    let test_agent = TestAgent::new();
    let (_client, connection) = test_agent.attach();
    let refused =
        test_agent.server.lease(connection, LeaseId(1), Bytes(0), &batch(0, &[1]), |_| None);
    assert_eq!(refused, Err(LeaseError::NotRequested));
    let refused = test_agent.server.refuse(connection, batch_id(0), Refusal::NotInOrder);
    assert_eq!(refused, Err(LeaseError::NotRequested));
}

#[test]
fn one_thread_waits_while_others_release() {
    const BATCHES: u32 = 2_000;
    let test_agent = TestAgent::new();
    let (client, connection) = test_agent.attach();
    let (sender, receiver) = std::sync::mpsc::channel::<LeaseId>();
    let receiver = std::sync::Mutex::new(receiver);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut released = 0;
            while released < BATCHES {
                match test_agent.event() {
                    ClientEvent::Requested { batch, .. } => {
                        test_agent.lease(connection, batch.step.0);
                    }
                    ClientEvent::Released { .. } => released += 1,
                    other => panic!("{other:?}"),
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while let Ok(lease) = { receiver.lock().unwrap().recv() } {
                    client.release(lease).unwrap();
                }
            });
        }
        let mut asked = 0;
        for step in 0..BATCHES {
            while asked < BATCHES {
                match client.request(batch_id(asked)) {
                    Ok(()) => asked += 1,
                    Err(RequestError::TooMany { .. }) if asked > step => break,
                    // All batches are leased; the other threads release some.
                    Err(RequestError::TooMany { .. }) => std::thread::yield_now(),
                    Err(other) => panic!("{other:?}"),
                }
            }
            let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
            assert_eq!(leased.id, batch_id(step), "in the order in which they were handed over");
            sender.send(leased.lease).unwrap();
        }
        drop(sender);
    });
}

#[test]
fn a_client_may_be_shared_by_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Client>();
    is_shared::<MemoryClient>();
    is_shared::<LeasedBatch>();
    is_shared::<Server>();
}

#[test]
fn a_path_without_a_listener_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    let hello = Hello::of_rank(test_agent::RANK, Role::Trainer);
    let refused = Client::connect(&path, &hello, PATIENCE);
    assert!(matches!(refused, Err(ConnectError::NoAgent { .. })), "{refused:?}");
}

#[test]
fn a_client_that_is_never_let_in_waits_no_longer_than_its_limit() {
    let test_agent = TestAgent::new();
    let hello = Hello::of_rank(test_agent::RANK, Role::Trainer);
    let refused = Client::connect(&test_agent.path, &hello, Duration::from_millis(1));
    assert!(matches!(refused, Err(ConnectError::TimedOut)), "{refused:?}");
    let ClientEvent::Attached { connection, .. } = test_agent.event() else {
        panic!("not attached")
    };
    assert_eq!(test_agent.gone(), connection);
    let late = test_agent.server.admit(
        connection,
        &test_agent.briefing,
        std::sync::Arc::clone(&test_agent.arena),
    );
    assert_eq!(late.unwrap(), Delivery::Gone);
}
