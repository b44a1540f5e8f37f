//! Hit ratios over whole runs, compared with an independent simulator and with a paper.

use super::*;
use crate::retention::replay::Replay;

const READS: u32 = 6_000;

/// The tables are rounded to 0.0005 and come from one seed with ten times as many samples.
const TOLERANCE: f64 = 0.005;

/// Hits as a share of all reads of a run in which the node caches `cached` of the dataset.
fn hits(kind: Kind, nodes: u32, cached: f64, epochs: u32) -> f64 {
    let order = order(READS * nodes, nodes, epochs);
    let served = served(kind, &setting(order, &[part(order.samples, cached)]));
    1.0 - ratio(served.iter().map(|it| it[0]).sum(), u64::from(READS * epochs))
}

/// Reads by epoch: from the cold store, then from each tier.
fn served(kind: Kind, setting: &Setting) -> Vec<Vec<u64>> {
    let mut replay = Replay::new(kind, setting);
    let epochs = core::iter::from_fn(|| replay.epoch());
    let amounts =
        epochs.map(|it| core::iter::once(it.cold).chain(it.tiers).map(|of| of.samples).collect());
    amounts.collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of a small run")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
fn part(samples: u32, share: f64) -> u32 {
    (f64::from(samples) * share).round() as u32
}

fn check(kind: Kind, nodes: u32, cached: f64, epochs: u32, expected: f64) {
    let hits = hits(kind, nodes, cached, epochs);
    assert!(
        (hits - expected).abs() <= TOLERANCE,
        "{kind}, {nodes} nodes, {cached} cached, {epochs} epochs: {hits:.4} instead of {expected}"
    );
}

/// LRU, FIFO, page cache, and the ratio of all policies with foresight.
#[test]
fn one_node_hits_as_tabled() {
    let rows = [
        (0.05, 10, [0.001, 0.001, 0.005, 0.045]),
        (0.2, 10, [0.019, 0.021, 0.092, 0.180]),
        (0.296, 10, [0.044, 0.050, 0.161, 0.266]),
        (0.296, 50, [0.048, 0.054, 0.214, 0.290]),
        (0.5, 10, [0.138, 0.174, 0.284, 0.450]),
        (0.75, 10, [0.363, 0.513, 0.494, 0.675]),
    ];
    for (cached, epochs, [lru, fifo, page_cache, best]) in rows {
        check(Kind::Lru, 1, cached, epochs, lru);
        check(Kind::Fifo, 1, cached, epochs, fifo);
        check(Kind::PageCache, 1, cached, epochs, page_cache);
        for kind in [Kind::Pinned, Kind::NoPfs, Kind::Lobster, Kind::Belady] {
            check(kind, 1, cached, epochs, best);
        }
    }
}

/// LRU, FIFO, page cache, pinned, `NoPFS`, Lobster as printed, Belady.
#[test]
fn three_nodes_hit_as_tabled() {
    let rows = [
        (0.05, 10, [0.003, 0.003, 0.007, 0.045, 0.082, 0.135, 0.135]),
        (0.2, 10, [0.058, 0.063, 0.107, 0.180, 0.270, 0.300, 0.407]),
        (0.296, 10, [0.132, 0.148, 0.194, 0.267, 0.360, 0.300, 0.511]),
        (0.296, 50, [0.144, 0.161, 0.242, 0.290, 0.348, 0.327, 0.575]),
        (0.5, 10, [0.346, 0.358, 0.373, 0.433, 0.526, 0.300, 0.629]),
        (0.75, 10, [0.576, 0.580, 0.577, 0.609, 0.661, 0.300, 0.704]),
    ];
    for (cached, epochs, [lru, fifo, page_cache, pinned, nopfs, lobster, best]) in rows {
        check(Kind::Lru, 3, cached, epochs, lru);
        check(Kind::Fifo, 3, cached, epochs, fifo);
        check(Kind::PageCache, 3, cached, epochs, page_cache);
        check(Kind::Pinned, 3, cached, epochs, pinned);
        check(Kind::NoPfs, 3, cached, epochs, nopfs);
        check(Kind::Lobster, 3, cached, epochs, lobster);
        check(Kind::Belady, 3, cached, epochs, best);
    }
}

/// The mean over three nodes and three trials of what DELI measured in its second epoch, with caches for
/// 25, 50, 75 % and all of a node's part of MNIST's 42,000 samples (its figure 5).
#[test]
fn deli_misses_as_often_as_was_measured() {
    for (cached, measured) in [(3_500, 0.989), (7_000, 0.953), (10_500, 0.887), (42_000, 0.668)] {
        let runs = (0..3).flat_map(|seed| (0..3).map(move |node| (seed, NodeId(node))));
        let misses = runs.map(|(seed, node)| {
            let order = Spec { seed, ..order(42_000, 3, 2) };
            served(Kind::Deli, &Setting { node, ..setting(order, &[cached]) })[1][0]
        });
        let misses = ratio(misses.sum(), 3 * 42_000);
        assert!((misses - measured).abs() <= TOLERANCE, "{cached}: {misses:.4}, not {measured}");
    }
}

/// On one node Belady's hits come in the first part of an epoch.
#[test]
fn the_hits_of_belady_are_bunched() {
    let order = order(READS, 1, 3);
    let mut replay = Replay::new(Kind::Belady, &setting(order, &[part(READS, 0.296)]));
    replay.epoch().unwrap();
    let mut hits = [0_u32; 10];
    replay
        .epoch_seen(&mut |batch, _, tier| {
            hits[(batch.step.0 * order.batch_size * 10 / READS) as usize] +=
                u32::from(tier.is_some());
        })
        .unwrap();
    assert_eq!((hits[0], hits[1]), (READS / 10, READS / 10));
    assert_eq!(hits[3..], [0; 7]);
}
