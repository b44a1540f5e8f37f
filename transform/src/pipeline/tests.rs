use super::*;
use crate::{
    geometry::Size,
    output::{Dtype, Layout, Prepared, PreparedShape, Rest},
    steps::{Decode, Images, Step},
};

fn read(steps: &str) -> Result<Pipeline, PipelineError> {
    let text = format!("{{ steps: {steps} }}");
    let file: PipelineFile = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
    Pipeline::try_new(&file)
}

fn right(steps: &str) -> Pipeline {
    read(steps).unwrap_or_else(|error| panic!("{steps}: {error}"))
}

const TRAINING: &str = "[{ random_resized_crop: 224 }, { random_horizontal_flip: 0.5 }, { normalize: { mean: \
                        [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] } }, { dtype: bfloat16 }]";
const EVALUATION: &str = "[{ resize: 256 }, { center_crop: 224 }]";

fn images(pipeline: &Pipeline) -> &Images {
    match pipeline.work() {
        Work::Images(images) => images,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_are_those_of_torchvision() {
    let pipeline = right("[{ random_resized_crop: 224 }]");
    let Images { decode, steps, normalize, dtype, layout } = images(&pipeline);
    assert_eq!((*decode, normalize.as_ref()), (Decode::EXACT, None));
    assert_eq!((*dtype, *layout), (Dtype::Uint8, Layout::Chw));
    let [Step::RandomResizedCrop(crop)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((crop.scale, crop.ratio), ([0.08, 1.0], [0.75, 4.0 / 3.0]));
    assert_eq!(pipeline.limits(), Limits { pixels: 100_000_000 });
}

#[test]
fn rows_start_at_multiples_of_64_bytes() {
    let check = |steps, shape: &[u32], row_bytes, stride| {
        let pipeline = right(steps);
        assert_eq!(pipeline.output().shape, shape);
        assert_eq!((pipeline.row_bytes(), pipeline.row_stride()), (row_bytes, stride));
    };
    check(TRAINING, &[3, 224, 224], 301_056, 301_056);
    check("[{ center_crop: [3, 5] }, { layout: hwc }]", &[3, 5, 3], 45, 64);
    check("[{ decode: { mode: grey } }, { resize: [8, 9] }]", &[1, 8, 9], 72, 128);
    check("[{ tokens: { length: 10, dtype: uint16 } }, { dtype: int64 }]", &[10], 80, 128);
    check("[{ array: { shape: [2, 3], dtype: float64 } }]", &[2, 3], 48, 64);
}

#[test]
fn what_can_be_kept_ends_before_the_first_step_that_draws() {
    let check = |steps, is_random, prepared: Option<(&[u32], Dtype, usize, Rest)>| {
        let pipeline = right(steps);
        assert_eq!(pipeline.is_random(), is_random, "{steps}");
        let shape = |it: &Prepared| match &it.shape {
            PreparedShape::Fixed(shape) => shape.clone(),
            PreparedShape::Own { channels } => vec![*channels],
        };
        let found = pipeline.prepared().map(|it| (shape(it), it.dtype, it.steps_done, it.rest));
        let prepared =
            prepared.map(|(shape, dtype, done, rest)| (shape.to_vec(), dtype, done, rest));
        assert_eq!(found, prepared, "{steps}");
    };
    check(TRAINING, true, Some((&[3], Dtype::Uint8, 0, Rest::Steps)));
    let short = "[{ resize: 256 }, { random_crop: 224 }]";
    check(short, true, Some((&[3], Dtype::Uint8, 1, Rest::Steps)));
    // Decoded at the scale of each crop, other pixels come of it than of the whole image.
    let scaled = "[{ decode: { scaled: true } }, { random_resized_crop: 224 }]";
    check(scaled, true, None);
    let cropped =
        "[{ decode: { scaled: true } }, { center_crop: 300 }, { random_resized_crop: 224 }]";
    check(cropped, true, None);
    let resized = "[{ decode: { scaled: true, mode: grey } }, { resize: 9 }, { random_crop: 8 }]";
    check(resized, true, Some((&[1], Dtype::Uint8, 1, Rest::Steps)));
    let image: (&[u32], _, _, _) = (&[256, 300, 3], Dtype::Uint8, 1, Rest::Steps);
    let flipped = "[{ resize: [256, 300] }, { random_horizontal_flip: 0.5 }, { dtype: float32 }]";
    check(flipped, true, Some(image));
    check(EVALUATION, false, Some((&[3, 224, 224], Dtype::Uint8, 2, Rest::Nothing)));
    let array = "[{ array: { shape: [4], dtype: float16, key: x } }]";
    check(array, false, Some((&[4], Dtype::Float16, 0, Rest::Nothing)));
}

#[test]
fn the_length_of_a_prepared_image_follows_from_its_size() {
    let of = |steps: &str, height, width| right(steps).prepared_bytes(Size { height, width });
    assert_eq!(of(TRAINING, 375, 500), Some(12 + 375 * 500 * 3));
    assert_eq!(of(TRAINING, 375, 0), None);
    assert_eq!(of(TRAINING, 10_001, 10_000), None, "beyond the default limit of pixels");
    let short = "[{ resize: 256 }, { random_crop: 224 }]";
    assert_eq!(of(short, 512, 1000), Some(12 + 256 * 500 * 3));
    assert_eq!(of(short, 1000, 512), Some(12 + 256 * 500 * 3), "as it is turned");
    assert_eq!(of(short, 1, 10_000_000), None, "the resize would make too many pixels of it");
    let exact = "[{ resize: [4, 5] }, { random_crop: 3 }]";
    assert_eq!(of(exact, 70, 70), Some(4 * 5 * 3));
    assert_eq!(of("[{ tokens: { length: 8, dtype: uint16 } }]", 7, 7), None);
}

#[test]
fn quick_modes_are_named() {
    assert_eq!(right(EVALUATION).quick_modes(), [""; 0]);
    let quick = right("[{ decode: { dct: fast, scaled: true } }, { center_crop: 8 }]");
    assert_eq!(quick.quick_modes(), ["dct: fast", "scaled: true"]);
}

#[test]
fn the_canonical_mapping_is_the_same_pipeline_in_yaml_and_json() {
    for steps in [
        TRAINING,
        EVALUATION,
        "[{ decode: { orientation: apply, dct: fast, scaled: true, mode: grey } }, { resize: [3, 4] }, { \
         random_crop: [2, 3] }, { normalize: { mean: [0.1], std: [0.3] } }, { layout: hwc }]",
        "[{ array: { shape: [2, 3], dtype: int16, key: \"data\" } }]",
        "[{ tokens: { length: 1024, dtype: uint16 } }, { dtype: int32 }]",
    ] {
        let pipeline = right(steps);
        let yaml = serde_yaml::to_string(&pipeline).expect("it can be written");
        assert_eq!(serde_yaml::from_str::<Pipeline>(&yaml).expect("it is right"), pipeline);
        let json = serde_json::to_string(&pipeline).expect("it can be written");
        assert_eq!(serde_json::from_str::<Pipeline>(&json).expect("it is right"), pipeline);
        let again = serde_json::from_str::<Pipeline>(&json).expect("it is right");
        assert_eq!(serde_json::to_string(&again).expect("it can be written"), json);
    }
}

#[test]
fn a_step_that_is_wrong_is_named_with_what_would_be_right() {
    let check = |steps: &str, path: &str, said: &str| match read(steps) {
        Ok(pipeline) => panic!("{steps} was taken: {pipeline:?}"),
        Err(error) => {
            assert_eq!(error.path.join("."), path, "{steps}: {error}");
            assert!(error.to_string().contains(said), "{steps}: {error}");
        }
    };
    check("[]", "steps", "at least one step");
    check("[{}]", "steps.0", "one key");
    check("[{ resize: 4, center_crop: 4 }]", "steps.0", "resize, center_crop");
    check("[{ resize: 256 }]", "steps", "center_crop: 224");
    check("[{ random_horizontal_flip: 0.5 }]", "steps", "depend on the image");
    check("[{ center_crop: 0 }]", "steps.0.center_crop", "between 1 and 65500");
    check("[{ resize: [224, 65501] }]", "steps.0.resize", "65501");
    check(
        "[{ center_crop: 8 }, { random_horizontal_flip: 1.5 }]",
        "steps.1.random_horizontal_flip",
        "1.5",
    );
    check(
        "[{ random_horizontal_flip: .nan }]",
        "steps.0.random_horizontal_flip",
        "between 0 and 1",
    );
    let scale = "steps.0.random_resized_crop.scale";
    for wrong in ["[0, 1]", "[0.5, 0.2]", "[0.5, 1.1]", "[.nan, 1]"] {
        check(
            &format!("[{{ random_resized_crop: {{ size: 8, scale: {wrong} }} }}]"),
            scale,
            "shares",
        );
    }
    let ratio = "steps.0.random_resized_crop.ratio";
    check("[{ random_resized_crop: { size: 8, ratio: [2, 1] } }]", ratio, "the smaller first");
    check("[{ center_crop: 8 }, { decode: { mode: grey } }]", "steps.1.decode", "first step");
    check("[{ layout: hwc }, { center_crop: 8 }]", "steps.1.center_crop", "before normalize");
    check("[{ center_crop: 8 }, { layout: hwc }, { layout: chw }]", "steps.2.layout", "once");
    check("[{ center_crop: 8 }, { dtype: int64 }]", "steps.1.dtype", "uint8, float32 or bfloat16");
    let normalize = "{ normalize: { mean: [0, 0, 0], std: [1, 1, 1] } }";
    check(
        &format!("[{{ center_crop: 8 }}, {normalize}, {{ dtype: uint8 }}]"),
        "steps.2.dtype",
        "fractions",
    );
    check(
        "[{ center_crop: 8 }, { normalize: { mean: [0], std: [1] } }]",
        "steps.1.normalize.mean",
        "3 numbers",
    );
    check(
        "[{ center_crop: 8 }, { normalize: { mean: [0, 0, .inf], std: [1, 1, 1] } }]",
        "steps.1.normalize.mean",
        "finite",
    );
    check(
        "[{ center_crop: 8 }, { normalize: { mean: [0, 0, 0], std: [1, 0, 1] } }]",
        "steps.1.normalize.std",
        "above 0",
    );
    check("[{ array: { shape: [], dtype: uint8 } }]", "steps.0.array.shape", "0 dimensions");
    check("[{ array: { shape: [0], dtype: uint8 } }]", "steps.0.array.shape", "between 1");
    check(
        "[{ array: { shape: [4], dtype: uint8 } }, { center_crop: 3 }]",
        "steps.1.center_crop",
        "images; the samples are arrays",
    );
    check(
        "[{ array: { shape: [4], dtype: uint8 } }, { dtype: float32 }]",
        "steps.1.dtype",
        "`array` states",
    );
    check(
        "[{ array: { shape: [4000000000, 4000000000], dtype: uint8 } }]",
        "steps",
        "a row has at most",
    );
    check("[{ tokens: { length: 0, dtype: uint16 } }]", "steps.0.tokens.length", "between 1");
    check("[{ tokens: { length: 4, dtype: float32 } }]", "steps.0.tokens.dtype", "stored as");
    check(
        "[{ tokens: { length: 4, dtype: uint16 } }, { dtype: uint8 }]",
        "steps.1.dtype",
        "every uint16",
    );
    check(
        "[{ tokens: { length: 4, dtype: uint16 } }, { resize: 3 }]",
        "steps.1.resize",
        "samples are tokens",
    );
    check("[{ center_crop: 9999 }, { dtype: float32 }]", "steps", "a row has at most");
    check("[{ center_crop: 65500 }]", "limits.pixels", "65500 x 65500");
    let long = format!("[{}]", vec!["{ center_crop: 8 }"; 33].join(", "));
    check(&long, "steps", "at most 32");
}

#[test]
fn limits_are_checked() {
    let of = |step: &str, pixels: u64| {
        let text = format!(
            "{{ steps: [{{ {step} }}, {{ center_crop: 8 }}], limits: {{ pixels: {pixels} }} }}"
        );
        Pipeline::try_new(&serde_yaml::from_str(&text).expect("its types are right"))
    };
    let right = of("center_crop: 8", 64).expect("it is right");
    assert_eq!(right.limits(), Limits { pixels: 64 });
    for (step, pixels) in [
        ("center_crop: 8", 0),
        ("center_crop: 8", 63),
        ("resize: 9", 80),
        ("random_resized_crop: [1, 65]", 64),
    ] {
        let error = of(step, pixels).expect_err(step);
        assert_eq!(
            (&error.path[..], error.value),
            (&["limits", "pixels"].map(String::from)[..], pixels.to_string())
        );
    }
    let kept = "{ steps: [{ resize: [30000, 30000] }, { random_crop: 8 }], limits: { pixels: 1000000000 } }";
    let kept = Pipeline::try_new(&serde_yaml::from_str(kept).expect("its types are right"));
    assert_eq!(kept.expect_err("2.7 GB are kept").reason, Reason::RowTooLong { max: 1 << 30 });
}

#[test]
fn an_unknown_step_or_key_is_named() {
    let check = |text: &str, said: &str| match serde_yaml::from_str::<PipelineFile>(text) {
        Ok(file) => panic!("{text} was read: {file:?}"),
        Err(error) => assert!(error.to_string().contains(said), "{text}: {error}"),
    };
    check("steps: [{ rezise: 224 }]", "unknown field `rezise`");
    check("steps: [{ resize: -1 }]", "height and width");
    check(
        "steps: [{ random_resized_crop: { size: 8, scalar: [0, 1] } }]",
        "unknown field `scalar`",
    );
    check("steps: [{ decode: { dct: slow } }]", "unknown variant `slow`");
    check("steps: [{ dtype: double }]", "unknown variant `double`");
}
