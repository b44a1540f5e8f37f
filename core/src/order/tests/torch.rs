//! PyTorch's orders.

use proptest::prelude::*;

use super::*;
use crate::order::{
    mt19937::Mt19937,
    torch::{Generator, OLDEST_RANDOM, Random, Version, WIDE_SAMPLES, Width, Workers, permute},
};

fn randperm(samples: u32, seed: u64, width: Width) -> (Vec<u32>, Mt19937) {
    let mut items: Vec<u32> = (0..samples).collect();
    let mut generator = Mt19937::new(seed);
    permute(&mut items, &mut generator, width);
    (items, generator)
}

fn int64(generator: &mut Mt19937) -> u64 {
    generator.double_word() & (u64::MAX >> 1)
}

#[test]
fn the_generator_draws_what_pytorch_draws() {
    let cases = cases(include_str!("../../../tests/vectors/engine.json"));
    assert_eq!(cases.len(), 7);
    for case in cases {
        let mut generator = Mt19937::new(seed(&case));
        for wide in case["int64"].as_array().unwrap() {
            assert_eq!(int64(&mut generator), wide.as_u64().unwrap(), "{case}");
        }
        let mut generator = Mt19937::new(seed(&case));
        for narrow in numbers(&case["int32"]) {
            assert_eq!(generator.word() & (u32::MAX >> 1), narrow, "{case}");
        }
    }
}

#[test]
fn randperm_is_torch_randperm_and_draws_as_much() {
    let cases = cases(include_str!("../../../tests/vectors/randperm.json"));
    assert!(cases.iter().any(|case| case["n"] == 1_281_167));
    for case in cases {
        let (items, mut generator) = randperm(number(&case, "n"), seed(&case), Width::Narrow);
        assert_eq!(crc_of(&items), number(&case, "crc32"), "{case}");
        let first = numbers(&case["first"]);
        assert_eq!(items[..first.len()], first[..]);
        assert_eq!(int64(&mut generator), case["next_int64_random_"].as_u64().unwrap(), "{case}");
    }
}

#[test]
fn the_order_is_that_of_distributed_sampler() {
    let cases = cases(include_str!("../../../tests/vectors/distributed_sampler.json"));
    assert!(cases.len() > 20);
    for case in cases {
        let spec = Spec {
            seed: seed(&case),
            epochs: u32::MAX,
            drop_last: case["drop_last"].as_bool().unwrap(),
            world: World { nodes: 1, ranks_per_node: number(&case, "world") },
            ..spec(number(&case, "n"), Shuffle::TORCH_DISTRIBUTED)
        };
        let samples = read_by(&spec, Epoch(number(&case, "epoch")), Rank(number(&case, "rank")));
        assert_eq!(samples.len(), number(&case, "len") as usize, "{case}");
        assert_eq!(crc_of(&samples), number(&case, "crc32"), "{case}");
    }
}

fn random(generator: Generator, persistent: &Value) -> Random {
    let is_persistent = persistent.as_bool().unwrap();
    let workers = if is_persistent { Workers::Persistent } else { Workers::PerEpoch };
    Random { generator, workers, version: None }
}

#[test]
fn the_order_is_that_of_a_shuffling_data_loader() {
    let cases = cases(include_str!("../../../tests/vectors/dataloader_rng.json"));
    assert_eq!(cases.len(), 6);
    for case in cases {
        let is_explicit = case["explicit_generator"].as_bool().unwrap();
        let generator = if is_explicit { Generator::Loader } else { Generator::Default };
        let random = Shuffle::TorchRandom(random(generator, &case["persistent"]));
        let spec = Spec { seed: seed(&case), ..spec(10, random) };
        for (number, epoch) in (0..).zip(case["epochs"].as_array().unwrap()) {
            assert_eq!(sequence(&spec, number), numbers(&epoch["order"]), "{number} of {case}");
        }
    }
}

#[test]
fn every_kind_of_generator_is_followed_over_five_epochs() {
    let cases = cases(include_str!("../../../tests/vectors/dataloader.json"));
    assert_eq!(cases.len(), 36);
    for case in cases {
        let generator = Generator::ALL.into_iter().find(|it| it.name() == case["generator"]);
        let random = Shuffle::TorchRandom(random(generator.unwrap(), &case["persistent"]));
        let spec = Spec { seed: seed(&case), ..spec(number(&case, "n"), random) };
        let epochs: Vec<u32> = (0..5).map(|epoch| crc_of(&sequence(&spec, epoch))).collect();
        assert_eq!(epochs, numbers(&case["crc32"]), "{case}");
    }
}

