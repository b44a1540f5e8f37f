//! What is worked out on other threads may come back at any time and in any order.

use super::*;

fn played(settings: &Settings, picks: &[usize], jobs: Option<Vec<Job>>, slice: u32) -> Play {
    let mut world = Play::with_jobs(settings, jobs);
    world.session.slice = NonZeroU32::new(slice);
    world.play(picks, 0);
    world
}

proptest! {
    #[test]
    fn when_a_job_ends_changes_no_decision(
        policy in any_policy(),
        samples in 9_u32..70,
        epochs in 1_u32..6,
        seed in 0_u64..50,
        slice in 0_u32..9,
        picks in prop::collection::vec(any::<usize>(), 20..60),
    ) {
        let mut settings = settings(policy, samples, 1, OnError::Fail);
        (settings.order.epochs, settings.order.seed) = (epochs, seed);
        let at_once = played(&settings, &[3, 7, 5], None, 0);
        let later = played(&settings, &picks, Some(Vec::new()), slice);
        prop_assert_eq!(&later.trainers[0].got, &later.expected(0));
        prop_assert_eq!(&later.moves, &at_once.moves);
    }

    #[test]
    fn every_rank_gets_its_batches_whenever_jobs_end(
        policy in any_policy(),
        samples in 9_u32..70,
        ranks in 2_u32..4,
        picks in prop::collection::vec(any::<usize>(), 20..60),
        faults in 0_usize..20,
    ) {
        let settings = settings(policy, samples, ranks, SKIP_ALL);
        let mut world = Play::with_jobs(&settings, Some(Vec::new()));
        world.play(&picks, faults);
        for rank in 0..ranks {
            world.assert_answered(rank);
        }
        prop_assert_eq!(world.jobs.map(|jobs| jobs.len()), Some(0));
    }
}

/// The first `steps` steps are read without a plan.
fn begun(steps: u32, jobs: Option<Vec<Job>>) -> Play {
    let mut settings = settings(policy::Kind::Gap, 200, 1, OnError::Fail);
    settings.order.epochs = 3;
    let mut world = Play::with_jobs(&settings, jobs);
    world.session.planner.read_unplanned(steps);
    world
}

#[test]
fn the_first_batches_of_a_large_job_wait_for_no_plan() {
    let is_plan = |job: &Job| matches!(job, Job::Plan(_));
    let ahead_of_plan = |steps: u32| {
        let mut world = begun(steps, Some(Vec::new()));
        world.drain();
        // The order of the first epoch ends; that of the next does not, so nothing is planned.
        assert!(world.end_job(0));
        world.drain();
        assert!(!world.jobs.iter().flatten().any(is_plan));
        (
            world.ask(0) && {
                world.drain();
                world.take(0)
            },
            world,
        )
    };
    let (is_there, mut world) = ahead_of_plan(2);
    assert!(is_there, "a batch is handed out before anything is planned");
    assert!(!ahead_of_plan(0).0, "a small job waits for its plan");
    while world.end_job(0) {
        world.drain();
    }
    assert!(
        world
            .session
            .planner
            .planned_samples(world.session.planner.spec().first(Rank(0)))
            .is_some()
    );
}

#[test]
fn the_first_batches_of_a_large_job_are_read_equally_whenever_its_plan_is_there() {
    let moves = |jobs: Option<Vec<Job>>, picks: &[usize]| {
        let mut world = begun(2, jobs);
        world.play(picks, 0);
        assert_eq!(world.trainers[0].got, world.expected(0));
        world.session.progress().decisions()
    };
    let at_once = moves(None, &[3, 7, 5]);
    for picks in [[9, 4, 1, 77, 5], [2, 2, 8, 13, 1], [31, 7, 19, 3, 6]] {
        assert_eq!(moves(Some(Vec::new()), &picks), at_once, "{picks:?}");
    }
}

