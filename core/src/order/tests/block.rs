//! tierfeed's own order: what its definition promises.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::order::block::Block;

fn block(samples: u32, shard: u32, window: u32, seed: u64) -> Spec {
    Spec { seed, ..spec(samples, Shuffle::Block(Block { shard, window })) }
}

proptest! {
    #[test]
    fn every_sample_is_read_once(
        samples in 1_u32..500,
        shard in 1_u32..60,
        window in 1_u32..90,
        seed: u64,
        epoch in 0_u32..1_000,
    ) {
        let order = sequence(&block(samples, shard, window, seed), epoch);
        prop_assert_eq!(order.len(), samples as usize);
        prop_assert_eq!(order.into_iter().collect::<BTreeSet<_>>().len(), samples as usize);
    }

    /// A window opens few shards, whole but for its ends: this suits a disk that seeks.
    #[test]
    fn a_window_holds_shards_that_lie_together(
        samples in 1_u32..2_000,
        shard in 1_u32..60,
        window in 1_u32..200,
        seed: u64,
    ) {
        let order = sequence(&block(samples, shard, window, seed), 0);
        // A short last shard may stand between two whole ones.
        let shards_max = (window.div_ceil(shard) + 2) as usize;
        for window in order.chunks(window as usize) {
            let opened: BTreeSet<u32> = window.iter().map(|sample| sample / shard).collect();
            prop_assert!(opened.len() <= shards_max, "{} shards", opened.len());
        }
    }

    /// With a window of one sample, the sequence of shards itself is visible.
    #[test]
    fn windows_are_cut_from_the_row_of_shards(
        samples in 1_u32..500,
        shard in 1_u32..60,
        window in 1_u32..90,
        seed: u64,
    ) {
        let row = sequence(&block(samples, shard, 1, seed), 0);
        let mixed = sequence(&block(samples, shard, window, seed), 0);
        for (row, mixed) in row.chunks(window as usize).zip(mixed.chunks(window as usize)) {
            let set = |samples: &[u32]| samples.iter().copied().collect::<BTreeSet<_>>();
            prop_assert_eq!(set(row), set(mixed));
        }
        let ascends = row.windows(2).all(|pair| pair[0] / shard != pair[1] / shard || pair[0] < pair[1]);
        prop_assert!(ascends, "samples ascend in their shard");
    }
}

#[test]
fn seed_epoch_and_window_matter() {
    let base = sequence(&block(400, 20, 100, 1), 0);
    assert_ne!(base, sequence(&block(400, 20, 100, 2), 0));
    assert_ne!(base, sequence(&block(400, 20, 100, 1 << 32 | 1), 0));
    assert_ne!(base, sequence(&block(400, 20, 100, 1), 1));
    // Two windows of the same samples would be mixed alike if their number did not count.
    let one_shard = sequence(&block(200, 200, 100, 1), 0);
    let second: Vec<u32> = one_shard[100..].iter().map(|sample| sample - 100).collect();
    assert_ne!(one_shard[..100], second[..]);
}

/// Vectors that were computed by a second implementation in another language.
#[test]
fn the_order_is_as_documented() {
    check(block(10, 3, 5, 0), 0, &[3, 4, 0, 5, 9, 2, 8, 6, 1, 7]);
    check(block(10, 3, 5, 0), 1, &[0, 9, 6, 7, 8, 4, 5, 2, 3, 1]);
    check(block(12, 4, 8, (1 << 40) + 7), 2, &[8, 9, 10, 2, 0, 11, 3, 1, 4, 6, 5, 7]);
    assert_eq!(crc_of(&sequence(&block(100_000, 1_000, 8_192, 42), 0)), 1_999_841_039);
    assert_eq!(crc_of(&sequence(&block(100_000, 1_000, 8_192, 42), 7)), 369_941_019);
    assert_eq!(crc_of(&sequence(&block(50_001, 128, 50_001, 9), 3)), 1_434_103_333);
}

fn check(spec: Spec, epoch: u32, expected: &[u32]) {
    assert_eq!(sequence(&spec, epoch), expected, "{spec:?}");
}

#[test]
fn shards_are_read_in_every_order() {
    let mut seen = BTreeSet::new();
    for epoch in 0..200 {
        seen.insert(sequence(&block(3, 1, 1, 0), epoch));
    }
    assert_eq!(seen.len(), 6);
}
