//! Samples that trainers read in place: the place of each keeps it until the batch is back.

use super::*;
use crate::retention::policy::Stay;

/// Tiers 0 and 2 are mapped by trainers.
fn in_place_settings(
    policy: policy::Kind,
    samples: u32,
    ranks: u32,
    on_error: OnError,
) -> Settings {
    let in_place_tiers = vec![TierId(0), TierId(2)];
    Settings { in_place_tiers, ..settings(policy, samples, ranks, on_error) }
}

fn any_staying() -> impl Strategy<Value = policy::Kind> {
    prop::sample::select(vec![policy::Kind::Gap, policy::Kind::Pinned])
}

fn read_in_place(world: &Play) -> u64 {
    world.session.progress().epochs.iter().map(|epoch| epoch.in_place_samples).sum()
}

proptest! {
    /// Batches are dropped and taken up again, and chunks break at any moment.
    #[test]
    fn what_is_known_to_be_broken_is_never_handed_over(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_staying(),
        limits in prop::collection::vec(0_u32..5, 1..12),
        faults in 10_usize..40,
        look_ahead in any_look_ahead(),
    ) {
        let settings = in_place_settings(policy, 50, 1, SKIP_ALL);
        let mut world = Play::new(&Settings { look_ahead, ..settings });
        for batches in limits.into_iter().cycle().take(40) {
            for pick in picks.iter().cycle().take(15) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            world.tell(Event::StagingLimited { batches });
        }
        world.play(&picks, faults);
        world.assert_answered(0);
    }

    #[test]
    fn what_a_batch_names_stays_whatever_fails_and_however_tiers_change(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_staying(),
        resizes in prop::collection::vec((0_u8..3, 0_u32..4), 0..12),
        faults in 0_usize..40,
        ranks in 1_u32..3,
    ) {
        let mut world = Play::new(&in_place_settings(policy, 50, ranks, SKIP_ALL));
        for (tier, chunks_max) in resizes {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            world.tell(Event::Resized { tier: TierId(tier), chunks_max });
        }
        world.play(&picks, faults);
        for rank in 0..ranks {
            world.assert_answered(rank);
        }
        prop_assert_eq!(world.session.in_flight(), 0);
        prop_assert!(world.named().next().is_none(), "nothing is named when all is done");
        for tier in 0..3 {
            let known = world.session.planner.cache().chunk_count(TierId(tier));
            let there = world.plane.chunks.iter().filter(|(of, _)| *of == TierId(tier)).count();
            prop_assert_eq!(known as usize, there, "every chunk that left was given back");
        }
    }

    #[test]
    fn who_never_gives_back_keeps_what_it_reads_and_holds_up_no_other(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_staying(),
        resizes in prop::collection::vec((0_u8..3, 0_u32..4), 0..12),
        faults in 0_usize..30,
    ) {
        let mut world = Play::new(&in_place_settings(policy, 50, 2, SKIP_ALL));
        world.trainers[1].keeps = true;
        for (tier, chunks_max) in resizes {
            for pick in picks.iter().cycle().take(25) {
                world.step(pick.wrapping_mul(0x9e37_79b9_7f4a_7c15), faults);
            }
            world.tell(Event::Resized { tier: TierId(tier), chunks_max });
        }
        world.play(&picks, faults);
        world.assert_answered(0);
        prop_assert!(world.trainers[1].asked.is_empty(), "every request has its answer");
        let kept = core::mem::take(&mut world.trainers[1].kept);
        for (lease, _) in kept.into_iter().rev() {
            world.give_back(1, lease);
        }
        world.play(&picks, faults);
        prop_assert!(world.named().all(|(_, claim, ..)| !matches!(claim, Claim::Held(..))));
    }

    #[test]
    fn reading_in_place_changes_neither_what_is_kept_nor_what_is_read_cold(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_staying(),
        samples in 1_u32..90,
    ) {
        // With room to spare, so that no batch makes way for another and is read twice.
        let play = |settings: Settings| {
            let settings = Settings { arena: Bytes(16 * 4096), ..settings };
            let mut world = Play::new(&settings);
            world.play(&picks, 0);
            let epochs = world.session.progress().epochs.iter();
            let sums = epochs.map(|it| (it.cold, it.misses, it.from_tier.clone(), it.hits.clone()));
            sums.collect::<Vec<_>>()
        };
        let copying = play(settings(policy, samples, 1, OnError::Fail));
        let in_place = play(in_place_settings(policy, samples, 1, OnError::Fail));
        prop_assert_eq!(copying, in_place, "however long a trainer holds its batches");
    }
}

#[test]
fn a_sample_is_read_in_place_instead_of_copied_and_counts_as_read_from_its_tier() {
    let mut world = Play::new(&in_place_settings(policy::Kind::Pinned, 40, 1, OnError::Fail));
    world.play(&[3, 5, 7], 0);
    let epochs = &world.session.progress().epochs;
    let (first, later) = (&epochs[0], &epochs[1]);
    assert_eq!((first.in_place_samples, first.in_place), (0, Bytes(0)));
    // Empty samples are nowhere, and what fills several holes is copied.
    assert!(later.in_place_samples > 20 && later.in_place_samples <= later.hits[0] + later.hits[2]);
    assert!(later.in_place.0 <= later.from_tier[0].0 + later.from_tier[2].0);
    assert!(later.from_tier[1].0 > 0, "tier 1 is copied");
}

