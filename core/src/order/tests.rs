//! The order is PyTorch's: vectors drawn from the real library (`core/tests/vectors/`).

use std::{collections::BTreeSet, vec::Vec};

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::order::mt19937::Mt19937;

fn spec(samples: u32, ranks: u32) -> Spec {
    Spec {
        samples,
        shuffle: Shuffle::TorchDistributed,
        seed: 0,
        epochs: 1,
        drop_last: false,
        batch_size: 4,
        world: World { nodes: 1, ranks_per_node: ranks },
    }
}

fn crc32(samples: impl Iterator<Item = u32>) -> u32 {
    let mut crc = u32::MAX;
    for byte in samples.flat_map(|sample| i64::from(sample).to_le_bytes()) {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

fn cases(text: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(text).unwrap();
    document["cases"].as_array().unwrap().clone()
}

fn number(case: &Value, key: &str) -> u32 {
    u32::try_from(case[key].as_u64().unwrap()).unwrap()
}

#[test]
fn randperm_is_torch_randperm() {
    let cases = cases(include_str!("../../tests/vectors/randperm.json"));
    assert!(cases.len() > 20);
    for case in cases {
        let seed = case["seed"].as_i64().unwrap().cast_unsigned();
        let permutation = torch::randperm(number(&case, "n"), seed);
        assert_eq!(crc32(permutation.into_iter()), number(&case, "crc32"), "{case}");
    }
}

#[test]
fn the_order_is_that_of_distributed_sampler() {
    let cases = cases(include_str!("../../tests/vectors/distributed_sampler.json"));
    assert!(cases.len() > 20);
    for case in cases {
        let spec = Spec {
            seed: case["seed"].as_u64().unwrap(),
            epochs: u32::MAX,
            drop_last: case["drop_last"].as_bool().unwrap(),
            ..spec(number(&case, "n"), number(&case, "world"))
        };
        let epoch = spec.epoch(Epoch(number(&case, "epoch"))).unwrap();
        let samples: Vec<u32> = (0..spec.steps_per_epoch())
            .flat_map(|step| {
                epoch.batch(Rank(number(&case, "rank")), Step(step)).collect::<Vec<_>>()
            })
            .map(|sample| sample.0)
            .collect();
        assert_eq!(samples.len(), number(&case, "len") as usize, "{case}");
        assert_eq!(crc32(samples.into_iter()), number(&case, "crc32"), "{case}");
    }
}

#[test]
fn the_generator_uses_the_low_half_of_the_seed() {
    assert_eq!(Mt19937::new(1 << 32).word(), Mt19937::new(0).word());
    assert_ne!(Mt19937::new(1).word(), Mt19937::new(0).word());
}

#[test]
fn an_order_of_nothing_is_refused() {
    let nothing = Spec { samples: 0, ..spec(1, 1) };
    assert_eq!(nothing.validate(), Err(SpecError::Zero { field: "dataset" }));
    let truncated = Spec { drop_last: true, ..spec(3, 4) };
    assert_eq!(truncated.validate(), Err(SpecError::NothingLeft { samples: 3, ranks: 4 }));
    let large = spec(torch::SAMPLES_MAX + 1, 1);
    assert!(matches!(large.validate(), Err(SpecError::TooManySamples { .. })));
}

proptest! {
    #[test]
    fn every_sample_is_read_once_but_for_padding(
        samples in 1_u32..200,
        ranks in 1_u32..9,
        batch_size in 1_u32..20,
        seed: u64,
        drop_last: bool,
    ) {
        let spec = Spec { seed, drop_last, batch_size, ..spec(samples, ranks) };
        prop_assume!(spec.validate().is_ok());
        let epoch = spec.epoch(Epoch(0)).unwrap();
        let steps = epoch.steps(NodeId(0));
        let mut seen = BTreeSet::new();
        let mut read = 0_u32;
        for rank in 0..ranks {
            for step in 0..spec.steps_per_epoch() {
                for sample in epoch.batch(Rank(rank), Step(step)) {
                    read += 1;
                    if seen.insert(sample) {
                        let first = steps[sample.0 as usize];
                        prop_assert!(first.is_some_and(|first| first <= Step(step)));
                    }
                }
            }
        }
        prop_assert_eq!(read, spec.samples_per_rank() * ranks);
        let expected = if drop_last { samples / ranks * ranks } else { samples };
        prop_assert_eq!(seen.len(), expected as usize);
        let step = Step(spec.steps_per_epoch() - 1);
        let last = BatchId { epoch: Epoch(0), step, rank: Rank(0) };
        prop_assert_eq!(spec.after(last), None);
    }
}
