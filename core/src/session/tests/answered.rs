//! Batches are given in order to the connections that ask for them, or refused with a reason.

use super::*;

proptest! {
    #[test]
    fn every_rank_gets_every_batch_in_order_whatever_ends_first(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        samples in 1_u32..60,
        ranks in 1_u32..4,
        look_ahead in any_look_ahead(),
    ) {
        let settings = Settings { look_ahead, ..settings(policy, samples, ranks, OnError::Fail) };
        let mut world = Play::new(&settings);
        world.play(&picks, 0);
        for rank in 0..ranks {
            prop_assert_eq!(&world.trainers[rank as usize].got, &world.expected(rank));
        }
        prop_assert_eq!(world.session.in_flight(), 0);
        let again = {
            let mut world = Play::new(&settings);
            world.play(&picks, 0);
            world.session.progress().epochs.clone()
        };
        prop_assert_eq!(&again, &world.session.progress().epochs, "invariant 4");
    }

    #[test]
    fn a_trainer_that_dies_leaves_nothing_staged_and_the_next_one_goes_on(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        dies_after in 0_usize..80,
        slice in 0_u32..5,
    ) {
        let settings = settings(policy, 50, 1, OnError::Fail);
        let mut world = Play::new(&settings);
        world.session.slice = NonZeroU32::new(slice);
        for pick in picks.iter().cycle().take(dies_after) {
            world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        }
        let dead = core::mem::replace(&mut world.trainers[0], Trainer::new(0));
        world.trainers[0].connection = ConnectionId(99);
        world.tell(Event::Gone { connection: dead.connection });
        world.drain();
        let staging = &world.session.staging.get(Rank(0)).unwrap();
        prop_assert!(!staging.has_wanted());
        // Who never came in leaves what was staged before anyone came.
        let expected = if dead.is_admitted { Arena::Closed } else { Arena::Open };
        prop_assert_eq!(staging.arena(), expected);
        prop_assert!(staging.staged().is_empty() || !dead.is_admitted);

        world.trainers[0].next = dead.got.last().map_or(
            world.trainers[0].next, |last| settings.order.after(*last),
        );
        world.tell(Event::Attached { connection: ConnectionId(99), rank: Rank(0) });
        world.play(&picks, 0);
        let mut got = dead.got.clone();
        got.extend(&world.trainers[0].got);
        prop_assert_eq!(got, world.expected(0));
    }

    #[test]
    fn a_trainer_that_dies_when_all_that_ran_has_ended_leaves_no_arena(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        dies_after in 0_usize..80,
        slice in 0_u32..5,
    ) {
        let mut world = Play::new(&settings(policy, 50, 1, OnError::Fail));
        world.session.slice = NonZeroU32::new(slice);
        for pick in picks.iter().cycle().take(dies_after) {
            world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        }
        prop_assume!(world.trainers[0].is_admitted);
        // All in one turn of the loop: what follows from the ends is not given out yet.
        for (op, operation) in core::mem::take(&mut world.plane.running) {
            let outcome = Ok(());
            world.plane.end(&operation, outcome);
            world.session.handle(Event::Completed { op, outcome }, world.now);
        }
        let connection = world.trainers[0].connection;
        world.tell(Event::Gone { connection });
        world.drain();
        prop_assert_eq!(world.session.staging.get(Rank(0)).unwrap().arena(), Arena::Closed);
    }

    #[test]
    fn every_request_is_answered_whoever_asks_for_what_and_keeps_what(
        acts in prop::collection::vec((0_usize..3, 0_u32..6, 0_u32..3, 0_u32..7), 1..120),
        policy in any_policy(),
        faults in 0_usize..20,
        slice in 0_u32..4,
    ) {
        let mut world = Play::new(&settings(policy, 50, 1, OnError::Fail));
        world.session.slice = NonZeroU32::new(slice);
        world.trainers = (0..3).map(|_| Trainer::new(0)).collect();
        for (i, trainer) in world.trainers.iter_mut().enumerate() {
            trainer.connection = ConnectionId(50 + i as u64);
        }
        world.tell(Event::Gone { connection: ConnectionId(10) });
        for i in 0..3 {
            let (connection, rank) = (world.trainers[i].connection, Rank(0));
            world.tell(Event::Attached { connection, rank });
        }
        world.drain();
        for (who, act, epoch, step) in acts {
            let connection = world.trainers[who].connection;
            match act {
                0 | 1 => {
                    let batch = BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(0) };
                    if world.trainers[who].asked.insert(batch) {
                        world.tell(Event::Requested { connection, batch });
                    }
                }
                2 => {
                    world.take(who);
                }
                3 => {
                    world.stage_more();
                }
                4 => world.tell(Event::StagingLimited { batches: 1 + epoch }),
                _ => {
                    if !world.plane.running.is_empty() {
                        world.end_one((epoch * 7 + step) as usize, faults);
                    }
                }
            }
        }
        world.drain();
        // Some give back what they have, some keep it: no connection may wait for ever.
        while world.take(0) || world.take(1) {
            world.drain();
        }
        while let Some((lease, _)) = world.trainers[2].leases.pop_front() {
            let connection = world.trainers[2].connection;
            world.tell(Event::Delivered { connection, lease, wait: Wait::ending(world.now, Nanoseconds(0)) });
            world.drain();
            while world.take(0) || world.take(1) {
                world.drain();
            }
        }
        for trainer in &world.trainers {
            prop_assert!(trainer.asked.is_empty(), "{:?} waits for {:?}", trainer.connection, trainer.asked);
        }
    }
}

