//! The orders of tf.data, and the index shuffles of TensorFlow and Grain.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::order::{
    index_shuffle::IndexShuffle,
    philox::Philox,
    tf::{Buffered, DEFAULT_GRAPH_SEED, Index, Reshuffle, SecondSeed, effective_seeds},
};

#[test]
fn the_order_is_that_of_tf_data_over_six_iterations() {
    let cases = cases(include_str!("../../../tests/vectors/tf_data_shuffle.json"));
    assert_eq!(cases.len(), 76);
    for case in cases {
        let own = case["op_seed"].as_u64().unwrap();
        let global_seed = case["global_seed"].as_u64().unwrap_or(DEFAULT_GRAPH_SEED);
        let (seed, seed2) = effective_seeds(global_seed, own);
        assert_eq!(serde_json::json!([seed, seed2]), case["eff"], "{case}");
        let is_new = case["reshuffle"].as_bool().unwrap();
        let reshuffle = if is_new { Reshuffle::EachIteration } else { Reshuffle::Never };
        let buffered = Buffered { buffer: number(&case, "buffer"), global_seed, reshuffle };
        let spec = Spec { seed: own, ..spec(number(&case, "n"), Shuffle::TfShuffle(buffered)) };
        for (number, epoch) in (0..).zip(case["epochs"].as_array().unwrap()) {
            let order = sequence(&spec, number);
            let first = numbers(&epoch["first"]);
            assert_eq!(order[..first.len()], first[..], "{number} of {case}");
            assert_eq!(crc_of(&order), self::number(epoch, "crc32"), "{number} of {case}");
        }
        let repeated: Vec<u32> = (3..6).flat_map(|epoch| sequence(&spec, epoch)).collect();
        if !case["repeat3"].is_null() {
            assert_eq!(repeated, numbers(&case["repeat3"]), "{case}");
        }
    }
}