#[test]
fn a_policy_that_may_give_up_anything_has_nothing_read_in_place() {
    let unknown = policy::Kind::ALL.into_iter();
    let unknown = unknown.filter(|it| it.stay(Shuffle::TORCH_DISTRIBUTED) == Stay::Unknown);
    for policy in unknown {
        let mut world = Play::new(&in_place_settings(policy, 40, 1, OnError::Fail));
        world.play(&[3, 5, 7], 0);
        assert_eq!(read_in_place(&world), 0, "{policy}");
    }
}

#[test]
fn near_the_end_of_an_epoch_only_what_stays_for_good_is_read_in_place() {
    for (policy, is_read) in [(policy::Kind::Gap, false), (policy::Kind::Pinned, true)] {
        // Ten steps, of which six are near the end.
        let mut world = Play::new(&in_place_settings(policy, 40, 1, OnError::Fail));
        world.drain();
        let mut steps = BTreeSet::new();
        while world.ask(0) {
            world.drain();
            let named: Vec<BatchId> = world.named().map(|(batch, ..)| batch).collect();
            steps.extend(named.iter().filter(|it| it.epoch == Epoch(1)).map(|it| it.step.0));
            world.take(0);
        }
        assert_eq!(steps.iter().any(|step| *step >= 4), is_read, "{policy}: {steps:?}");
        assert!(steps.iter().any(|step| *step < 4), "{policy}: {steps:?}");
    }
}

/// A world in which the trainer holds nothing, and a batch that no trainer has yet names a place.
fn staged_in_place() -> (Play, BatchId, usize) {
    let mut world = Play::new(&in_place_settings(policy::Kind::Pinned, 60, 1, OnError::Fail));
    for _ in 0..16 {
        world.ask(0);
        world.drain();
        world.take(0);
    }
    world.drain();
    let ahead = world.named().find(|(_, claim, ..)| *claim == Claim::Unclaimed);
    let (batch, _, entry) = ahead.expect("much is read in place in the second epoch");
    (world, batch, entry)
}

#[test]
fn what_breaks_before_it_is_handed_over_is_read_cold_instead() {
    let (mut world, batch, entry) = staged_in_place();
    let staged = &world.session.staging.get(Rank(0)).unwrap().staged()[&batch];
    let named = staged.batch.entries[entry];
    let place = named.in_place.unwrap();
    world.session.end_with_poison(place.tier, place.chunk);
    while let Some(command) = world.session.poll_command() {
        world.carry_out(command);
    }
    let is_fetch = |(_, operation): &_| matches!(operation, Operation::Fetch { sample, .. } if *sample == named.sample);
    assert!(world.plane.running.iter().any(is_fetch), "{:?}", world.plane.running);
    let staged = &world.session.staging.get(Rank(0)).unwrap().staged()[&batch];
    assert_eq!(staged.batch.entries[entry].in_place, None);
    world.play(&[3, 5, 7], 0);
    assert!(!world.plane.chunks.contains(&(place.tier, place.chunk)), "it was given back");
    assert_eq!(world.trainers[0].got, world.expected(0));
}

#[test]
fn a_chunk_leaves_when_the_last_batch_that_names_it_is_back() {
    let mut world = Play::new(&in_place_settings(policy::Kind::Pinned, 60, 1, OnError::Fail));
    world.drain();
    let mut held = None;
    while held.is_none() && world.ask(0) {
        world.drain();
        let holds = |claim: &Claim| matches!(claim, Claim::Leased(..));
        let leased = world.named().find(|(_, claim, ..)| holds(claim));
        if let Some((batch, _, entry)) = leased {
            let entry =
                world.session.staging.get(Rank(0)).unwrap().staged()[&batch].batch.entries[entry];
            held = Some((batch, entry.in_place.unwrap()));
        } else {
            world.take(0);
        }
    }
    let (_, place) = held.expect("something is read in place in the second epoch");
    world.trainers[0].keeps = true;
    assert!(world.take(0));
    let (tier, chunk) = (place.tier, place.chunk);
    world.tell(Event::Resized { tier, chunks_max: 0 });
    world.drain();
    assert!(world.plane.chunks.contains(&(tier, chunk)), "a trainer reads there");
    let lease = world.trainers[0].kept[0].0;
    world.give_back(0, lease);
    world.drain();
    assert!(!world.plane.chunks.contains(&(tier, chunk)), "no trainer reads there any more");
}

/// A world in which a batch was dropped that names a place and waits for bytes that are not cancelled.
fn dropped_in_place() -> (Play, InPlace) {
    let mut world = Play::new(&in_place_settings(policy::Kind::Pinned, 60, 1, OnError::Fail));
    for _ in 0..40 {
        world.ask(0);
        world.drain();
        world.take(0);
        world.tell(Event::StagingLimited { batches: 0 });
        let staged = &world.session.staging.get(Rank(0)).unwrap().staged();
        let dropped = staged.values().find(|it| it.claim == Claim::Dropped && !it.is_stale);
        let place = dropped.and_then(|it| it.batch.entries.iter().find_map(|entry| entry.in_place));
        if let Some(place) = place {
            return (world, place);
        }
        world.tell(Event::StagingLimited { batches: 3 });
    }
    panic!("no batch was dropped in time");
}

#[test]
fn a_dropped_batch_that_names_what_broke_is_not_taken_up_again() {
    let (mut world, place) = dropped_in_place();
    world.session.end_with_poison(place.tier, place.chunk);
    world.plane.broken.insert((place.tier, place.chunk));
    world.tell(Event::StagingLimited { batches: 3 });
    // It is asked for while its bytes are still on their way, and `Play::carry_out` sees what is handed over.
    while world.ask(0) {}
    world.drain();
    world.play(&[3, 5, 7], 0);
    assert_eq!(world.trainers[0].got, world.expected(0));
}
