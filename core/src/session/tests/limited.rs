//! Staging under a limit: what is dropped, what memory goes and comes, and that no batch is lost.

use super::*;

/// Six batches ahead in an arena of eight pages; every batch takes one.
fn deep(policy: policy::Kind, ranks: u32) -> Settings {
    Settings { staged_batches: 6, arena: Bytes(8 * 4096), ..settings(policy, 60, ranks, SKIP_ALL) }
}

fn limit(world: &mut Play, batches: u32) {
    world.tell(Event::StagingLimited { batches });
    world.drain();
}

fn trimmed(world: &Play) -> usize {
    world.plane.trimmed.len()
}

proptest! {
    #[test]
    fn limits_that_come_and_go_lose_no_batch(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        limits in prop::collection::vec(0_u32..8, 1..12),
        faults in 0_usize..30,
        look_ahead in any_look_ahead(),
    ) {
        let mut world = Play::new(&Settings { look_ahead, ..deep(policy, 2) });
        for batches in limits {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            world.tell(Event::StagingLimited { batches });
        }
        world.play(&picks, faults);
        for rank in 0..2 {
            world.assert_answered(rank);
        }
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn who_keeps_what_it_has_gets_an_answer_under_a_limit_too(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        kept in 1_usize..9,
    ) {
        let mut world = Play::new(&deep(policy::Kind::Gap, 1));
        limit(&mut world, 2);
        let connection = world.trainers[0].connection;
        let mut leases = VecDeque::new();
        for batch in world.expected(0) {
            world.trainers[0].asked.insert(batch);
            world.tell(Event::Requested { connection, batch });
            while !world.plane.running.is_empty() {
                world.end_one(picks[leases.len() % picks.len()], 0);
            }
            prop_assert!(world.trainers[0].asked.is_empty(), "{:?} waits", batch);
            for (lease, _) in core::mem::take(&mut world.trainers[0].leases) {
                world.tell(Event::Delivered { connection, lease, wait: Wait::ending(world.now, Nanoseconds(0)) });
                leases.push_back(lease);
            }
            for lease in leases.drain(..leases.len().saturating_sub(kept)) {
                world.tell(Event::Released { connection, lease });
            }
        }
        // Eight pages hold what is kept and one more.
        let refused = &world.trainers[0].refused;
        prop_assert!(kept == 8 || refused.is_empty(), "{:?}", refused);
    }
}

#[test]
fn a_limit_drops_unclaimed_batches_and_gives_the_end_of_the_arena_back() {
    let mut world = Play::new(&deep(policy::Kind::None, 1));
    world.trainers[0].next = None;
    world.drain();
    assert_eq!(world.session.staging.get(Rank(0)).unwrap().staged().len(), 6);
    limit(&mut world, 3);
    let staged = |world: &Play| {
        world.session.staging.get(Rank(0)).unwrap().staged().keys().copied().collect()
    };
    let ahead: Vec<BatchId> = staged(&world);
    assert_eq!(ahead, world.expected(0)[..3], "what is needed last goes first");
    assert_eq!(trimmed(&world), 4, "half of the arena is given back");
    limit(&mut world, 0);
    assert_eq!(staged(&world).len(), 2, "never fewer than two");
    assert_eq!(trimmed(&world), 5);
    limit(&mut world, 6);
    assert_eq!((staged(&world).len(), trimmed(&world)), (6, 0));
    assert_eq!(staged(&world), world.expected(0)[..6]);
}

#[test]
fn what_a_trainer_holds_is_not_touched_and_leaves_later() {
    let mut world = Play::new(&deep(policy::Kind::None, 1));
    let connection = world.trainers[0].connection;
    world.drain();
    for batch in &world.expected(0)[..6] {
        world.trainers[0].asked.insert(*batch);
        world.tell(Event::Requested { connection, batch: *batch });
    }
    world.drain();
    assert_eq!(world.trainers[0].leases.len(), 6);
    limit(&mut world, 2);
    assert_eq!(trimmed(&world), 2, "what was free already");
    while let Some((lease, _)) = world.trainers[0].leases.pop_front() {
        world.tell(Event::Delivered {
            connection,
            lease,
            wait: Wait::ending(world.now, Nanoseconds(0)),
        });
        world.tell(Event::Released { connection, lease });
        world.drain();
    }
    assert_eq!(trimmed(&world), 5);
    assert_eq!(world.session.staging.get(Rank(0)).unwrap().staged().len(), 2);
}

#[test]
fn a_batch_that_finds_no_room_gets_the_arena_back() {
    let mut settings = deep(policy::Kind::None, 1);
    // The last of four samples is 20000 bytes long, in every second batch.
    settings.sizes = (0..60).map(|i| Bytes(if i % 8 == 7 { 20_000 } else { 100 })).collect();
    settings.order.shuffle = Shuffle::Sequential;
    let mut world = Play::new(&settings);
    let connection = world.trainers[0].connection;
    limit(&mut world, 2);
    let batches = world.expected(0);
    for batch in &batches[..2] {
        world.trainers[0].asked.insert(*batch);
        world.tell(Event::Requested { connection, batch: *batch });
        world.drain();
    }
    assert_eq!(world.trainers[0].leases.len(), 2);
    assert_eq!(world.trainers[0].refused, []);
}

#[test]
fn a_pinned_arena_keeps_its_memory_until_the_last_connection_is_gone() {
    let mut world = Play::new(&deep(policy::Kind::None, 1));
    world.trainers[0].next = None;
    world.drain();
    limit(&mut world, 3);
    assert_eq!(trimmed(&world), 4);
    world.tell(Event::ArenaPinned { rank: Rank(0) });
    world.drain();
    assert_eq!(trimmed(&world), 0, "what was given back is taken again");
    limit(&mut world, 0);
    assert_eq!(trimmed(&world), 0);
    assert_eq!(world.session.staging.get(Rank(0)).unwrap().staged().len(), 2, "the limit holds");
    world.tell(Event::Gone { connection: world.trainers[0].connection });
    world.drain();
    let connection = ConnectionId(99);
    world.trainers[0].connection = connection;
    world.tell(Event::Attached { connection, rank: Rank(0) });
    world.drain();
    limit(&mut world, 1);
    assert_eq!(trimmed(&world), 5);
}
