//! What the session tells of a run: leads, causes of waiting, what was wasted and what was written.

use super::*;

#[test]
fn a_batch_that_was_ready_has_a_lead_and_one_that_was_read_late_a_cause() {
    let mut world = staged_ahead(policy::Kind::None, 40);
    let opened = world.session.staging.get(Rank(0)).unwrap().opened_at();
    assert!(world.ask(0));
    world.drain();
    let (connection, lease) = (world.trainers[0].connection, world.trainers[0].leases[0].0);
    let ready = world
        .session
        .staging
        .get(Rank(0))
        .unwrap()
        .staged()
        .values()
        .next()
        .unwrap()
        .timeline
        .ready();
    world.now.0 += 500_000;
    let waited = Nanoseconds(world.now.0 + 1000);
    world.tell(Event::Delivered { connection, lease, wait: Wait::ending(waited, waited) });
    let taken = world.session.progress().taken.clone().unwrap();
    assert_eq!((taken.ready, taken.at, taken.waited), (ready, waited, waited));
    assert_eq!(taken.lead(), Nanoseconds(0));
    // The trainer waits from the very beginning: for the arena, then for the reads, then for nothing
    // that the agent could do.
    assert_eq!(taken.causes.start, opened);
    assert_eq!(taken.causes.cold, Nanoseconds(ready.0 - opened.0));
    assert_eq!(taken.causes.total(), waited);
    assert_eq!(world.session.progress().first_stall, waited);
    assert_eq!(world.session.progress().epochs[0].late, 1);
    world.now.0 += 7000;
    world.tell(Event::Released { connection, lease });
    assert_eq!(world.session.progress().holds.sum(), Nanoseconds(8000));

    assert!(world.ask(0));
    world.drain();
    let (lease, _) = world.trainers[0].leases[1];
    world.now.0 += 90_000;
    let until = Nanoseconds(world.now.0 + 1000);
    world.tell(Event::Delivered {
        connection,
        lease,
        wait: Wait::ending(until, Nanoseconds(2000)),
    });
    let taken = world.session.progress().taken.clone().unwrap();
    assert_eq!(taken.lead().0, world.now.0 - 2000 - taken.ready.0);
    assert_eq!(taken.causes.hand_off, Nanoseconds(2000));
    assert_eq!(world.session.progress().first_stall, waited, "the second is not the first");
    assert_eq!(world.session.progress().epochs[0].late, 1);
}

#[test]
fn only_what_is_behind_a_batch_that_was_not_ready_waits_for_its_turn() {
    let mut world = Play::new(&settings(policy::Kind::None, 400, 1, OnError::Fail));
    world.end_one(0, 0);
    while world.plane.running.len() > 1 {
        world.end_one(1, 0);
    }
    assert!(world.ask(0) && world.ask(0));
    let wanted = world.now;
    let connection = world.trainers[0].connection;
    assert!(world.trainers[0].leases.is_empty(), "a read of the first is held up");
    world.now.0 += 1_000_000;
    world.end_one(0, 0);
    let ready = world
        .session
        .staging
        .get(Rank(0))
        .unwrap()
        .staged()
        .values()
        .next()
        .unwrap()
        .timeline
        .ready();
    world.now.0 += 5000;
    let until = world.now;
    let take = |world: &mut Play, since, until| {
        let (lease, _) = world.trainers[0].leases.pop_front().unwrap();
        let wait = Wait { since, until };
        world.tell(Event::Delivered { connection, lease, wait });
        world.session.progress().taken.clone().unwrap().causes
    };
    let of_first = take(&mut world, wanted, until);
    let of_second = take(&mut world, wanted, until);
    let (late, after) = (Nanoseconds(ready.0 - wanted.0), Nanoseconds(until.0 - ready.0));
    assert_eq!((of_first.cold, of_first.turn, of_first.hand_off), (late, Nanoseconds(0), after));
    assert_eq!((of_second.cold, of_second.turn, of_second.hand_off), (Nanoseconds(0), late, after));

    // The agent looks 3 ms late at a request for what is there.
    world.drain();
    let wanted = world.now;
    world.now.0 += 3_000_000;
    assert!(world.ask(0));
    let causes = take(&mut world, wanted, Nanoseconds(wanted.0 + 3_000_000));
    assert_eq!((causes.turn, causes.hand_off), (Nanoseconds(0), Nanoseconds(3_000_000)));
}

#[test]
fn a_batch_is_ready_from_its_last_sample_until_a_trainer_takes_it() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let ready = |world: &Play| world.session.ready().map(|(_, count)| count).collect::<Vec<_>>();
    assert_eq!(ready(&world), [0, 0], "staged, and nothing read yet");
    world.drain();
    assert_eq!(ready(&world), [3, 3]);
    assert!(world.ask(0));
    assert_eq!(ready(&world), [3, 3], "handed over, and still in the ring");
    let (connection, lease) = (world.trainers[0].connection, world.trainers[0].leases[0].0);
    world.tell(Event::Delivered {
        connection,
        lease,
        wait: Wait::ending(world.now, Nanoseconds(0)),
    });
    assert_eq!(ready(&world), [2, 3]);
}

