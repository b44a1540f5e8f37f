//! Both sides together. What needs two processes is in [`processes`].

mod chaos;
mod entrance;
mod hostile;
mod misuse;
mod processes;
mod rogue_agent;
mod shelf;
mod stage;

use std::time::Duration;

use tierfeed_core::{
    id::{Epoch, LeaseId, SampleId},
    session::{Fault, Refusal, Tally},
    units::{Bytes, Nanoseconds},
};

use self::stage::{PATIENCE, Stage, batch, batch_id, wait};
use super::*;

#[test]
fn a_batch_is_the_same_bytes_on_both_sides() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    client.request(batch_id(3)).unwrap();
    assert_eq!(stage.requested(), (holder, batch_id(3)));

    let batch = batch(3, &[100, 0, 70]);
    stage.arena.write(Bytes(4096), b"first sample").unwrap();
    let label = |sample: SampleId| (sample.0 != 31).then_some(i64::from(sample.0));
    stage.server.lease(holder, LeaseId(9), Bytes(4096), &batch, label).unwrap();

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

    // No copy: what the trainer writes lies in the agent's memory.
    leased.arena.write(leased.offset, b"FIRST").unwrap();
    stage.arena.read(Bytes(4096), &mut first).unwrap();
    assert_eq!(&first, b"FIRST sample");

    for _ in 0..2 {
        client.deliver(leased.lease, wait(77)).unwrap();
    }
    client.release(leased.lease).unwrap();
    match stage.event() {
        ClientEvent::Delivered { holder: who, lease, wait: told } => {
            assert_eq!((who, lease, told), (holder, LeaseId(9), wait(77)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.released(), (holder, LeaseId(9)), "said twice, sent once");
    assert_eq!(
        client.deliver(leased.lease, wait(0)),
        Err(ReleaseError::NotHeld { lease: LeaseId(9) })
    );
    assert_eq!(client.release(leased.lease), Err(ReleaseError::NotHeld { lease: LeaseId(9) }));
}

#[test]
fn whoever_goes_on_with_a_copy_says_so_when_it_gives_the_batch_back() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    for (step, parting) in [(1, Parting::Copied), (2, Parting::Used)] {
        client.request(batch_id(step)).unwrap();
        assert_eq!(stage.requested(), (holder, batch_id(step)));
        stage.lease(holder, step);
        assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
        let given = LeaseId(u64::from(step));
        client.part_with(given, parting).unwrap();
        match stage.event() {
            ClientEvent::Released { lease, parting: said, .. } => {
                assert_eq!((lease, said), (given, parting));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_request_for_later_is_read_with_the_next_release_or_wait() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    assert!(client.request_later(batch_id(1)).unwrap());
    drop(stage.attach());
    stage.gone();
    stage.assert_quiet();
    assert_eq!(client.next(Duration::from_millis(1)).unwrap_err(), NextError::TimedOut);
    assert_eq!(stage.requested(), (holder, batch_id(1)), "a process that waits says what for");
    stage.lease(holder, 1);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
    assert!(client.request_later(batch_id(2)).unwrap());
    client.release(LeaseId(1)).unwrap();
    assert_eq!(stage.requested(), (holder, batch_id(2)));
    assert_eq!(stage.released(), (holder, LeaseId(1)));
}

#[test]
fn a_refusal_reaches_the_client_with_its_sample() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    client.request(batch_id(1)).unwrap();
    stage.requested();
    let refusal = Refusal::Unreadable(SampleId(12), Fault::Vanished);
    stage.server.refuse(holder, batch_id(1), refusal).unwrap();
    let Reply::Refused { batch, refusal: heard } = client.next(PATIENCE).unwrap() else {
        panic!("leased")
    };
    assert_eq!((batch, heard), (batch_id(1), refusal));
}

#[test]
fn the_briefing_tells_the_client_all_it_needs() {
    let stage = Stage::new();
    let (client, _) = stage.attach();
    assert_eq!(client.briefing(), &stage.briefing);
    assert_eq!(client.arena().len(), stage.arena.len());
}

#[test]
fn waiting_ends_with_its_limit() {
    let stage = Stage::new();
    let (client, _) = stage.attach();
    let nothing = client.next(Duration::from_millis(1));
    assert!(matches!(nothing, Err(NextError::TimedOut)), "{nothing:?}");
}

#[test]
fn as_many_batches_as_the_window_pass_and_one_more_is_refused() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    let window = stage::LIMITS.window;
    for _ in 0..3 {
        for step in 0..window {
            client.request(batch_id(step)).unwrap();
        }
        assert_eq!(client.request(batch_id(window)), Err(RequestError::TooMany { window }));
        for step in 0..window {
            assert_eq!(stage.requested(), (holder, batch_id(step)));
            stage.lease(holder, step);
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
            assert!(matches!(stage.event(), ClientEvent::Delivered { .. }));
            assert_eq!(stage.released(), (holder, LeaseId(u64::from(step))));
        }
    }
}

#[test]
fn a_trainer_tells_what_it_did_itself_as_far_as_what_must_be_said_leaves_room() {
    let stage = Stage::new();
    let (client, told_by) = stage.attach();
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
    // The agent is woken by the first and reads it though nothing is asked for.
    assert_eq!(client.tally(told), Ok(true));
    let ClientEvent::Tallied { holder, rank, tally } = stage.event() else { panic!("not told") };
    assert_eq!((holder, rank, tally), (told_by, stage::RANK, told));
    let quiet = Tally { self_read_batches: 0, ..told };
    let window = u64::from(stage::LIMITS.window);
    let said = (0..5 * window).filter(|_| client.tally(quiet) == Ok(true)).count();
    assert_eq!(said as u64, window, "nothing was read meanwhile");
    // However many wait, requests, deliveries and releases have their room.
    for step in 0..stage::LIMITS.window {
        client.request(batch_id(step)).unwrap();
    }
    for _ in 0..window {
        assert!(matches!(stage.event(), ClientEvent::Tallied { .. }));
    }
    assert_eq!(stage.requested().0, told_by);
}

#[test]
fn of_several_requests_as_many_pass_as_the_window_has_room_for() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    let window = stage::LIMITS.window;
    client.request(batch_id(0)).unwrap();
    let sent = client.request_each((1..window + 5).map(batch_id)).unwrap();
    assert_eq!(sent, window as usize - 1);
    for step in 0..window {
        assert_eq!(stage.requested(), (holder, batch_id(step)));
    }
    let more = client.request_each([batch_id(window)]);
    assert_eq!(more, Err(RequestError::TooMany { window }));
}

#[test]
fn an_answer_that_is_there_is_taken_without_waiting_for_one_that_is_not() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    client.request(batch_id(0)).unwrap();
    assert_eq!(stage.requested(), (holder, batch_id(0)));
    assert!(client.try_next().unwrap().is_none());
    stage.lease(holder, 0);
    let taken = std::iter::repeat_with(|| client.try_next().unwrap()).flatten().next();
    assert!(matches!(taken, Some(Reply::Batch(leased)) if leased.id == batch_id(0)));
    assert!(client.try_next().unwrap().is_none());
}

