use proptest::prelude::*;

use super::*;
use crate::{
    output::{Dtype, Layout},
    pipeline::Pipeline,
    steps::{Decode, Work},
};

const KEY: DrawKey = DrawKey { seed: 42, epoch: 3, sample: 1_234_567 };

fn images(steps: Vec<Step>) -> Images {
    Images {
        decode: Decode::EXACT,
        steps,
        normalize: None,
        dtype: Dtype::Uint8,
        layout: Layout::Chw,
    }
}

fn crop_of(size: Size) -> RandomResizedCrop {
    RandomResizedCrop { size, scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] }
}

fn size(height: u32, width: u32) -> Size {
    Size { height, width }
}

/// Plays the operations on a size; each must be possible.
fn size_after(operations: &[Operation], image: Size) -> Size {
    operations.iter().fold(image, |image, operation| match operation {
        Operation::Pad { top, left, size } => {
            assert!(top + image.height <= size.height && left + image.width <= size.width);
            *size
        }
        Operation::Crop(Region { top, left, size }) => {
            assert!(size.height > 0 && size.width > 0, "invariant 1: {size:?}");
            assert!(top + size.height <= image.height, "invariant 1: {operation:?} in {image:?}");
            assert!(left + size.width <= image.width, "invariant 1: {operation:?} in {image:?}");
            *size
        }
        Operation::Resize(size) => *size,
        Operation::FlipHorizontal => image,
    })
}

proptest! {
    #[test]
    fn a_random_region_lies_in_the_image(
        seed: u64, epoch: u32, sample: u64,
        height in 1_u32..5000, width in 1_u32..5000,
        scale in (0.0001_f64..1.0, 0.0001_f64..1.0),
        ratio in (0.001_f64..1000.0, 0.001_f64..1000.0),
    ) {
        let ordered = |(a, b): (f64, f64)| [a.min(b), a.max(b)];
        let crop = RandomResizedCrop {
            size: size(224, 200), scale: ordered(scale), ratio: ordered(ratio),
        };
        let key = DrawKey { seed, epoch, sample };
        let steps = vec![Step::RandomResizedCrop(crop), Step::RandomHorizontalFlip(0.5)];
        let image = size(height, width);
        let operations = images(steps).operations(key, image, 0);
        prop_assert_eq!(size_after(&operations.unwrap_or_default(), image), size(224, 200));
    }

    #[test]
    fn steps_of_any_order_yield_the_size_that_the_pipeline_states(
        seed: u64, height in 1_u32..700, width in 1_u32..700, side in 1_u32..300,
        order in proptest::collection::vec(0_usize..5, 1..6),
    ) {
        let step = |number: &usize| match number {
            0 => Step::Resize(Resize::ShortSide(side)),
            1 => Step::Resize(Resize::Exact(size(side, 2 * side))),
            2 => Step::CenterCrop(size(side, side + 7)),
            3 => Step::RandomResizedCrop(crop_of(size(side, side))),
            _ => Step::RandomHorizontalFlip(0.5),
        };
        let steps: Vec<_> = order.iter().map(step).collect();
        let image = size(height, width);
        let stated = steps.iter().try_fold(image, |size, step| step.size_after(Some(size)));
        let key = DrawKey { seed, epoch: 0, sample: 0 };
        let operations = images(steps).operations(key, image, 0).unwrap_or_default();
        prop_assert_eq!(Some(size_after(&operations, image)), stated);
    }
}

/// Computed by a program in another language, from the text of `docs/transforms.md`.
#[test]
fn draws_are_those_of_the_vectors_in_the_documentation() {
    let crop = Step::RandomResizedCrop(crop_of(size(224, 224)));
    let images = images(vec![crop, Step::RandomHorizontalFlip(0.5)]);
    let check = |(seed, epoch, sample), image, region, is_mirrored: bool| {
        let drawn = images.operations(DrawKey { seed, epoch, sample }, image, 0);
        let resize = Operation::Resize(size(224, 224));
        let mut expected = vec![Operation::Crop(region), resize];
        expected.extend(is_mirrored.then_some(Operation::FlipHorizontal));
        assert_eq!(drawn.as_ref(), Ok(&expected));
    };
    let region = |top, left, size| Region { top, left, size };
    check((0, 0, 0), size(500, 375), region(177, 32, size(260, 323)), false);
    check((42, 3, 1_234_567), size(500, 375), region(9, 23, size(291, 264)), false);
    check((7, 89, 1_281_166), size(400, 400), region(114, 79, size(240, 272)), true);
    let last = (u64::MAX, u32::MAX, u64::MAX);
    check(last, size(333, 4000), region(0, 1778, size(333, 444)), false);
}

