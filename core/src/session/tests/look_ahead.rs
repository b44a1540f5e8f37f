//! Fetching ahead of staging: the same bytes are read, only earlier.

use super::*;

fn settings_with(policy: policy::Kind, samples: u32, look_ahead: LookAhead) -> Settings {
    Settings { look_ahead, ..settings(policy, samples, 2, OnError::Fail) }
}

fn take_until(world: &mut Play, last: BatchId) {
    world.drain();
    loop {
        assert!(world.ask(0));
        world.drain();
        assert!(world.take(0));
        world.drain();
        if world.trainers[0].got.last() == Some(&last) {
            return;
        }
    }
}

fn cold_bytes(world: &Play) -> u64 {
    world.session.progress().epochs.iter().map(|epoch| epoch.cold.0).sum()
}

/// Fetches of the world: into staging, and into tiers.
fn fetches(world: &Play) -> (u64, u64) {
    let cold = world.moves.iter().filter(|((_, from, _), _)| from.is_none());
    let into = |tier: bool| {
        let of_kind = cold.clone().filter(move |((_, _, to), _)| to.is_some() == tier);
        of_kind.map(|(_, count)| count).sum()
    };
    (into(false), into(true))
}

proptest! {
    #[test]
    fn hardly_more_is_read_from_the_cold_store_only_earlier(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        samples in 20_u32..120,
        policy in any_policy(),
    ) {
        // With several ranks, which of them is staged first follows from time.
        let play = |look_ahead| {
            let settings = settings(policy, samples, 1, OnError::Fail);
            let sizes = (0..samples).map(|_| Bytes(256)).collect();
            let mut world = Play::new(&Settings { sizes, look_ahead, ..settings });
            world.play(&picks, 0);
            world
        };
        let (without, with) = (play(LookAhead::Off), play(LookAhead::Room(Bytes(0))));
        let in_vain = with.session.progress().in_vain.0;
        let (with_bytes, without) = (cold_bytes(&with) - in_vain, cold_bytes(&without));
        let most = without + without / 16 + 512;
        prop_assert!(with_bytes <= most, "invariant 1: {with_bytes} bytes beside {without}");
        prop_assert_eq!(with.session.planner.cache().ahead_count(), 0, "something waits at the end");
    }

    #[test]
    fn nothing_waits_for_batches_that_were_passed(
        picks in prop::collection::vec(any::<usize>(), 1..200),
        samples in 20_u32..120,
        policy in any_policy(),
        look_ahead in any_look_ahead(),
    ) {
        let mut world = Play::new(&settings_with(policy, samples, look_ahead));
        for (at, pick) in picks.into_iter().enumerate() {
            world.step(pick ^ at, 10);
            for (rank, cursor) in world.session.staging.cursors() {
                let first = world.session.planner.cache().first_ahead(rank);
                let Some((sample, batch)) = first else { continue };
                let is_to_come = cursor.is_some_and(|cursor| cursor <= batch);
                prop_assert!(
                    is_to_come || world.session.has_more(),
                    "invariant 2: {sample:?} waits for {batch:?}, and staging is at {cursor:?}"
                );
            }
        }
    }
}

#[test]
fn tiers_are_filled_while_the_trainer_is_idle_and_the_batches_come_from_there() {
    let mut world = Play::new(&settings_with(policy::Kind::None, 100, LookAhead::Auto));
    world.drain();
    let (_, ahead) = fetches(&world);
    assert!(ahead > 0, "the policy keeps nothing, and all tiers are free");
    let staged = world.session.staging.cursors().next().unwrap().1.unwrap();
    take_until(&mut world, staged);
    let promoted = world.moves.keys().filter(|(_, from, to)| from.is_some() && to.is_none());
    assert!(promoted.count() > 0);
}

#[test]
fn only_what_keeps_the_cold_store_busy_waits_for_it_and_it_reads_until_the_tiers_are_full() {
    let sizes = (0..800).map(|_| Bytes(64)).collect();
    let look_ahead = LookAhead::Room(Bytes(0));
    let settings = settings(policy::Kind::None, 800, 1, OnError::Fail);
    let order = Spec { batch_size: 16, ..settings.order };
    let mut world = Play::new(&Settings { order, sizes, look_ahead, ..settings });
    world.drain();
    // All chunks are there, and all samples in them are given up.
    let batch = BatchId { epoch: Epoch(0), step: Step(25), rank: Rank(0) };
    let connection = world.trainers[0].connection;
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    let full = 6 * 1024 / 64;
    let mut ended = 0;
    while !world.plane.running.is_empty() {
        let is_cold = |(_, operation): &&_| channel_of(operation) == Some(Channel::Cold);
        ended += world.plane.running.first().filter(is_cold).iter().len();
        world.end_one(0, 0);
        let running = world.plane.running.iter().filter(is_cold).count();
        let scheduler = world.session.operations.scheduler();
        let waiting = scheduler.requests(Channel::Cold).sum::<u64>() - running as u64;
        let staged = (3 * 16_u64).saturating_sub(ended as u64);
        assert!(waiting <= staged.max(2 * 3), "{waiting} wait after {ended}");
        assert!(waiting > 0 || running == 3 || ended + 3 > full, "idle after {ended}");
    }
    assert_eq!(world.session.planner.cache().ahead_count(), full);
}