#[test]
fn a_published_order_is_taken_before_the_first_request_for_it() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    let order: Vec<_> = (0..20_000).rev().map(SampleId).collect();
    for epoch in 0..5 {
        std::thread::scope(|scope| {
            let publishing = scope.spawn(|| client.publish(Epoch(epoch), &order, PATIENCE));
            assert_eq!(stage.published(holder), (Epoch(epoch), order.clone()));
            publishing.join().unwrap().unwrap();
        });
        client.request(batch_id(epoch)).unwrap();
        assert_eq!(stage.requested(), (holder, batch_id(epoch)));
    }
}

#[test]
fn an_order_that_is_answered_late_holds_up_the_next_one_only() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    let short = Duration::from_millis(200);
    // The agent hands the file out and then says nothing.
    let late = client.publish(Epoch(0), &[SampleId(1)], short);
    assert!(matches!(late, Err(ControlError::TimedOut)), "{late:?}");
    let ClientEvent::Published { request, .. } = stage.event() else { panic!("not published") };
    let next = client.publish(Epoch(1), &[SampleId(2)], short);
    assert!(matches!(next, Err(ControlError::TimedOut)), "{next:?}");
    stage.assert_quiet();
    stage.server.took_order(holder, request);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| client.publish(Epoch(1), &[SampleId(2)], PATIENCE));
        assert_eq!(stage.published(holder), (Epoch(1), vec![SampleId(2)]));
        publishing.join().unwrap().unwrap();
    });
}

#[test]
fn memory_is_granted_in_chunks_and_freed() {
    let stage = Stage::new();
    let client = MemoryClient::connect(&stage.path, PATIENCE).unwrap();
    let chunks: Vec<_> = (0..70).map(|_| stage::region(Bytes(4096))).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ClientEvent::MemoryRequested { holder, request, bytes } = stage.event() else {
                panic!("no request")
            };
            assert_eq!(bytes, Bytes(70 * 4096));
            let chunks: Vec<_> = chunks.iter().collect();
            let granted = stage.server.grant(holder, request, GrantId(5), &chunks);
            assert_eq!(granted, Ok(Delivery::Sent));
            let again = stage.server.grant(holder, request, GrantId(6), &chunks);
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
    let ClientEvent::MemoryFreed { holder, grant: GrantId(5) } = stage.event() else {
        panic!("not freed")
    };
    drop(client);
    assert_eq!(stage.gone(), holder);
}