#[test]
fn what_is_read_for_a_batch_that_is_skipped_is_wasted() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    world.drain();
    let staged = &world.session.staging.get(Rank(0)).unwrap().staged();
    let read: u64 = staged.values().map(|staged| staged.batch.payload().0).sum();
    let (connection, batch) =
        (world.trainers[0].connection, BatchId { epoch: Epoch(1), step: Step(3), rank: Rank(0) });
    assert_eq!(world.session.wasted(), Bytes(0));
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    assert_eq!(world.session.wasted(), Bytes(read));
}

#[test]
fn what_an_epoch_writes_is_what_arrives_in_the_tiers() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 50, 1, OnError::Fail));
    world.play(&[1], 0);
    let epochs = &world.session.progress().epochs;
    let all: u64 = epochs.iter().flat_map(|epoch| &epoch.written).map(|bytes| bytes.0).sum();
    assert!(epochs[0].written[0].0 > 0, "the first epoch fills the tiers");
    assert_eq!(all, world.plane.demoted, "whole grains, each copy once");
}

#[test]
fn passes_beyond_the_epochs_of_the_job_are_counted_together_behind_those_of_the_job() {
    let mut world = Play::new(&settings(policy::Kind::None, 8, 1, OnError::Fail));
    world.drain();
    let (connection, rank) = (world.trainers[0].connection, Rank(0));
    for epoch in [2, 3, 4, u32::MAX] {
        let tally = Tally {
            self_read_batches: 2,
            self_read_samples: 8,
            self_read_bytes: Bytes(100),
            self_read: Nanoseconds(7),
            ..Tally::empty(Epoch(epoch))
        };
        world.tell(Event::Tallied { connection, rank, tally });
    }
    let progress = world.session.progress();
    let read: Vec<_> = progress.epochs.iter().map(|it| (it.self_read_batches, it.stall)).collect();
    let (none, last, beyond) = ((0, Nanoseconds(0)), (2, Nanoseconds(7)), (6, Nanoseconds(21)));
    assert_eq!(read, [none, none, last, beyond]);
    assert_eq!((progress.epochs_of_job().count(), progress.beyond_batches()), (3, 6));
    assert_eq!(progress.epochs[3].self_read, Bytes(300));
}

/// A job whose trainer took three batches and then waits for two that are refused in the end for this fault
/// of a sample. Returns the time of the wait.
fn refused_for(fault: Fault, on_error: OnError) -> (Play, Nanoseconds) {
    let mut world = Play::new(&settings(policy::Kind::None, 40, 1, on_error));
    world.cold_fault = fault;
    world.drain();
    for _ in 0..3 {
        while world.ask(0) {}
        assert!(world.take(0));
    }
    let taken = world.session.progress().taken.as_ref().unwrap().at;
    world.now.0 += 15_000_000_000;
    while world.trainers[0].refused.is_empty() {
        world.end_one(0, 100);
    }
    let waited = Nanoseconds(world.now.0 - taken.0);
    (world, waited)
}

#[test]
fn refusals_that_end_a_training_are_no_served_batches_and_were_waited_for_once() {
    let (world, waited) = refused_for(Fault::Io, SKIP_ALL);
    let epoch = &world.session.progress().epochs[0];
    assert_eq!((epoch.batches, epoch.refused_batches()), (3, 2), "both that were asked for");
    assert_eq!((epoch.causes.unanswered, epoch.causes.total()), (waited, epoch.stall));
    assert_eq!(world.session.progress().waits.max(), waited);
    assert!(waited.0 > 15_000_000_000);
}

#[test]
fn a_refusal_for_what_a_sample_is_was_no_wait_for_its_store() {
    let (world, _) = refused_for(Fault::Vanished, OnError::Fail);
    let epoch = &world.session.progress().epochs[0];
    assert_eq!((epoch.batches, epoch.refused_batches()), (3, 2));
    assert_eq!(epoch.causes.unanswered, Nanoseconds(0));
}

#[test]
fn a_refused_batch_that_a_trainer_reads_itself_counts_once_and_so_does_the_wait_for_its_answer() {
    let (mut world, waited) = refused_for(Fault::Io, OnError::Fail);
    let tally = Tally {
        self_read_batches: 1,
        unanswered: Nanoseconds(waited.0 + 5),
        self_read: Nanoseconds(40),
        ..Tally::empty(Epoch(0))
    };
    let connection = world.trainers[0].connection;
    world.tell(Event::Tallied { connection, rank: Rank(0), tally });
    let epoch = &world.session.progress().epochs[0];
    assert_eq!((epoch.self_read_batches, epoch.refused_batches()), (1, 1));
    assert_eq!(epoch.causes.unanswered.0, waited.0 + 5);
    assert_eq!((epoch.causes.total(), epoch.causes.self_read), (epoch.stall, Nanoseconds(40)));
}
