//! Which accesses are known, and which of them are held.

use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::{
    id::Step,
    order::{FurtherDatasets, Position, World},
};

fn spec(samples: u32, world: World, epochs: u32) -> Spec {
    Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: 5,
        epochs,
        drop_last: false,
        batch_size: 3,
        world,
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

fn reads(spec: Spec, node: NodeId) -> Vec<(Use, SampleId)> {
    let mut future = FutureAccesses::new(spec, node, 0);
    let mut reads = Vec::new();
    for epoch in (0..spec.epochs).map(Epoch) {
        future.prepare(epoch);
        for step in (0..spec.steps_in(epoch)).map(Step) {
            for rank in spec.world.ranks_of(node) {
                let batch = BatchId { epoch, step, rank };
                let samples = future.batch(batch).unwrap().iter().enumerate();
                reads.extend(samples.map(|(index, it)| (future.read_of(batch, index), *it)));
            }
        }
    }
    reads
}

proptest! {
    #[test]
    fn the_next_use_is_the_next_read(
        samples in 1_u32..40, nodes in 1_u32..4, ranks_per_node in 1_u32..4, ahead in 0_u32..3,
    ) {
        let world = World { nodes, ranks_per_node };
        let spec = spec(samples, world, 4);
        let reads = reads(spec, NodeId(nodes - 1));
        prop_assert!(reads.is_sorted_by(|(a, _), (b, _)| a < b));
        let mut future = FutureAccesses::new(spec, NodeId(nodes - 1), ahead);
        for (at, (now, sample)) in reads.iter().enumerate() {
            future.prepare(now.epoch);
            prop_assert!(future.computed.len() <= future.epochs_max(), "invariant 2");
            let next = reads[at + 1..].iter().find(|(_, other)| other == sample);
            let last = Epoch(now.epoch.0 + ahead);
            let expected = match next {
                Some((next, _)) if next.epoch <= last => NextUse::At(*next),
                _ if last.0 + 1 >= spec.epochs => NextUse::Never,
                _ => NextUse::Later,
            };
            prop_assert_eq!(future.next_use(*sample, *now), expected, "invariant 1");
        }
    }
}

#[test]
fn a_published_epoch_may_repeat_samples() {
    let world = World { nodes: 1, ranks_per_node: 1 };
    let spec = Spec { shuffle: Shuffle::Published, ..spec(6, world, 2) };
    let mut future = FutureAccesses::new(spec, NodeId(0), 1);
    let samples = Arc::new([1, 4, 1, 1, 0].map(SampleId).to_vec());
    assert_eq!(future.publish(Rank(0), Epoch(0), samples.clone()), Publication::New);
    let at = |place| Use { epoch: Epoch(0), place };
    let next = |sample, place| future.next_use(SampleId(sample), at(place));
    assert_eq!(next(1, 0), NextUse::At(at(2)));
    assert_eq!(next(1, 2), NextUse::At(at(3)));
    assert_eq!(next(1, 3), NextUse::Later, "epoch 1 is not published yet");
    assert_eq!(future.publish(Rank(0), Epoch(0), vec![SampleId(2)].into()), Publication::Changed);
    let wrong = Arc::new(vec![SampleId(6)]);
    assert_eq!(future.publish(Rank(0), Epoch(1), wrong), Publication::Impossible);
}

#[test]
fn steps_are_counted_over_the_end_of_an_epoch() {
    let world = World { nodes: 1, ranks_per_node: 2 };
    let spec = spec(20, world, 3);
    let future = FutureAccesses::new(spec, NodeId(0), 1);
    let at = |epoch, place| Use { epoch: Epoch(epoch), place };
    assert_eq!(spec.steps_in(Epoch(0)), 4);
    assert_eq!(future.steps_between(at(0, 0), at(0, 5)), 0);
    assert_eq!(future.steps_between(at(0, 0), at(0, 6)), 1);
    assert_eq!(future.steps_between(at(0, 18), at(1, 6)), 2);
}

/// The next read of each sample after the first read of `epoch`.
fn next_uses(future: &FutureAccesses, epoch: Epoch) -> Vec<NextUse> {
    let now = Use { epoch, place: 0 };
    (0..future.spec().samples).map(|sample| future.next_use(SampleId(sample), now)).collect()
}

proptest! {
    #[test]
    fn it_does_not_matter_which_expansion_ends_first(
        samples in 1_u32..40, ahead in 0_u32..4, epoch in 0_u32..6, picks in prop::collection::vec(any::<usize>(), 9),
    ) {
        let spec = spec(samples, World { nodes: 2, ranks_per_node: 2 }, 9);
        let mut future = FutureAccesses::new(spec, NodeId(1), ahead).with_next_uses(NextUses::Asked);
        let mut expansions = future.expand(Epoch(epoch), Reach::View);
        prop_assert!(future.expand(Epoch(epoch), Reach::View).is_empty(), "each is begun once");
        future.follow(Epoch(epoch));
        for pick in picks {
            let next = (!expansions.is_empty()).then(|| expansions.swap_remove(pick % expansions.len()));
            prop_assert_eq!(future.is_expanded(Epoch(epoch), Reach::View), next.is_none());
            next.into_iter().for_each(|expansion| future.expanded(expansion.run()));
        }
        let mut at_once = FutureAccesses::new(spec, NodeId(1), ahead);
        at_once.prepare(Epoch(epoch));
        prop_assert_eq!(next_uses(&future, Epoch(epoch)), next_uses(&at_once, Epoch(epoch)));
    }

    #[test]
    fn few_epochs_are_held_wherever_ranks_are(
        epochs in prop::collection::vec((0_u32..60, any::<bool>()), 1..40), ahead in 0_u32..4,
    ) {
        let spec = spec(9, World { nodes: 1, ranks_per_node: 2 }, 60);
        let mut future = FutureAccesses::new(spec, NodeId(0), ahead);
        for (epoch, is_followed) in epochs {
            if is_followed {
                future.follow(Epoch(epoch));
            }
            for expansion in future.expand(Epoch(epoch), Reach::Epoch) {
                future.expanded(expansion.run());
            }
            prop_assert!(future.is_expanded(Epoch(epoch), Reach::Epoch));
            prop_assert!(future.computed.len() <= future.epochs_max(), "invariant 2");
        }
    }
}

#[test]
fn what_is_published_while_places_are_worked_out_has_them_worked_out_again() {
    let world = World { nodes: 1, ranks_per_node: 2 };
    let spec = Spec { shuffle: Shuffle::Published, ..spec(6, world, 1) };
    let mut future = FutureAccesses::new(spec, NodeId(0), 0).with_next_uses(NextUses::Asked);
    let publish = |future: &mut FutureAccesses, rank, samples: [u32; 3]| {
        future.publish(Rank(rank), Epoch(0), samples.map(SampleId).to_vec().into())
    };
    publish(&mut future, 0, [0, 1, 2]);
    let first = future.expand(Epoch(0), Reach::View);
    publish(&mut future, 1, [3, 4, 5]);
    assert!(future.expand(Epoch(0), Reach::View).is_empty(), "one at a time");
    first.into_iter().for_each(|expansion| future.expanded(expansion.run()));
    assert!(!future.is_expanded(Epoch(0), Reach::View));
    for expansion in future.expand(Epoch(0), Reach::View) {
        future.expanded(expansion.run());
    }
    assert!(future.is_expanded(Epoch(0), Reach::View));
    let now = Use { epoch: Epoch(0), place: 0 };
    assert!(matches!(future.next_use(SampleId(5), now), NextUse::At(_)));
}

#[test]
fn what_is_published_again_keeps_its_places_and_the_work_on_them() {
    let world = World { nodes: 1, ranks_per_node: 1 };
    let spec = Spec { shuffle: Shuffle::Published, ..spec(6, world, 1) };
    let mut future = FutureAccesses::new(spec, NodeId(0), 0).with_next_uses(NextUses::Asked);
    let publish = |future: &mut FutureAccesses, samples: [u32; 3]| {
        future.publish(Rank(0), Epoch(0), samples.map(SampleId).to_vec().into())
    };
    assert_eq!(publish(&mut future, [0, 1, 2]), Publication::New);
    let begun = future.expand(Epoch(0), Reach::View);
    assert_eq!(publish(&mut future, [0, 1, 2]), Publication::New);
    begun.into_iter().for_each(|expansion| future.expanded(expansion.run()));
    assert!(future.is_expanded(Epoch(0), Reach::View), "what was begun is of this order");
    assert_eq!(publish(&mut future, [0, 1, 2]), Publication::New);
    assert!(future.is_expanded(Epoch(0), Reach::View), "the places are still there");
    assert_eq!(publish(&mut future, [0, 2, 1]), Publication::Changed);
    assert!(!future.is_expanded(Epoch(0), Reach::View));
}