/// The first rank of a node reads on in the first epoch, while the second asks for one far epoch after the
/// other, whose work never ends before the first rank has its batch. Returns the number of plans.
fn jumping() -> usize {
    let mut settings = settings(policy::Kind::Gap, 400, 2, OnError::Fail);
    settings.order.epochs = 90;
    let mut world = Play::with_jobs(&settings, Some(Vec::new()));
    let is_plan = |job: &Job| matches!(job, Job::Plan(_));
    let mut plans = 0;
    let mut end_all = |world: &mut Play| loop {
        plans += world.jobs.iter().flatten().filter(|job| is_plan(job)).count();
        let held = world.jobs.as_ref().map_or(0, Vec::len);
        (0..held).for_each(|_| assert!(world.end_job(0)));
        world.drain();
        if world.jobs.as_ref().is_none_or(Vec::is_empty) {
            return;
        }
    };
    end_all(&mut world);
    for turn in 0..20 {
        assert!(world.ask(0));
        world.drain();
        assert!(world.take(0), "turn {turn}: the first rank has to wait");
        let (connection, rank) = (world.trainers[1].connection, Rank(1));
        let batch = BatchId { epoch: Epoch(10 + turn * 17 % 70), step: Step(turn), rank };
        world.trainers[1].asked.insert(batch);
        world.tell(Event::Requested { connection, batch });
        assert!(world.ask(0));
        world.drain();
        assert!(world.take(0), "turn {turn}: the first rank waits for what the second asked for");
        end_all(&mut world);
        assert!(world.take(1), "turn {turn}: the second rank gets what it asked for");
    }
    plans
}

#[test]
fn a_rank_that_jumps_to_and_fro_delays_no_other() {
    assert_eq!(jumping(), 2, "the first epoch is planned, and the next ahead of need");
}

#[test]
fn the_node_goes_where_most_ranks_that_ask_are() {
    let mut settings = settings(policy::Kind::Gap, 100, 2, OnError::Fail);
    settings.order.epochs = 30;
    let mut world = Play::new(&settings);
    world.drain();
    for (which, expected) in [(0, 20), (1, 20)] {
        let trainer = &mut world.trainers[which];
        let batch = BatchId { epoch: Epoch(20), step: Step(0), rank: trainer.rank };
        let connection = trainer.connection;
        trainer.asked.insert(batch);
        world.tell(Event::Requested { connection, batch });
        world.drain();
        assert!(world.take(which));
        assert_eq!(world.session.planner.main(), Epoch(expected), "rank 1 has not asked at first");
    }
    for (which, main) in [(1, 20), (0, 5)] {
        let trainer = &mut world.trainers[which];
        let batch = BatchId { epoch: Epoch(5), step: Step(1), rank: trainer.rank };
        let connection = trainer.connection;
        trainer.asked.insert(batch);
        world.tell(Event::Requested { connection, batch });
        world.drain();
        assert!(world.take(which));
        assert_eq!(world.session.planner.main(), Epoch(main), "one of two goes alone");
    }
}

#[test]
fn no_call_plans_more_samples_than_a_slice_even_within_a_batch() {
    let settings = settings(policy::Kind::None, 60, 1, OnError::Fail);
    let slice = 3;
    let mut session = Session::new(settings.clone()).with_slices(NonZeroU32::new(slice).unwrap());
    let Some(Command::Start { op, .. }) = session.poll_command() else { panic!("no arena") };
    session.handle(Event::Completed { op, outcome: Ok(()) }, Nanoseconds(1));
    session.run_jobs();
    let mut planned = vec![session.in_flight()];
    while session.has_more() {
        session.go_on(Nanoseconds(2));
        planned.push(session.in_flight());
    }
    let most = planned.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert_eq!((planned[0].min(slice as usize), most), (planned[0], Some(slice as usize)));
    let staged = (settings.staged_batches * settings.order.batch_size) as usize;
    assert_eq!(planned.last(), Some(&staged), "{planned:?}");
}
