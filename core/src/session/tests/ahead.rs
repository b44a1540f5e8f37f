//! What is staged ahead follows the order, also one that is published late, changes, or is jumped in.

use super::*;

#[test]
fn an_unpublished_epoch_is_refused_and_a_published_one_is_served() {
    let mut settings = settings(policy::Kind::Gap, 8, 1, OnError::Fail);
    settings.order.shuffle = Shuffle::Published;
    let mut world = Play::new(&settings);
    let connection = world.trainers[0].connection;
    let batch = world.expected(0)[0];
    world.drain();
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    assert_eq!(world.trainers[0].refused, [(batch, Refusal::NotPublished)]);
    let samples = Arc::new([7, 3, 1, 0, 2].map(SampleId).to_vec());
    world.tell(Event::Published { rank: Rank(0), epoch: Epoch(0), samples });
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    world.drain();
    assert_eq!(world.trainers[0].leases.len(), 1);
}

#[test]
fn batches_that_are_not_taken_do_not_end_the_look_ahead() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 50, 1, OnError::Fail));
    let connection = world.trainers[0].connection;
    world.drain();
    // As a loader with `drop_last` does: the last batch of each epoch is never asked for.
    let taken = world.expected(0).into_iter().filter(|batch| batch.step.0 != 12);
    for batch in taken {
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { connection, batch });
        world.drain();
        assert!(world.take(0), "{batch:?}");
    }
    let last = BatchId { epoch: Epoch(2), step: Step(12), rank: Rank(0) };
    let staged: Vec<_> =
        world.session.staging.get(Rank(0)).unwrap().staged().keys().copied().collect();
    assert_eq!(staged, [last], "staged ahead to the end, and nothing is left from before");
}

#[test]
fn a_jump_back_takes_the_look_ahead_along() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 400, 1, OnError::Fail));
    let connection = world.trainers[0].connection;
    world.drain();
    for (epoch, step) in [(2, 99), (0, 3)] {
        let batch = BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(0) };
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { connection, batch });
        world.drain();
        assert!(world.take(0));
    }
    world.drain();
    let staged: Vec<u32> = world
        .session
        .staging
        .get(Rank(0))
        .unwrap()
        .staged()
        .keys()
        .map(|batch| batch.step.0)
        .collect();
    assert_eq!(staged, [4, 5, 6]);
}

#[test]
fn an_order_that_changes_is_never_mixed_with_the_old_one() {
    republish(true);
}

#[test]
fn nor_when_the_old_one_is_still_on_its_way() {
    republish(false);
}

fn republish(is_staged_before: bool) {
    let mut settings = settings(policy::Kind::Gap, 8, 1, OnError::Fail);
    settings.order.shuffle = Shuffle::Published;
    let mut world = Play::new(&settings);
    world.drain();
    let connection = world.trainers[0].connection;
    let batch = world.expected(0)[0];
    let publish = |first: u32| Event::Published {
        rank: Rank(0),
        epoch: Epoch(0),
        samples: Arc::new([first, 1, 2].map(SampleId).to_vec()),
    };
    world.tell(publish(0));
    if is_staged_before {
        world.drain();
    }
    world.tell(publish(7));
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    world.drain();
    let staged = &world.session.staging.get(Rank(0)).unwrap().staged()[&batch];
    assert_eq!(staged.batch.entries[0].sample, SampleId(7));
    let past_the_end = BatchId { step: Step(1), ..batch };
    world.trainers[0].asked.insert(past_the_end);
    world.tell(Event::Requested { connection, batch: past_the_end });
    assert_eq!(world.trainers[0].refused, [(past_the_end, Refusal::NotInOrder)]);
}

#[test]
fn nothing_is_staged_deeper_than_the_settings_say() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let first = |rank| BatchId { epoch: Epoch(0), step: Step(0), rank: Rank(rank) };
    let last = |rank| BatchId { step: Step(2), ..first(rank) };
    world.drain();
    for rank in 0..2 {
        let staged: Vec<_> =
            world.session.staging.get(Rank(rank)).unwrap().staged().keys().copied().collect();
        assert_eq!((staged.len(), staged[0], staged[2]), (3, first(rank), last(rank)));
    }
}