/// Invariant 2.
#[test]
fn a_step_draws_the_same_whatever_stands_before_it() {
    let image = size(400, 600);
    let flip_at_1 = |first| {
        let images = images(vec![first, Step::RandomHorizontalFlip(0.5)]);
        (0..64).map(move |sample| {
            let key = DrawKey { sample, ..KEY };
            images.operations(key, image, 1).unwrap_or_default().len()
        })
    };
    let of_crop: Vec<_> = flip_at_1(Step::RandomResizedCrop(crop_of(size(64, 64)))).collect();
    assert_eq!(of_crop, flip_at_1(Step::CenterCrop(size(64, 64))).collect::<Vec<_>>());
    assert!(of_crop.contains(&0) && of_crop.contains(&1), "half of them are mirrored: {of_crop:?}");
}

#[test]
fn a_probability_of_0_never_mirrors_and_one_of_1_always() {
    for (probability, count) in [(0.0, 0), (1.0, 1)] {
        let images = images(vec![Step::RandomHorizontalFlip(probability)]);
        for sample in 0..1000 {
            let operations = images.operations(DrawKey { sample, ..KEY }, size(2, 2), 0);
            assert_eq!(operations.unwrap_or_default().len(), count);
        }
    }
}

#[test]
fn areas_ratios_and_places_are_spread_as_asked_for() {
    let images = images(vec![Step::RandomResizedCrop(crop_of(size(8, 8)))]);
    let image = size(1000, 1000);
    let count = 20_000;
    let (mut area, mut log_ratio, mut top) = (0.0, 0.0, 0.0);
    for sample in 0..count {
        let operations = images.operations(DrawKey { sample, ..KEY }, image, 0);
        let Some(Operation::Crop(region)) = operations.unwrap_or_default().first().copied() else {
            continue;
        };
        let (height, width) = (f64::from(region.size.height), f64::from(region.size.width));
        area += height * width / 1e6;
        log_ratio += (width / height).ln();
        top += f64::from(region.top) / f64::from(image.height - region.size.height + 1);
    }
    let mean = |sum: f64| sum / f64::from(u32::try_from(count).unwrap_or(1));
    // 0.477 by a simulation of torchvision's rule: regions that do not fit are drawn again, and those are large.
    assert!((0.470..0.485).contains(&mean(area)), "{}", mean(area));
    assert!(mean(log_ratio).abs() < 0.01, "{}", mean(log_ratio));
    assert!((mean(top) - 0.5).abs() < 0.02, "{}", mean(top));
}

#[test]
fn an_image_in_which_no_region_fits_gives_its_middle() {
    let narrow = RandomResizedCrop { scale: [1.0, 1.0], ..crop_of(size(8, 8)) };
    let images = images(vec![Step::RandomResizedCrop(narrow)]);
    let of = |image| images.operations(KEY, image, 0).unwrap_or_default()[0];
    let region = |top, left, size| Operation::Crop(Region { top, left, size });
    assert_eq!(of(size(1, 1)), region(0, 0, size(1, 1)));
    assert_eq!(of(size(10, 1000)), region(0, 493, size(10, 13)));
    assert_eq!(of(size(1000, 10)), region(493, 0, size(13, 10)));
}

/// The offsets of torchvision's `center_crop`.
#[test]
fn the_middle_is_that_of_torchvision() {
    let of = |image, crop| {
        images(vec![Step::CenterCrop(crop)]).operations(KEY, image, 0).unwrap_or_default()
    };
    let region = |top, left, size| Operation::Crop(Region { top, left, size });
    assert_eq!(of(size(225, 227), size(224, 224)), [region(0, 2, size(224, 224))]);
    assert_eq!(of(size(224, 224), size(224, 224)), []);
    let padded = Operation::Pad { top: 6, left: 0, size: size(224, 300) };
    assert_eq!(of(size(211, 300), size(224, 224)), [padded, region(0, 38, size(224, 224))]);
}

#[test]
fn a_random_crop_of_a_smaller_image_says_what_to_do() {
    let images = images(vec![Step::RandomCrop(size(224, 225))]);
    let Err(error) = images.operations(KEY, size(300, 100), 0) else { panic!("it was cut") };
    let said = error.to_string();
    assert!(said.contains("300 by 100") && said.contains("224 by 225") && said.contains("resize"));
}

#[test]
fn the_shorter_side_is_that_of_torchvision() {
    let of = |image| Resize::ShortSide(256).size_after(Some(image));
    assert_eq!(of(size(375, 500)), Some(size(256, 341)));
    assert_eq!(of(size(500, 333)), Some(size(384, 256)));
    assert_eq!(of(size(7, 7)), Some(size(256, 256)));
}

#[test]
fn a_pipeline_resolves_what_is_left_of_a_prepared_image() {
    let text = r#"{"steps": [{"resize": [64, 64]}, {"random_crop": 48}]}"#;
    let pipeline: Pipeline = serde_json::from_str(text).expect("the pipeline is right");
    let (Some(prepared), Work::Images(images)) = (pipeline.prepared(), pipeline.work()) else {
        panic!("{pipeline:?}");
    };
    let all = images.operations(KEY, size(100, 200), 0).unwrap_or_default();
    let rest = images.operations(KEY, size(64, 64), prepared.steps_done).unwrap_or_default();
    assert_eq!(all[1..], rest);
    assert_eq!(rest.len(), 1);
}