/// PyTorch before 1.11 draws the permutation of the next epoch where later releases draw the one that
/// they discard.
#[test]
fn an_early_sampler_discards_nothing() {
    let version = |text: &str| Some(text.parse::<Version>().unwrap());
    let of = |version| {
        let random = Random { generator: Generator::Sampler, workers: Workers::PerEpoch, version };
        Spec { seed: 42, ..spec(100, Shuffle::TorchRandom(random)) }
    };
    let (early, late) = (of(version("1.10.2")), of(version("1.11.0")));
    assert_eq!(sequence(&early, 0), sequence(&late, 0));
    assert_eq!(sequence(&early, 2), sequence(&late, 1));
    assert_ne!(sequence(&early, 1), sequence(&late, 1));
    assert_eq!(sequence(&late, 1), sequence(&of(None), 1));
}

#[test]
fn what_cannot_be_predicted_is_refused_with_a_way_out() {
    let random =
        |version| Random { generator: Generator::Default, workers: Workers::PerEpoch, version };
    let too_old = Version { major: 1, minor: 8 };
    let error = spec(9, Shuffle::TorchRandom(random(Some(too_old)))).validate().unwrap_err();
    assert_eq!(error, SpecError::VersionTooOld { version: too_old });
    assert!(error.to_string().contains("1.8") && error.to_string().contains("published"));
    let world = World { nodes: 1, ranks_per_node: 2 };
    let error = Spec { world, ..spec(9, Shuffle::TorchRandom(random(None))) }.validate();
    assert_eq!(error, Err(SpecError::OneRank { ranks: 2 }));
    assert!(error.unwrap_err().to_string().contains("published"));
    let oldest = Shuffle::TorchRandom(random(Some(OLDEST_RANDOM)));
    assert_eq!(spec(9, oldest).validate(), Ok(()));
}

#[test]
fn from_the_wide_size_on_the_release_must_be_known() {
    let check = |samples: u32, text: &str, expected: Result<(), SpecError>| {
        let version = text.parse().ok();
        let shuffle = Shuffle::TorchDistributed { version };
        assert_eq!(spec(samples, shuffle).validate(), expected, "{samples} {text}");
    };
    check(WIDE_SAMPLES - 1, "", Ok(()));
    check(WIDE_SAMPLES, "", Err(SpecError::VersionNeeded { samples: 214_748_364 }));
    check(WIDE_SAMPLES, "2.5.1", Ok(()));
    check(u32::MAX, "2.6.0", Ok(()));
}

#[test]
fn the_width_changes_with_size_and_release_only() {
    let version = |text: &str| Some(text.parse::<Version>().unwrap());
    assert_eq!(Width::of(WIDE_SAMPLES - 1, version("2.6.0")), Some(Width::Narrow));
    assert_eq!(Width::of(WIDE_SAMPLES, version("2.5.1")), Some(Width::Narrow));
    assert_eq!(Width::of(WIDE_SAMPLES, version("2.6.0")), Some(Width::Wide));
    assert_eq!(Width::of(WIDE_SAMPLES, version("2.10.0")), Some(Width::Wide));
    assert_eq!(Width::of(WIDE_SAMPLES, version("10.0")), Some(Width::Wide));
}

#[test]
fn a_version_is_read_as_pytorch_prints_it() {
    let read = |text: &str| text.parse::<Version>().map(|it| (it.major, it.minor)).ok();
    assert_eq!(read("2.6.0+cu124"), Some((2, 6)));
    assert_eq!(read("1.13.0a0"), Some((1, 13)));
    assert_eq!(read("2.10"), Some((2, 10)));
    for text in ["", "2", "two.six", "2.x", "-1.2"] {
        assert_eq!(read(text), None, "{text}");
    }
}

proptest! {
    /// The definition in `randperm_cpu`, word by word.
    #[test]
    fn the_wide_permutation_is_drawn_inside_out(samples in 0_u32..2_000, seed: u64) {
        let mut generator = Mt19937::new(seed);
        let mut expected = Vec::new();
        for place in 0..samples {
            let other = usize::try_from(generator.double_word() % (u64::from(place) + 1)).unwrap();
            expected.push(place);
            expected[place as usize] = expected[other];
            expected[other] = place;
        }
        let (items, mut after) = randperm(samples, seed, Width::Wide);
        prop_assert_eq!(items, expected);
        prop_assert_eq!(after.word(), generator.word());
    }

    #[test]
    fn what_is_skipped_is_what_would_have_been_drawn(
        seed: u64,
        before in 0_u64..1_300,
        skipped in 0_u64..4_000,
    ) {
        let mut drawing = Mt19937::new(seed);
        let mut skipping = Mt19937::new(seed);
        (0..before).for_each(|_| assert_eq!(drawing.word(), skipping.word()));
        (0..skipped).for_each(|_| _ = drawing.word());
        skipping.skip(skipped);
        let words = |it: &mut Mt19937| (0..700).map(|_| it.word()).collect::<Vec<_>>();
        prop_assert_eq!(words(&mut drawing), words(&mut skipping));
    }
}
