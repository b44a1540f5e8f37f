//! Ranks share an epoch: every sample once, but for what padding repeats and `drop_last` leaves out.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::order::{
    block::Block,
    mosaic::{Algorithm, Mosaic},
    tf::{Buffered, Index, Reshuffle, SecondSeed},
};

/// One shuffle of each kind that a world of several ranks can have.
pub(super) fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Sequential),
        Just(Shuffle::TORCH_DISTRIBUTED),
        (1_u32..40).prop_map(|buffer| {
            let reshuffle = Reshuffle::EachIteration;
            Shuffle::TfShuffle(Buffered { buffer, global_seed: 1, reshuffle })
        }),
        Just(Shuffle::TfIndex(Index { second: SecondSeed::Epoch })),
        Just(Shuffle::Grain),
        (1_u32..20, 1_u32..30).prop_map(|(shard, window)| Shuffle::Block(Block { shard, window })),
        (prop::sample::select(Algorithm::ALL.to_vec()), 1_u32..30).prop_map(
            |(algorithm, shard)| {
                Shuffle::Mosaic(Mosaic { algorithm, shard, canonical_nodes: 4, block: 16 })
            }
        ),
    ]
}

/// Worlds whose nodes can share four canonical nodes.
pub(super) fn any_world() -> impl Strategy<Value = World> {
    (prop::sample::select(vec![1_u32, 2, 4]), 1_u32..5)
        .prop_map(|(nodes, ranks_per_node)| World { nodes, ranks_per_node })
}

proptest! {
    #[test]
    fn every_sample_is_read_once_but_for_padding(
        samples in 5_u32..200,
        shuffle in any_shuffle(),
        world in any_world(),
        batch_size in 1_u32..20,
        seed: u64,
        epoch in 0_u32..10,
        drop_last: bool,
    ) {
        let spec = Spec { seed, drop_last, batch_size, world, ..spec(samples, shuffle) };
        prop_assume!(spec.validate().is_ok());
        let epoch = Epoch(epoch);
        let order = spec.epoch(epoch).unwrap();
        let mut seen = BTreeSet::new();
        let mut read = 0_u32;
        for node in (0..world.nodes).map(NodeId) {
            let of_node = spec.epoch_of(node, epoch).unwrap();
            for step in (0..spec.steps_in(epoch)).map(Step) {
                for (local_rank, rank) in (0..).zip(world.ranks_of(node)) {
                    let batch: Vec<_> = order.batch(rank, step).collect();
                    read += u32::try_from(batch.len()).unwrap();
                    seen.extend(batch.iter().copied());
                    prop_assert_eq!(of_node.batch(local_rank, step), batch);
                }
            }
        }
        prop_assert_eq!(read, spec.samples_per_rank() * world.ranks());
        let ranks = world.ranks();
        let expected = if drop_last { samples / ranks * ranks } else { samples };
        prop_assert_eq!(seen.len(), expected as usize);
        let step = Step(spec.steps_per_epoch() - 1);
        let last = BatchId { epoch: Epoch(spec.epochs - 1), step, rank: Rank(0) };
        prop_assert!(spec.contains(last));
        prop_assert_eq!(spec.after(last), None);
    }
}