#[test]
fn a_denial_says_why() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ClientEvent::MemoryRequested { request, .. } = stage.event() else {
                panic!("no request")
            };
            stage.server.deny(holder, request, "512 MiB are free").unwrap();
        });
        match client.allocate(Bytes::mib(1024), PATIENCE) {
            Err(ControlError::Denied { reason }) => assert_eq!(reason, "512 MiB are free"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_grant_that_comes_too_late_goes_back() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    let late = client.allocate(Bytes(4096), Duration::ZERO);
    assert!(matches!(late, Err(ControlError::TimedOut)), "{late:?}");
    let ClientEvent::MemoryRequested { request, .. } = stage.event() else { panic!("no request") };
    let chunk = stage::region(Bytes(4096));
    let chunks = vec![&chunk; 65];
    stage.server.grant(holder, request, GrantId(8), &chunks).unwrap();
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| client.publish(Epoch(0), &[SampleId(0)], PATIENCE));
        let freed = stage.event();
        assert!(matches!(freed, ClientEvent::MemoryFreed { grant: GrantId(8), .. }), "{freed:?}");
        stage.published(holder);
        publishing.join().unwrap().unwrap();
    });
    drop(client);
    match stage.event() {
        // A second free would be a violation.
        ClientEvent::Gone { holder: gone, cause: Departure::Left } => assert_eq!(gone, holder),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_handed_over_before_the_agent_ended_is_still_delivered() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    for step in 0..3 {
        client.request(batch_id(step)).unwrap();
        stage.requested();
        stage.lease(holder, step);
    }
    stage.arena.write(Bytes(0), b"bytes").unwrap();
    drop(stage);
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
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    client.request(batch_id(0)).unwrap();
    stage.requested();
    drop(client);
    assert_eq!(stage.gone(), holder);
    let (other, other_holder) = stage.attach();
    assert_ne!(holder, other_holder, "names are never used again");
    assert_eq!(
        stage.server.lease(holder, LeaseId(1), Bytes(0), &batch(0, &[1]), |_| None),
        Ok(Delivery::Gone)
    );
    drop(other);
    assert_eq!(stage.gone(), other_holder);
    stage.assert_quiet();
}

#[test]
fn a_client_that_is_closed_hears_why_and_is_reported_gone() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    stage.server.close(holder, "the job was cancelled");
    let ClientEvent::Gone { holder: gone, cause } = stage.event() else { panic!("not gone") };
    assert_eq!((gone, cause.to_string().as_str()), (holder, "the agent closed it"));
    match client.next(PATIENCE) {
        Err(NextError::Disconnected(it)) => assert_eq!(it.reason, "the job was cancelled"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_outside_the_arena_is_never_handed_over() {
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    client.request(batch_id(0)).unwrap();
    stage.requested();
    let batch = batch(0, &[100]);
    for offset in [stage.arena.len(), Bytes(u64::MAX - 4095)] {
        let refused = stage.server.lease(holder, LeaseId(1), offset, &batch, |_| None);
        assert!(matches!(refused, Err(LeaseError::OutsideArena(_))), "{refused:?}");
    }
    stage.lease(holder, 0);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
}

#[test]
fn an_answer_that_nobody_asked_for_is_an_error() {
    let stage = Stage::new();
    let (_client, holder) = stage.attach();
    let refused = stage.server.lease(holder, LeaseId(1), Bytes(0), &batch(0, &[1]), |_| None);
    assert_eq!(refused, Err(LeaseError::NotRequested));
    let refused = stage.server.refuse(holder, batch_id(0), Refusal::NotInOrder);
    assert_eq!(refused, Err(LeaseError::NotRequested));
}

#[test]
fn one_thread_waits_while_others_release() {
    const BATCHES: u32 = 2_000;
    let stage = Stage::new();
    let (client, holder) = stage.attach();
    let (sender, receiver) = std::sync::mpsc::channel::<LeaseId>();
    let receiver = std::sync::Mutex::new(receiver);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut released = 0;
            while released < BATCHES {
                match stage.event() {
                    ClientEvent::Requested { batch, .. } => stage.lease(holder, batch.step.0),
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
                    // Every batch is held; the other threads release some.
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
fn nobody_listens_and_the_client_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    let hello = Hello::of_rank(stage::RANK, Role::Trainer);
    let refused = Client::connect(&path, &hello, PATIENCE);
    assert!(matches!(refused, Err(ConnectError::NoAgent { .. })), "{refused:?}");
}

#[test]
fn a_client_that_is_never_let_in_waits_no_longer_than_its_limit() {
    let stage = Stage::new();
    let hello = Hello::of_rank(stage::RANK, Role::Trainer);
    let refused = Client::connect(&stage.path, &hello, Duration::from_millis(1));
    assert!(matches!(refused, Err(ConnectError::TimedOut)), "{refused:?}");
    let ClientEvent::Attached { holder, .. } = stage.event() else { panic!("not attached") };
    assert_eq!(stage.gone(), holder);
    let late = stage.server.admit(holder, &stage.briefing, std::sync::Arc::clone(&stage.arena));
    assert_eq!(late.unwrap(), Delivery::Gone);
}
