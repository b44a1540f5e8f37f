//! The digest of the order in which ranks were given samples.

use std::collections::BTreeMap;

use tierfeed_core::{
    id::{Epoch, Rank, SampleId, Step},
    order::{EpochOrder, Spec},
    session::Run,
};
use xxhash_rust::xxh3::Xxh3;

/// The most samples of a digest, which holds 4 B for each meanwhile.
const SAMPLES_MAX: u64 = 128 << 20;

/// An epoch's order that a trainer published, as the agent kept it.
pub trait Published {
    /// `None` if `rank` published no order.
    fn samples(&self, rank: Rank, epoch: Epoch) -> Option<Vec<SampleId>>;
}

/// The xxh3-64 of the sample ids (u64, little-endian) in the order the first rank was given them,
/// then the second's, and so on.
///
/// Permuting an epoch of millions of samples takes a second, for all ranks together. `may_go_on` is called
/// before each epoch; `None` if it returns `false`, or if there are more than [`SAMPLES_MAX`] samples.
#[must_use]
pub fn order_digest(
    order: &Spec,
    handed: &BTreeMap<Rank, Vec<Run>>,
    published: &dyn Published,
    may_go_on: impl Fn() -> bool,
) -> Option<u64> {
    let batches: u64 = handed.values().flatten().map(|run| u64::from(run.count)).sum();
    if batches.saturating_mul(u64::from(order.batch_size)) > SAMPLES_MAX {
        return None;
    }
    let mut by_epoch: BTreeMap<Epoch, Vec<(Rank, usize, Run)>> = BTreeMap::new();
    for (rank, runs) in handed {
        for (at, run) in runs.iter().enumerate() {
            by_epoch.entry(run.epoch).or_default().push((*rank, at, *run));
        }
    }
    let mut given: BTreeMap<(Rank, usize), Vec<SampleId>> = BTreeMap::new();
    for (epoch, runs) in by_epoch {
        if !may_go_on() {
            return None;
        }
        let computed = order.epoch(epoch);
        for (rank, at, run) in runs {
            let samples = match &computed {
                Some(computed) => of_run(computed, rank, run),
                None => of_published(published, order.batch_size, rank, run),
            };
            given.insert((rank, at), samples);
        }
    }
    let mut hash = Xxh3::new();
    for sample in given.values().flatten() {
        hash.update(&u64::from(sample.0).to_le_bytes());
    }
    Some(hash.digest())
}

fn of_run(epoch: &EpochOrder, rank: Rank, run: Run) -> Vec<SampleId> {
    let steps = run.first.0..run.first.0 + run.count;
    steps.flat_map(|step| epoch.batch(rank, Step(step))).collect()
}

fn of_published(published: &dyn Published, batch_size: u32, rank: Rank, run: Run) -> Vec<SampleId> {
    let samples = |steps: u32| {
        let samples = u64::from(steps) * u64::from(batch_size);
        usize::try_from(samples).unwrap_or(usize::MAX)
    };
    let all = published.samples(rank, run.epoch).unwrap_or_default();
    all.into_iter().skip(samples(run.first.0)).take(samples(run.count)).collect()
}

#[cfg(test)]
mod tests {
    use tierfeed_core::order::{FurtherDatasets, Position, Shuffle, World};

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
            further: FurtherDatasets::NONE,
        }
    }

    fn run(epoch: u32, first: u32, count: u32) -> Run {
        Run { epoch: Epoch(epoch), first: Step(first), count }
    }

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
        let digest = order_digest(&spec(Shuffle::Sequential), &handed, &Nothing, || true);
        assert_eq!(digest, Some(digest_of(&[0, 2, 4, 6, 8, 1, 3, 9])));
        assert_ne!(digest, Some(digest_of(&[1, 3, 9, 0, 2, 4, 6, 8])));
    }

    #[test]
    fn the_digest_is_that_of_pytorch_s_sampler() {
        // torch 1.13: for rank in 0, 1: DistributedSampler(range(10), 2, rank, seed=42), epochs 0, 1.
        let handed: BTreeMap<_, _> =
            (0..2).map(|rank| (Rank(rank), vec![run(0, 0, 3), run(1, 0, 3)])).collect();
        let digest = order_digest(&spec(Shuffle::TORCH_DISTRIBUTED), &handed, &Nothing, || true);
        assert_eq!(digest, Some(digest_of(&TORCH)));
    }

    #[test]
    fn a_published_order_counts_as_it_was_published() {
        let handed = BTreeMap::from([(Rank(1), vec![run(0, 1, 2)])]);
        let digest = order_digest(&spec(Shuffle::Published), &handed, &Backwards, || true);
        assert_eq!(digest, Some(digest_of(&[5, 3, 1])));
    }

    #[test]
    fn what_takes_too_long_or_too_much_memory_has_no_digest() {
        let asked = std::cell::Cell::new(0);
        let may_go_on = || asked.replace(asked.get() + 1) == 0;
        let handed = BTreeMap::from([(Rank(0), vec![run(0, 0, 3), run(1, 0, 3)])]);
        let order = spec(Shuffle::Sequential);
        assert_eq!(order_digest(&order, &handed, &Nothing, may_go_on), None);
        assert_eq!(asked.get(), 2, "once for each epoch");
        let order = Spec { batch_size: u32::MAX, ..order };
        assert_eq!(order_digest(&order, &handed, &Nothing, || true), None);
    }

    const TORCH: [u64; 20] = [2, 1, 4, 0, 3, 8, 9, 5, 6, 2, 6, 8, 5, 9, 7, 4, 0, 1, 7, 3];
}