#[test]
fn a_rank_that_never_comes_holds_up_no_other() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 50, 2, OnError::Fail));
    world.trainers[1].next = None;
    world.play(&[1], 0);
    assert_eq!(world.trainers[0].got, world.expected(0));
    assert_eq!(
        world.session.staging.get(Rank(1)).unwrap().staged().len(),
        3,
        "rank 1 waits, staged ahead"
    );
}

#[test]
fn a_trainer_that_keeps_every_batch_is_refused_not_blocked() {
    let mut world = Play::new(&settings(policy::Kind::None, 50, 1, OnError::Fail));
    let connection = world.trainers[0].connection;
    world.drain();
    for batch in world.expected(0) {
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { connection, batch });
        world.drain();
        while let Some((lease, _)) = world.trainers[0].leases.pop_front() {
            world.tell(Event::Delivered {
                connection,
                lease,
                wait: Wait::ending(world.now, Nanoseconds(0)),
            });
        }
    }
    let refused = &world.trainers[0].refused;
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|(_, reason)| *reason == Refusal::NoRoom), "{refused:?}");
    assert!(world.trainers[0].asked.is_empty());
}

#[test]
fn a_batch_larger_than_the_arena_is_refused_with_both_sizes() {
    let mut settings = settings(policy::Kind::Gap, 8, 1, OnError::Fail);
    settings.sizes = (0..8).map(|_| Bytes(5000)).collect();
    let mut world = Play::new(&settings);
    let connection = world.trainers[0].connection;
    let batch = world.expected(0)[0];
    world.drain();
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    let reason = Refusal::TooLarge { needed: Bytes(20480), arena: Bytes(16384) };
    assert_eq!(world.trainers[0].refused, [(batch, reason)]);
}

#[test]
fn a_batch_that_waits_for_what_is_on_its_way_gets_its_room_in_the_end() {
    let mut settings = settings(policy::Kind::None, 50, 1, OnError::Fail);
    settings.arena = Bytes(4096);
    let mut world = Play::new(&settings);
    let connection = world.trainers[0].connection;
    let at = |epoch| BatchId { epoch: Epoch(epoch), step: Step(0), rank: Rank(0) };
    world.drain();
    for epoch in [1, 0] {
        world.trainers[0].asked.insert(at(epoch));
        world.tell(Event::Requested { connection, batch: at(epoch) });
        if epoch == 1 {
            world.drain();
            assert!(world.take(0));
        }
    }
    assert!(!world.plane.running.is_empty(), "the batch after the first is on its way");
    world.drain();
    assert!(world.take(0), "{:?}", world.trainers[0].refused);
}

#[test]
fn a_trainer_that_dies_before_its_arena_is_there_leaves_none() {
    let mut world = Play::new(&settings(policy::Kind::Gap, 50, 1, OnError::Fail));
    world.drain();
    let connection = world.trainers[0].connection;
    assert!(world.trainers[0].is_admitted);
    world.tell(Event::Gone { connection });
    world.drain();
    assert_eq!(world.session.staging.get(Rank(0)).unwrap().arena(), Arena::Closed);
    let connection = ConnectionId(99);
    world.session.handle(Event::Attached { connection, rank: Rank(0) }, world.now);
    world.session.handle(Event::Gone { connection }, world.now);
    world.go_on();
    world.drain();
    assert_eq!(world.session.staging.get(Rank(0)).unwrap().arena(), Arena::Closed);
    assert_eq!(world.session.in_flight(), 0);
}