#[test]
fn what_a_jump_leaves_behind_is_counted_as_read_in_vain() {
    let mut world = Play::new(&settings_with(policy::Kind::None, 400, LookAhead::Auto));
    world.drain();
    let (_, ahead) = fetches(&world);
    assert!(ahead > 0);
    let (connection, rank) = (world.trainers[0].connection, Rank(0));
    let batch = BatchId { epoch: Epoch(2), step: Step(10), rank };
    world.trainers[0].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    world.drain();
    let progress = world.session.progress();
    assert!(progress.in_vain.0 > 0);
    assert!(progress.in_vain.0 < cold_bytes(&world));
}

#[test]
fn what_was_fetched_for_an_order_that_changes_is_counted_as_read_in_vain() {
    let mut settings = settings_with(policy::Kind::None, 100, LookAhead::Auto);
    settings.order.shuffle = Shuffle::Published;
    let mut world = Play::new(&settings);
    for rank in [0, 1] {
        let samples = Arc::new((rank * 50..rank * 50 + 50).map(SampleId).collect());
        world.tell(Event::Published { rank: Rank(rank), epoch: Epoch(0), samples });
    }
    world.drain();
    assert!(fetches(&world).1 > 0);
    assert_eq!(world.session.progress().in_vain, Bytes(0));
    let samples = Arc::new((0..50).rev().map(SampleId).collect());
    world.tell(Event::Published { rank: Rank(0), epoch: Epoch(0), samples });
    world.drain();
    assert!(world.session.progress().in_vain.0 > 0);
}

#[test]
fn a_fetch_that_was_not_given_out_is_dropped_when_its_batch_is_staged() {
    let mut settings = settings_with(policy::Kind::None, 100, LookAhead::Auto);
    settings.windows = windows(1, 1);
    let mut world = Play::new(&settings);
    let spec = settings.order;
    // With one read at a time, no fetch ends before its batch is staged; each sample is read once.
    while let Some(at) = world.trainers.iter().position(|trainer| trainer.next.is_some()) {
        world.ask(at);
        world.take(at);
        if !world.plane.running.is_empty() {
            world.end_one(0, 0);
        }
    }
    world.drain();
    assert_eq!(spec.samples, 100);
    assert_eq!(world.session.progress().in_vain, Bytes(0));
    for (moved, count) in &world.moves {
        let is_cold = moved.1.is_none();
        assert!(!is_cold || *count <= 3, "{moved:?} {count} times in 3 epochs");
    }
}

#[test]
fn what_loses_its_room_to_what_stays_is_counted_as_read_in_vain_and_no_other_byte_more_is_read() {
    let play = |look_ahead| {
        let settings = settings(policy::Kind::Fifo, 100, 1, OnError::Fail);
        let sizes = (0..100).map(|sample| Bytes(64 * (1 + sample * sample % 13))).collect();
        let mut world = Play::new(&Settings { sizes, look_ahead, ..settings });
        world.drain();
        while world.trainers[0].next.is_some() {
            world.ask(0);
            world.drain();
            world.take(0);
            world.drain();
        }
        world
    };
    let (without, with) = (play(LookAhead::Off), play(LookAhead::Room(Bytes(0))));
    let in_vain = with.session.progress().in_vain.0;
    assert!(in_vain > 0, "all tiers were full of what waited");
    assert_eq!(cold_bytes(&with) - in_vain, cold_bytes(&without));
}

#[test]
fn no_more_room_is_kept_free_than_as_many_samples_take_as_may_wait() {
    let look_ahead = LookAhead::Room(Bytes(1 << 40));
    let world = Play::new(&settings_with(policy::Kind::Fifo, 100, look_ahead));
    let rooms = &world.session.progress().look_ahead_room;
    let [room] = rooms.values().map(|room| room.0).collect::<Vec<_>>()[..] else {
        panic!("{rooms:?}")
    };
    let mean = room >> 16;
    assert_eq!(room, mean << 16, "65,536 samples");
    assert!(mean.is_multiple_of(64) && mean > 0, "{mean}");
}