/// The counter-based generator of the paper's `kat_vectors` file.
#[test]
fn philox_draws_the_words_of_its_paper() {
    let check = |key: [u32; 2], counter: [u32; 4], expected: [u32; 4]| {
        let mut philox = Philox::new(key, counter);
        assert_eq!([(); 4].map(|()| philox.word()), expected);
    };
    check([0; 2], [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    check([0xffff_ffff; 2], [0xffff_ffff; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
}

#[test]
fn the_counter_carries_into_all_its_words() {
    let mut before = Philox::new([1, 2], [u32::MAX, u32::MAX, u32::MAX, 7]);
    (0..4).for_each(|_| _ = before.word());
    let mut after = Philox::new([1, 2], [0, 0, 0, 8]);
    assert_eq!(before.word(), after.word());
}

fn check_index(case: &Value, shuffle: &IndexShuffle) {
    let max = case["max_index"].as_u64().unwrap();
    let count = case["count"].as_u64().unwrap();
    let values: Vec<u64> = (0..count).map(|index| shuffle.of(index)).collect();
    let first: Vec<u64> =
        case["first"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
    assert_eq!(values[..first.len()], first[..], "{case}");
    assert_eq!(crc32(values), number(case, "crc32"), "{case} up to {max}");
}

#[test]
fn the_index_shuffle_is_tensorflow_s() {
    let cases = cases(include_str!("../../../tests/vectors/tf_index_shuffle.json"));
    assert_eq!(cases.len(), 36);
    for case in cases {
        let key: [u32; 3] = numbers(&case["key"]).try_into().unwrap();
        let (max, rounds) = (case["max_index"].as_u64().unwrap(), number(&case, "rounds"));
        check_index(&case, &IndexShuffle::of_tensorflow(key, max, rounds as usize));
    }
}

/// The public call puts a number before its two seeds and uses four rounds.
#[test]
fn tf_index_is_the_public_call() {
    let cases = cases(include_str!("../../../tests/vectors/tf_index_shuffle.json"));
    let mut seen = 0;
    for case in cases.iter().filter(|it| it["key"] == serde_json::json!([498_247_692, 5, 8])) {
        let samples = case["max_index"].as_u64().unwrap() + 1;
        let Ok(samples @ 2..2_000) = u32::try_from(samples) else { continue };
        if case["rounds"] != 4 {
            continue;
        }
        seen += 1;
        let shuffle = |second| Shuffle::TfIndex(Index { second });
        let fixed = Spec { seed: 5, ..spec(samples, shuffle(SecondSeed::Fixed(8))) };
        let by_epoch = Spec { seed: 5, ..spec(samples, shuffle(SecondSeed::Epoch)) };
        let first = numbers(&case["first"]);
        for order in [sequence(&fixed, 0), sequence(&fixed, 3), sequence(&by_epoch, 8)] {
            assert_eq!(order[..first.len()], first[..], "{case}");
        }
        assert!(samples == 2 || sequence(&by_epoch, 8) != sequence(&by_epoch, 9));
    }
    assert_eq!(seen, 3);
}

#[test]
fn the_index_shuffle_is_grain_s() {
    let text = include_str!("../../../tests/vectors/grain_index_shuffle.json");
    let cases = cases(text);
    assert_eq!(cases.len(), 60);
    for case in cases {
        let (seed, rounds) = (number(&case, "seed"), number(&case, "rounds"));
        let max = case["max_index"].as_u64().unwrap();
        check_index(&case, &IndexShuffle::of_grain_rounds(seed, max, rounds as usize));
    }
    let two = numbers(&document(text)["map_dataset_shuffle_seed42_n10_2epochs"]);
    let spec = Spec { seed: 42, ..spec(10, Shuffle::Grain) };
    assert_eq!([sequence(&spec, 0), sequence(&spec, 1)].concat(), two);
}

#[test]
fn a_seed_of_grain_wraps_with_the_epoch() {
    let last = Spec { seed: u64::from(u32::MAX), ..spec(50, Shuffle::Grain) };
    assert_eq!(sequence(&last, 1), sequence(&spec(50, Shuffle::Grain), 0));
}

proptest! {
    #[test]
    fn an_index_shuffle_reaches_every_place_once(samples in 1_u32..3_000, seed: u32) {
        let shuffle = IndexShuffle::of_grain(samples, u64::from(seed), 0);
        let values: BTreeSet<u64> = (0..u64::from(samples)).map(|at| shuffle.of(at)).collect();
        prop_assert_eq!(values, (0..u64::from(samples)).collect::<BTreeSet<u64>>());
    }

    /// The ring buffer of `shuffle_dataset_op.cc`, as it is there.
    #[test]
    fn the_array_is_the_buffer(
        samples in 1_u32..600,
        buffer in 1_u32..700,
        seed in 0_u64..100,
        epoch in 0_u32..5,
    ) {
        let reshuffle = Reshuffle::EachIteration;
        let buffered = Buffered { buffer, global_seed: 3, reshuffle };
        let mut generator = Philox::of_seeds(3, seed);
        (0..2 * epoch).for_each(|_| _ = generator.word());
        let seeds = (generator.word(), generator.word());
        let mut words = Philox::of_seeds(u64::from(seeds.0), u64::from(seeds.1));
        let mut input = 0..samples;
        let mut ring: Vec<u32> = input.by_ref().take(buffer as usize).collect();
        let (mut expected, mut start, mut held) = (Vec::new(), 0, ring.len());
        while held > 0 {
            let offset = words.word() as usize % held;
            let (from, to) = (start % ring.len(), (start + offset) % ring.len());
            expected.push(ring[to]);
            ring.swap(from, to);
            start += 1;
            match input.next() {
                Some(sample) => ring[from] = sample,
                None => held -= 1,
            }
        }
        let spec = Spec { seed, ..spec(samples, Shuffle::TfShuffle(buffered)) };
        prop_assert_eq!(sequence(&spec, epoch), expected);
    }
}
