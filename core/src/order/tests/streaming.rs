//! NumPy's permutations and MosaicML Streaming's orders.

use super::*;
use crate::order::{
    mosaic::{Algorithm, Mosaic},
    pcg64::Pcg64,
};

#[test]
fn the_permutation_is_numpy_s() {
    let text = include_str!("../../../tests/vectors/numpy_mosaic_shuffle.json");
    let cases = document(text)["permutation"].as_array().unwrap().clone();
    assert!(cases.len() > 20 && cases.iter().any(|case| case["n"] == 1_281_167));
    for case in cases {
        let seed: u128 = case["seed"].as_str().unwrap().parse().unwrap();
        let mut items: Vec<u32> = (0..number(&case, "n")).collect();
        Pcg64::new(seed).shuffle(&mut items);
        assert_eq!(crc_of(&items), number(&case, "crc32"), "{case}");
    }
}

/// 200 times `integers(7, 3_000_000_007)` of NumPy 1.24: a span that makes it draw again and again.
#[test]
fn integers_are_numpy_s() {
    let mut rng = Pcg64::new(5);
    let drawn: Vec<u32> = (0..200).map(|_| rng.integer(7, 3_000_000_007)).collect();
    assert_eq!(drawn[..3], [2_415_008_777, 67_959_665, 1_545_976_689]);
    assert_eq!(crc_of(&drawn), 2_860_115_402);
}

fn algorithm(name: &Value) -> Algorithm {
    Algorithm::ALL.into_iter().find(|it| it.name() == name).unwrap()
}

#[test]
fn every_algorithm_is_streaming_s() {
    let text = include_str!("../../../tests/vectors/numpy_mosaic_shuffle.json");
    let cases = document(text)["streaming"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let shards = numbers(&case["shard_sizes"]);
        let mosaic = Mosaic {
            algorithm: algorithm(&case["algo"]),
            shard: shards[0],
            canonical_nodes: number(&case, "num_canonical_nodes"),
            block: number(&case, "block_size"),
        };
        let spec = Spec { seed: seed(&case), ..spec(shards.iter().sum(), Shuffle::Mosaic(mosaic)) };
        let order = sequence(&spec, number(&case, "epoch"));
        let first = numbers(&case["first"]);
        assert_eq!(order[..first.len()], first[..], "{case}");
        assert_eq!(crc_of(&order), number(&case, "crc32"), "{case}");
    }
}

#[test]
fn every_rank_reads_what_streaming_deals_to_it() {
    let cases = cases(include_str!("../../../tests/vectors/streaming_ranks.json"));
    assert_eq!(cases.len(), 48);
    for case in cases {
        let mosaic = Mosaic {
            algorithm: algorithm(&case["algorithm"]),
            shard: number(&case, "shard"),
            canonical_nodes: number(&case, "canonical_nodes"),
            block: number(&case, "block"),
        };
        let (nodes, ranks_per_node) = (number(&case, "nodes"), number(&case, "ranks_per_node"));
        let epoch = Epoch(number(&case, "epoch"));
        // A run that resumes where another one stopped, perhaps in another world.
        let start = match case["start"].as_u64() {
            Some(samples) => Position { epoch, samples: u32::try_from(samples).unwrap() },
            None => Position::START,
        };
        let spec = Spec {
            seed: seed(&case),
            world: World { nodes, ranks_per_node },
            start,
            ..spec(number(&case, "samples"), Shuffle::Mosaic(mosaic))
        };
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!(spec.samples_per_rank_in(epoch), number(&case, "per_rank"), "{case}");
        let ranks = (0..nodes * ranks_per_node).map(Rank);
        let read: Vec<u32> = ranks.map(|rank| crc_of(&read_by(&spec, epoch, rank))).collect();
        assert_eq!(read, numbers(&case["crc32"]), "{case}");
    }
}

#[test]
fn worlds_that_streaming_cannot_serve_are_refused() {
    let check = |samples, canonical_nodes, nodes, block, expected: Result<(), SpecError>| {
        let mosaic = Mosaic { algorithm: Algorithm::Py1e, shard: 10, canonical_nodes, block };
        let world = World { nodes, ranks_per_node: 1 };
        let spec = Spec { world, ..spec(samples, Shuffle::Mosaic(mosaic)) };
        assert_eq!(spec.validate(), expected);
    };
    check(100, 4, 2, 2, Ok(()));
    check(100, 3, 2, 2, Err(SpecError::CanonicalNodes { canonical: 3, nodes: 2 }));
    check(4, 4, 2, 2, Err(SpecError::FewerThanCanonicalNodes { samples: 4, canonical: 4 }));
    check(100, 4, 2, 1, Err(SpecError::ShuffleBlock { block: 1, min: 2, max: 1 << 31 }));
    check(
        u32::MAX,
        1 << 20,
        1,
        9,
        Err(SpecError::TooManySamples { samples: u32::MAX, max: 0xfff0_0000 }),
    );
}
