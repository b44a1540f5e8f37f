//! The samples that each node reads in each epoch: its part of a new permutation, dealt as by PyTorch's
//! sampler.

use tierfeed_core::{
    id::{Epoch, Rank, Step},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
};

/// One rank on each node, which reads its whole part at once.
pub(super) const fn order(samples: u32, nodes: u32, seed: u64, epochs: u32) -> Spec {
    Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed,
        epochs,
        drop_last: false,
        batch_size: u32::MAX,
        world: World { nodes, ranks_per_node: 1 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    }
}

/// The samples that each node reads, epoch by epoch.
///
/// Empty without a sample or a node for each sample.
pub(super) fn epochs_of(samples: u32, nodes: u32, seed: u64, epochs: u32) -> Vec<Vec<Vec<u32>>> {
    let spec = order(samples, nodes, seed, epochs);
    if spec.validate().is_err() {
        return Vec::new();
    }
    let orders: Vec<_> = (0..epochs).filter_map(|epoch| spec.epoch(Epoch(epoch))).collect();
    let of = |node| {
        orders.iter().map(move |order| order.batch(Rank(node), Step(0)).map(|it| it.0).collect())
    };
    (0..nodes).map(|node| of(node).collect()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_sample_is_dealt_to_one_node_in_each_epoch() {
        let nodes = epochs_of(900, 3, 7, 2);
        for epoch in 0..2 {
            let all: BTreeSet<_> = nodes.iter().flat_map(|node| node[epoch].clone()).collect();
            assert_eq!(all.len(), 900);
            assert!(nodes.iter().all(|node| node[epoch].len() == 300));
        }
        assert_ne!(nodes[0][0], nodes[0][1]);
        assert_eq!(epochs_of(0, 3, 7, 2), Vec::<Vec<Vec<u32>>>::new());
    }
}
