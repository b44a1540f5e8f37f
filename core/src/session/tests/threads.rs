//! Sessions whose rule divides threads over ranks, with a transform and without.

use super::*;

/// A session of two ranks with a transform on three threads.
fn dividing(rule: Assignment, policy: policy::Kind, samples: u32) -> Settings {
    let mut settings = settings(policy, samples, 2, OnError::Fail);
    settings.windows.assignment = rule;
    settings.with_transform(Bytes(100), NonZeroU32::new(3).unwrap(), None)
}

proptest! {
    #[test]
    fn every_batch_comes_however_threads_are_divided(
        picks in prop::collection::vec(any::<usize>(), 1..60),
        policy in any_policy(),
        samples in 1_u32..60,
        rule in prop::sample::select(&Assignment::ALL[..]),
    ) {
        let mut world = Play::new(&dividing(rule, policy, samples));
        world.play(&picks, 0);
        for rank in 0..2 {
            prop_assert_eq!(&world.trainers[rank as usize].got, &world.expected(rank));
        }
        prop_assert_eq!(world.session.in_flight(), 0);
    }
}

#[test]
fn lobster_divides_all_threads_that_read_and_transform_by_what_was_observed() {
    let settings = dividing(Assignment::Lobster, policy::Kind::None, 50);
    let all = settings.windows.cold.get() + 6;
    let mut world = Play::new(&settings);
    assert_eq!(world.session.progress().threads, None, "nothing was observed");
    world.play(&[1, 5, 3], 0);
    let stages = world.session.progress().threads.clone().expect("batches were taken");
    assert_eq!(stages.loading_all + stages.transforming_all, all);
    assert!((1..=6).contains(&stages.transforming_all), "{stages:?}");
    let rates = world.session.operations.rates().expect("Lobster divides by rates");
    assert!(rates.cold.fit(Bytes(100)).is_some() && rates.transforms.fit(Bytes(100)).is_some());
    let scheduler = world.session.operations.scheduler();
    let cold_max = settings.windows.cold_max().get();
    assert_eq!(u32::try_from(scheduler.cold_window()), Ok(stages.loading_all.min(cold_max)));
}
