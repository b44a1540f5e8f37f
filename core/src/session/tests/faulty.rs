//! What fails costs samples or cold reads, never a batch: reads, chunks, tiers and staging memory.

use super::*;

proptest! {
    #[test]
    fn faults_cost_samples_but_never_a_batch(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        faults in 1_usize..40,
        skip: bool,
        look_ahead in any_look_ahead(),
    ) {
        let on_error = if skip { SKIP_ALL } else { OnError::Fail };
        let settings = Settings { look_ahead, ..settings(policy, 50, 2, on_error) };
        let mut world = Play::new(&settings);
        world.play(&picks, faults);
        for rank in 0..2 {
            world.assert_answered(rank);
        }
        let progress = world.session.progress();
        if skip && world.is_all_got() {
            prop_assert_eq!(progress.fault_count, world.skipped);
        }
        for epoch in &progress.epochs {
            prop_assert_eq!(epoch.causes.total(), epoch.stall, "every wait has its causes");
        }
        let links = progress.tiers_busy.iter().chain([&progress.cold_busy]);
        prop_assert!(links.clone().all(|link| link.running() == 0), "{links:?}");
        let refused: u64 = world.trainers.iter().map(|it| it.refused.len() as u64).sum();
        prop_assert_eq!(progress.refusals.unreadable, refused);
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn a_batch_is_handed_over_without_a_sample_only_for_a_fault_of_the_sample(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        faults in 1_usize..40,
        fault in prop::sample::select(vec![
            Fault::Vanished,
            Fault::Truncated,
            Fault::Corrupt,
            Fault::Changed,
            Fault::Denied,
            Fault::Io,
            Fault::NoSpace,
        ]),
    ) {
        let settings = settings(policy, 50, 2, SKIP_ALL);
        let mut world = Play::new(&settings);
        world.cold_fault = fault;
        world.play(&picks, faults);
        let is_of_sample = matches!(fault, Fault::Vanished | Fault::Truncated | Fault::Corrupt);
        prop_assert_eq!(fault.is_of_sample(), is_of_sample);
        if is_of_sample {
            (0..2).for_each(|rank| world.assert_answered(rank));
            return Ok(());
        }
        prop_assert_eq!(world.skipped, 0);
        for (_, reason) in world.trainers.iter().flat_map(|it| &it.refused) {
            match *reason {
                Refusal::Unreadable(_, told) => prop_assert_eq!(told, fault),
                reason => prop_assert_eq!((reason, fault), (Refusal::NoRoom, Fault::NoSpace)),
            }
        }
    }

    #[test]
    fn a_rank_goes_without_its_share_of_an_epoch_and_no_sample_more(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        faults in 5_usize..60,
        parts in 0_u32..400_000,
    ) {
        let share = SkipShare(parts);
        let settings = settings(policy, 60, 2, OnError::Skip(share));
        let mut world = Play::new(&settings);
        world.play(&picks, faults);
        let limit = share.most(60, 2);
        prop_assert!(world.missing.values().all(|samples| samples.len() <= limit as usize));
        for (batch, reason) in world.trainers.iter().flat_map(|it| &it.refused) {
            let Refusal::TooManySkipped { fault, skipped, most, .. } = *reason else {
                prop_assert!(false, "{batch:?}: {reason:?}");
                continue;
            };
            prop_assert_eq!((fault, skipped, most), (Fault::Vanished, limit + 1, limit));
        }
        for rank in 0..2 {
            let trainer = &world.trainers[rank as usize];
            let answered = trainer.refused.len() + trainer.got.len();
            prop_assert_eq!(answered, world.expected(rank).len(), "invariant 1");
        }
    }

    #[test]
    fn chunks_that_fail_and_tiers_that_change_lose_no_batch(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        resizes in prop::collection::vec((0_u8..3, 0_u32..4), 1..12),
        faults in 1_usize..40,
    ) {
        let settings = settings(policy, 50, 2, SKIP_ALL);
        let mut world = Play::new(&settings);
        for (tier, chunks_max) in resizes {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            world.tell(Event::Resized { tier: TierId(tier), chunks_max });
        }
        world.play(&picks, faults);
        for rank in 0..2 {
            world.assert_answered(rank);
        }
        prop_assert_eq!(world.session.in_flight(), 0);
    }

    #[test]
    fn tiers_that_change_lose_no_batch_however_threads_are_divided(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        resizes in prop::collection::vec((0_u8..3, 0_u32..4), 1..12),
    ) {
        let mut settings = settings(policy, 50, 2, OnError::Fail);
        let rule = Assignment::ALL[picks[0] % Assignment::ALL.len()];
        settings.windows.assignment = rule;
        let mut world = Play::new(&settings);
        for (tier, chunks_max) in resizes {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
            }
            prop_assert_eq!(world.session.queues().len(), 2);
            let stages = Stages {
                loading: vec![chunks_max, u32::from(tier)],
                loading_all: 1 + chunks_max,
                transforming: Vec::new(),
                transforming_all: 0,
            };
            world.session.operations.scheduler_mut().divide(&stages);
            world.tell(Event::Resized { tier: TierId(tier), chunks_max });
        }
        world.play(&picks, 0);
        for rank in 0..2 {
            world.assert_answered(rank);
        }
    }
}

