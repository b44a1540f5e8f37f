//! PyTorch's permutations where its releases part: a gigabyte and some seconds each, so behind a feature.
//!
//! `cargo test --release -p tierfeed-core --features large_vectors large`

use super::*;
use crate::order::{
    mt19937::Mt19937,
    torch::{Version, Width, permute},
};

fn check(text: &str, version: &str) {
    let version: Version = version.parse().unwrap();
    let cases = cases(text);
    assert_eq!(cases.len(), 4);
    for case in cases {
        let samples = number(&case, "n");
        let mut items: Vec<u32> = (0..samples).collect();
        let mut generator = Mt19937::new(seed(&case));
        permute(&mut items, &mut generator, Width::of(samples, Some(version)).unwrap());
        assert_eq!(items[..10], numbers(&case["first"])[..], "{case}");
        assert_eq!(crc_of(&items), number(&case, "crc32"), "{case}");
        let next = generator.double_word() & (u64::MAX >> 1);
        assert_eq!(next, case["next_int64_random_"].as_u64().unwrap(), "{case}");
    }
}

#[test]
fn before_2_6_words_stay_narrow() {
    check(include_str!("../../../tests/vectors/randperm_large.json"), "1.13.0a0");
}

#[test]
fn since_2_6_words_are_wide_from_the_threshold_on() {
    check(include_str!("../../../tests/vectors/randperm_large_2.6.json"), "2.6.0+debian");
}
