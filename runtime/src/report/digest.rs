//! The order in which ranks were given samples, as one number.

use std::{cell::OnceCell, collections::BTreeMap};

use tierfeed_core::{
    id::{Epoch, Rank, SampleId, Step},
    order::{EpochOrder, Spec},
    session::Run,
};
use xxhash_rust::xxh3::Xxh3;

/// Permutations are kept up to this size, so that few ranks do not draw them again and again.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// An epoch's order that a trainer published, as the agent kept it.
pub trait Published {
    /// What `rank` reads in `epoch`, or `None` if it never said.
    fn samples(&self, rank: Rank, epoch: Epoch) -> Option<Vec<SampleId>>;
}

/// The xxh3-64 of the sample ids (u64, little-endian) in the order the first rank was given them,
/// then the second's, and so on.
#[must_use]
pub fn order_digest(
    order: &Spec,
    handed: &BTreeMap<Rank, Vec<Run>>,
    published: &dyn Published,
) -> u64 {
    let epochs = Epochs::new(order);
    let mut hash = Xxh3::new();
    for (rank, runs) in handed {
        for run in runs {
            epochs.visit(*rank, *run, published, |sample| {
                hash.update(&u64::from(sample.0).to_le_bytes());
            });
        }
    }
    hash.digest()
}

struct Epochs<'a> {
    order: &'a Spec,
    kept: Vec<OnceCell<Option<EpochOrder>>>,
}

impl<'a> Epochs<'a> {
    fn new(order: &'a Spec) -> Self {
        let bytes = u64::from(order.samples) * 4 * u64::from(order.epochs);
        let kept = if bytes <= KEPT_BYTES_MAX { order.epochs as usize } else { 0 };
        Self { order, kept: vec![OnceCell::new(); kept] }
    }

    fn visit(&self, rank: Rank, run: Run, published: &dyn Published, visit: impl FnMut(SampleId)) {
        let drawn;
        let computed = if let Some(cell) = self.kept.get(run.epoch.0 as usize) {
            cell.get_or_init(|| self.order.epoch(run.epoch)).as_ref()
        } else {
            drawn = self.order.epoch(run.epoch);
            drawn.as_ref()
        };
        if let Some(epoch) = computed {
            let steps = run.first.0..run.first.0 + run.count;
            steps.flat_map(|step| epoch.batch(rank, Step(step))).for_each(visit);
        } else if let Some(samples) = published.samples(rank, run.epoch) {
            let first = u64::from(run.first.0) * u64::from(self.order.batch_size);
            let count = u64::from(run.count) * u64::from(self.order.batch_size);
            let first = usize::try_from(first).unwrap_or(usize::MAX);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            samples.into_iter().skip(first).take(count).for_each(visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::order::{Position, Shuffle, World};

    use super::*;

    struct Nothing;

    impl Published for Nothing {
        fn samples(&self, _: Rank, _: Epoch) -> Option<Vec<SampleId>> {
            None
        }
    }

    struct Backwards;

    impl Published for Backwards {
        fn samples(&self, rank: Rank, _: Epoch) -> Option<Vec<SampleId>> {
            Some((0..5).rev().map(|at| SampleId(at * 2 + rank.0)).collect())
        }
    }

    fn spec(shuffle: Shuffle) -> Spec {
        Spec {
            samples: 10,
            shuffle,
            seed: 42,
            epochs: 2,
            drop_last: false,
            batch_size: 2,
            world: World { nodes: 1, ranks_per_node: 2 },
            start: Position::START,
        }
    }

    fn run(epoch: u32, first: u32, count: u32) -> Run {
        Run { epoch: Epoch(epoch), first: Step(first), count }
    }

    /// The definition, by hand.
    fn digest_of(samples: &[u64]) -> u64 {
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }

    #[test]
    fn ranks_follow_one_another_and_steps_follow_in_each() {
        let handed = BTreeMap::from([
            (Rank(0), vec![run(0, 0, 3)]),
            (Rank(1), vec![run(0, 0, 1), run(0, 2, 1)]),
        ]);
        let digest = order_digest(&spec(Shuffle::Sequential), &handed, &Nothing);
        assert_eq!(digest, digest_of(&[0, 2, 4, 6, 8, 1, 3, 9]));
        assert_ne!(digest, digest_of(&[1, 3, 9, 0, 2, 4, 6, 8]));
    }

    #[test]
    fn the_digest_is_that_of_pytorch_s_sampler() {
        // torch 1.13: for rank in 0, 1: DistributedSampler(range(10), 2, rank, seed=42), epochs 0, 1.
        let handed: BTreeMap<_, _> =
            (0..2).map(|rank| (Rank(rank), vec![run(0, 0, 3), run(1, 0, 3)])).collect();
        let digest = order_digest(&spec(Shuffle::TORCH_DISTRIBUTED), &handed, &Nothing);
        assert_eq!(digest, digest_of(&TORCH));
    }

    #[test]
    fn a_published_order_counts_as_it_was_published() {
        let handed = BTreeMap::from([(Rank(1), vec![run(0, 1, 2)])]);
        let digest = order_digest(&spec(Shuffle::Published), &handed, &Backwards);
        assert_eq!(digest, digest_of(&[5, 3, 1]));
    }

    #[test]
    fn permutations_that_are_not_kept_give_the_same_digest() {
        let order = Spec { samples: 3_000_000, batch_size: 1_000_000, ..spec(Shuffle::Sequential) };
        let handed = BTreeMap::from([(Rank(0), vec![run(1, 0, 2)])]);
        let samples: Vec<u64> = (0..1_500_000).map(|at| at * 2).collect();
        assert_eq!(order_digest(&order, &handed, &Nothing), digest_of(&samples));
    }

    const TORCH: [u64; 20] = [2, 1, 4, 0, 3, 8, 9, 5, 6, 2, 6, 8, 5, 9, 7, 4, 0, 1, 7, 3];
}
