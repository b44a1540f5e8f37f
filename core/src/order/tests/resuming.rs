//! A run may go on in another world: nothing is lost, nothing is repeated.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    dealing::{any_shuffle, any_world},
    *,
};

/// Counts the reads of each sample of an epoch in the first `steps` steps of `spec`.
fn count(spec: &Spec, epoch: Epoch, steps: u32, counts: &mut BTreeMap<u32, u32>) {
    let Some(order) = spec.epoch(epoch) else { panic!("only computed orders are counted") };
    for step in (0..steps).map(Step) {
        for rank in (0..spec.world.ranks()).map(Rank) {
            for SampleId(sample) in order.batch(rank, step) {
                *counts.entry(sample).or_default() += 1;
            }
        }
    }
}

prop_compose! {
    /// A spec, and the changes of other runs of the same job.
    fn any_pair()(
        samples in 5_u32..300,
        shuffle in any_shuffle(),
        worlds in (any_world(), any_world(), any_world()),
        batches in (1_u32..9, 1_u32..9, 1_u32..9),
        seed: u64,
        drop_last: bool,
    ) -> [Spec; 3] {
        let is_mosaic = matches!(shuffle, Shuffle::Mosaic(_));
        let drop_last = drop_last && !is_mosaic;
        let base = Spec { seed, drop_last, epochs: 3, ..spec(samples, shuffle) };
        let of = |batch_size, world| Spec { batch_size, world, ..base };
        [of(batches.0, worlds.0), of(batches.1, worlds.1), of(batches.2, worlds.2)]
    }
}

proptest! {
    /// Two changes of the world in one epoch: together the three runs read it as one would have.
    #[test]
    fn no_sample_is_lost_or_repeated_in_another_world(
        [one, two, three] in any_pair(),
        steps in (0_u32..40, 0_u32..40),
    ) {
        prop_assume!(one.validate().is_ok() && two.validate().is_ok() && three.validate().is_ok());
        let epoch = Epoch(1);
        let is_mosaic = matches!(one.shuffle, Shuffle::Mosaic(_));
        let (mut counts, mut runs) = (BTreeMap::new(), vec![(one, steps.0), (two, steps.1)]);
        runs.push((three, u32::MAX));
        let mut start = Position { epoch, samples: 0 };
        let mut end = one;
        for (run, steps) in runs {
            let run = Spec { start, ..run };
            let steps = steps.min(run.steps_in(epoch));
            count(&run, epoch, steps, &mut counts);
            start = run.position_after(epoch, steps);
            end = run;
            if start.epoch != epoch {
                break;
            }
        }
        prop_assert_eq!(start, Position { epoch: Epoch(2), samples: 0 });
        let read: u32 = counts.values().sum();
        let ranks = end.world.ranks();
        if one.drop_last {
            prop_assert!(counts.values().all(|times| *times == 1));
            prop_assert!(one.samples - read < ranks, "{} samples dropped", one.samples - read);
        } else {
            prop_assert_eq!(counts.len(), one.samples as usize);
            // Padding, and for Streaming what nodes read again to be level.
            let canonical = if is_mosaic { 4 + 2 * 4 } else { 0 };
            prop_assert!(read - one.samples < ranks + canonical, "{} repeated", read - one.samples);
        }
    }

    #[test]
    fn the_rest_of_an_epoch_is_the_end_of_its_sequence(
        [one, two, _] in any_pair(),
        steps in 0_u32..40,
    ) {
        prop_assume!(one.validate().is_ok() && two.validate().is_ok());
        prop_assume!(!matches!(one.shuffle, Shuffle::Mosaic(_)));
        let epoch = Epoch(2);
        let alone = Spec { world: World { nodes: 1, ranks_per_node: 1 }, drop_last: false, ..one };
        let whole = read_by(&alone, epoch, Rank(0));
        let start = one.position_after(epoch, steps);
        prop_assume!(start.epoch == epoch);
        let resumed = Spec { start, ..two };
        let rest = &whole[start.samples as usize..];
        let ranks = two.world.ranks();
        for rank in 0..ranks {
            let mine = rest.iter().cycle().skip(rank as usize).step_by(ranks as usize);
            let mine: Vec<u32> =
                mine.copied().take(resumed.samples_per_rank_in(epoch) as usize).collect();
            prop_assert_eq!(read_by(&resumed, epoch, Rank(rank)), mine);
        }
    }

    #[test]
    fn later_epochs_are_whole_and_earlier_ones_empty([one, _, _] in any_pair(), samples in 0_u32..300) {
        let start = Position { epoch: Epoch(1), samples };
        let resumed = Spec { start, ..one };
        prop_assume!(one.validate().is_ok() && resumed.validate().is_ok());
        prop_assert_eq!(resumed.steps_in(Epoch(0)), 0);
        prop_assert_eq!(resumed.steps_in(Epoch(3)), 0);
        let whole = |spec: &Spec| read_by(spec, Epoch(2), Rank(0));
        prop_assert_eq!(whole(&resumed), whole(&one));
    }

    /// `first`, `after`, `contains` and `batches_between` agree on which batches there are.
    #[test]
    fn batches_are_counted_as_they_follow([one, _, _] in any_pair(), samples in 0_u32..300) {
        let resumed = Spec { start: Position { epoch: Epoch(1), samples }, ..one };
        prop_assume!(resumed.validate().is_ok());
        let rank = Rank(resumed.world.ranks() - 1);
        let first = resumed.first(rank);
        let mut next = Some(first);
        let mut walked = 0;
        while let Some(batch) = next {
            prop_assert!(resumed.contains(batch));
            prop_assert_eq!(resumed.batches_between(first, Some(batch)), walked);
            prop_assert!(!read_by_step(&resumed, batch).is_empty());
            walked += 1;
            next = resumed.after(batch);
        }
        prop_assert_eq!(resumed.batches_between(first, None), walked);
        prop_assert_eq!(resumed.batches_per_rank(), walked);
    }
}