#[test]
fn a_chunk_that_fails_late_takes_no_other_chunk_with_it() {
    let mut settings = settings(policy::Kind::Gap, 50, 1, OnError::Fail);
    settings.tiers.truncate(1);
    let mut world = Play::new(&settings);
    let (op, arena) = world.plane.running.swap_remove(0);
    world.plane.end(&arena, Ok(()));
    world.tell(Event::Completed { op, outcome: Ok(()) });
    let is_chunk = |(_, operation): &_| matches!(operation, Operation::AddChunk { .. });
    for chunks_max in [0, 2] {
        world.tell(Event::Resized { tier: TierId(0), chunks_max });
    }
    let late = world.plane.running.iter().position(is_chunk).unwrap();
    let (op, _) = world.plane.running.swap_remove(late);
    world.tell(Event::Completed { op, outcome: Err(Fault::NoSpace) });
    world.play(&[3, 5, 7], 0);
    let known = world.session.planner.cache().chunk_count(TierId(0));
    assert_eq!(world.plane.chunks.len(), known as usize);
    assert_eq!(known, 2, "the tier may have two chunks and there is enough to keep");
}

#[test]
fn a_chunk_whose_memory_breaks_is_given_back_with_all_that_lies_in_it() {
    let mut settings = settings(policy::Kind::Gap, 50, 1, OnError::Fail);
    settings.tiers.truncate(1);
    let mut world = Play::new(&settings);
    let is_promotion = |(_, operation): &_| matches!(operation, Operation::Promote { .. });
    while !world.plane.running.iter().any(is_promotion) {
        world.take(0);
        world.ask(0);
        world.end_one(0, 0);
    }
    let at = world.plane.running.iter().position(is_promotion).unwrap();
    let (op, promotion) = world.plane.running.swap_remove(at);
    let Operation::Promote { parts } = promotion else { unreachable!() };
    let Promotion { sample, from, .. } = parts[0].clone();
    let chunk = from.pieces[0].chunk;
    let fault = Fault::Poisoned(from.tier, chunk);
    world.tell(Event::Completed { op, outcome: Err(fault) });
    assert_eq!(world.session.planner.cache().place(sample), None);
    let left = world.session.planner.cache().chunk_count(from.tier);
    assert_eq!(left, 1, "of two");
    world.play(&[3, 5, 7], 0);
    assert!(!world.plane.chunks.contains(&(from.tier, chunk)), "it was given back");
    assert_eq!(world.trainers[0].got, world.expected(0));
}

#[test]
fn staging_memory_that_is_lost_refuses_a_batch_so_that_the_trainer_reads_it() {
    for on_error in [OnError::Fail, SKIP_ALL] {
        let mut world = Play::new(&settings(policy::Kind::None, 50, 1, on_error));
        world.end_one(0, 0);
        assert!(world.ask(0));
        let (op, _) = world.plane.running.remove(0);
        let outcome = Err(Fault::NoSpace);
        world.tell(Event::Completed { op, outcome });
        world.play(&[3, 5, 7], 0);
        let refused = &world.trainers[0].refused;
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].1, Refusal::NoRoom, "{on_error:?}");
    }
}
