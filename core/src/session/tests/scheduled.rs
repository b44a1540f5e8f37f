//! Which operations are given out: no more than the windows allow, and requested batches first.

use super::*;

#[test]
fn no_more_operations_run_than_the_settings_say() {
    let mut settings = settings(policy::Kind::Fifo, 60, 1, OnError::Fail);
    settings.arena = Bytes(1 << 20);
    settings.windows = windows(u32::MAX, u32::MAX);
    let operations_max = settings.operations_max();
    let mut world = Play::new(&settings);
    let connection = world.trainers[0].connection;
    world.drain();
    for batch in world.expected(0) {
        world.trainers[0].asked.insert(batch);
        world.tell(Event::Requested { connection, batch });
    }
    let mut most = 0;
    while !world.plane.running.is_empty() {
        most = most.max(world.plane.running.len());
        world.end_one(0, 0);
    }
    assert_eq!(most, operations_max);
    assert!(world.trainers[0].asked.is_empty());
}

/// The operations that are given out, each ended at once, until no more come. Commands for trainers are
/// left out.
fn given_out(world: &mut Play) -> Vec<Operation> {
    let mut given = Vec::new();
    while !world.plane.running.is_empty() {
        given.push(world.plane.running[0].1.clone());
        world.end_one(0, 0);
    }
    given
}

fn rank_of(operation: &Operation) -> Option<Rank> {
    match operation {
        Operation::Fetch { to, .. } => Some(to.rank),
        Operation::Promote { parts } => Some(parts[0].to.rank),
        _ => None,
    }
}

#[test]
fn a_rank_that_jumps_overtakes_and_what_it_left_behind_is_not_read() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let connection = world.trainers[1].connection;
    let batch = BatchId { epoch: Epoch(1), step: Step(30), rank: Rank(1) };
    world.trainers[1].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    let given: Vec<Rank> = given_out(&mut world).iter().filter_map(rank_of).collect();
    // One read is on its way already; then the four of the batch that is asked for.
    assert_eq!(given[1..5], [Rank(1); 4], "{given:?}");
    assert_eq!(world.trainers[1].leases[0].1, batch);
    let of_rank = |rank| given.iter().filter(|other| **other == Rank(rank)).count();
    assert_eq!([of_rank(0), of_rank(1)], [12, 12], "invariant 8");
}

#[test]
fn a_rank_that_used_up_what_was_staged_overtakes() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    world.drain();
    for _ in 0..4 {
        for which in 0..2 {
            while world.ask(which) {}
            world.drain();
            assert!(world.take(which));
            world.now.0 += 50_000;
            world.drain();
        }
    }
    (0..2).for_each(|which| while world.ask(which) {});
    world.drain();
    // Rank 1 frees the place of one batch, then rank 0 those of three, and has none left.
    let already = world.plane.running.len();
    for which in [1, 0, 0, 0] {
        assert!(world.take(which));
    }
    let given: Vec<Rank> = given_out(&mut world).iter().filter_map(rank_of).collect();
    assert_eq!((already, given.len()), (0, 16));
    // The read that was given out when rank 1 had room; then the next two batches of rank 0.
    assert_eq!(given[0], Rank(1));
    assert_eq!(given[1..9], [Rank(0); 8], "{given:?}");
    assert!(given[9..].contains(&Rank(1)));
}

#[test]
fn what_a_jump_waits_for_comes_before_deep_prefetch() {
    let mut world = staged_ahead(policy::Kind::Pinned, 400);
    // A sample of the last batch that rank 0 was staged ahead with, not even read yet, which rank 1
    // reads in the next epoch. It is kept, so rank 1 gets it from its tier.
    let staged = &world.session.staging.get(Rank(0)).unwrap().staged();
    let order = world.session.planner.spec().epoch(Epoch(1)).unwrap();
    let reader = |sample: SampleId| {
        let mut steps = (0..50).map(Step);
        steps.find(|step| order.batch(Rank(1), *step).any(|other| other == sample))
    };
    let last = staged.values().next_back().unwrap().batch.entries.iter();
    let (sample, step) = last
        .rev()
        .filter(|entry| world.session.planner.cache().place(entry.sample).is_some())
        .find_map(|entry| Some((entry.sample, reader(entry.sample)?)))
        .expect("one of four samples has the other rank next");
    let batch = BatchId { epoch: Epoch(1), step, rank: Rank(1) };
    let connection = world.trainers[1].connection;
    world.trainers[1].asked.insert(batch);
    world.tell(Event::Requested { connection, batch });
    let given = given_out(&mut world).into_iter();
    let fetched = |operation| match operation {
        Operation::Fetch { sample, .. } => Some(sample),
        _ => None,
    };
    let fetched: Vec<_> = given.filter_map(fetched).collect();
    let at = fetched.iter().position(|other| *other == sample).unwrap();
    assert!(at < 20, "invariant 7: read as number {at} of {}", fetched.len());
}

#[test]
fn what_no_tier_keeps_is_fetched_to_be_dropped() {
    let mut world = staged_ahead(policy::Kind::None, 400);
    let given = given_out(&mut world);
    let fetches = given.iter().filter_map(|operation| match operation {
        Operation::Fetch { retention, .. } => Some(*retention),
        _ => None,
    });
    let fetches: Vec<_> = fetches.collect();
    assert!(!fetches.is_empty());
    assert!(fetches.iter().all(|it| *it == Retention::Dropped), "{fetches:?}");
}