fn read_by_step(spec: &Spec, batch: BatchId) -> Vec<SampleId> {
    spec.epoch(batch.epoch).unwrap().batch(batch.rank, batch.step).collect()
}

#[test]
fn a_start_after_the_end_is_refused() {
    let base = Spec { epochs: 3, ..spec(10, Shuffle::Sequential) };
    let at = |epoch, samples| Spec { start: Position { epoch: Epoch(epoch), samples }, ..base };
    assert_eq!(at(2, 9).validate(), Ok(()));
    for spec in [at(3, 0), at(2, 10)] {
        let expected = SpecError::StartOutside { start: spec.start, epochs: 3 };
        assert_eq!(spec.validate(), Err(expected));
    }
    // One sample for two ranks that drop the end: nothing is left, unless another epoch follows.
    let world = World { nodes: 1, ranks_per_node: 2 };
    let dropped = |epoch| Spec { world, drop_last: true, ..at(epoch, 9) };
    assert!(matches!(dropped(2).validate(), Err(SpecError::StartOutside { .. })));
    assert_eq!(dropped(1).validate(), Ok(()));
    let first = BatchId { epoch: Epoch(2), step: Step(0), rank: Rank(1) };
    assert_eq!(dropped(1).first(Rank(1)), first);
}

/// 10 samples, 2 ranks with batches of 2: after one step 4 are read, and 3 ranks share the other 6.
#[test]
fn an_example_by_hand() {
    let world = World { nodes: 1, ranks_per_node: 2 };
    let before = Spec { world, batch_size: 2, ..spec(10, Shuffle::Sequential) };
    let start = before.position_after(Epoch(5), 1);
    assert_eq!(start, Position { epoch: Epoch(5), samples: 4 });
    let world = World { nodes: 1, ranks_per_node: 3 };
    let after = Spec { world, batch_size: 8, start, ..before };
    let read: Vec<Vec<u32>> = (0..3).map(|rank| read_by(&after, Epoch(5), Rank(rank))).collect();
    assert_eq!(read, [[4, 7], [5, 8], [6, 9]]);
    assert_eq!(after.samples_per_rank_in(Epoch(6)), 4);
}
