//! Pipelines over encoded images, against the same steps one by one over whole images.

use tierfeed_images::{Channels, Decoder, Image, Region, Resizer, Settings, Size};
use tierfeed_transform::{Operation, PipelineFile};

use super::*;

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../platform/images/tests/fixtures");
    std::fs::read(format!("{folder}/{name}.jpeg")).expect("a fixture")
}

fn pipeline(steps: &str) -> Pipeline {
    let file: PipelineFile =
        serde_json::from_str(&format!("{{\"steps\": [{steps}]}}")).expect("the form of a pipeline");
    Pipeline::try_new(&file).expect("a pipeline")
}

fn input(sample: u64, form: InputForm, bytes: &[u8]) -> Input<'_> {
    Input { sample, epoch: 3, form, bytes }
}

fn row(transform: &mut Transform, input: &Input<'_>) -> Result<Vec<u8>, TransformError> {
    let length = usize::try_from(transform.pipeline.row_bytes()).expect("small");
    let mut row = vec![0xEE; length];
    transform.apply(input, &mut row, None).map(|()| row)
}

/// Decodes a whole image and applies each operation to all of it; the row is `hwc`.
fn step_by_step(pipeline: &Pipeline, sample: u64, bytes: &[u8]) -> Vec<u8> {
    let Work::Images(images) = pipeline.work() else { panic!("no images") };
    let mut decoder = Decoder::default();
    let header = decoder.header(bytes, 1 << 30).expect("an image");
    let Size { width, height } = header.size;
    let (mut image, mut next) = (Image::default(), Image::default());
    let whole = Region::whole(header.size);
    decoder.decode(bytes, header, whole, &Settings::default(), &mut image).expect("an image");
    let key = DrawKey { seed: 9, epoch: 3, sample };
    let size = tierfeed_transform::Size { height, width };
    for operation in images.operations(key, size, 0).expect("large enough") {
        let view = image.view();
        match operation {
            Operation::Crop(region) => next.copy(view.cropped(geometry::region_of(region))),
            Operation::Resize(size) => {
                Resizer::default().resize(view, geometry::size_of(size), &mut next);
            }
            Operation::FlipHorizontal => {
                tierfeed_images::Orientation::Mirrored.apply(view, &mut next);
            }
            Operation::Pad { left, top, size } => {
                next.blacken(geometry::size_of(size), Channels::Rgb);
                next.paste(view, left, top);
            }
        }
        std::mem::swap(&mut image, &mut next);
    }
    let view = image.view();
    (0..view.size().height).flat_map(|row| view.row(row).to_vec()).collect()
}

#[test]
fn a_row_shows_the_same_pixels_as_all_steps_over_the_whole_image() {
    for steps in [
        r#"{"random_resized_crop": 24}, {"random_horizontal_flip": 0.5}"#,
        r#"{"resize": 32}, {"center_crop": 28}"#,
        r#"{"center_crop": [100, 40]}"#,
        r#"{"center_crop": 90}, {"random_horizontal_flip": 0.5}, {"random_crop": [20, 15]}"#,
        r#"{"random_horizontal_flip": 0.5}, {"resize": [90, 31]}, {"random_crop": 17}"#,
        r#"{"random_crop": 40}, {"resize": [40, 40]}, {"resize": [7, 200]}"#,
    ] {
        let pipeline = pipeline(&format!(r#"{steps}, {{"layout": "hwc"}}"#));
        let mut transform = Transform::new(pipeline.clone(), 9);
        for name in ["baseline-2x2", "progressive-4x1", "grey", "cmyk"] {
            let bytes = fixture(name);
            for sample in 0..20 {
                let row = row(&mut transform, &input(sample, InputForm::Stored, &bytes));
                let expected = step_by_step(&pipeline, sample, &bytes);
                assert_eq!(row.expect("a row"), expected, "{steps} of {name}, sample {sample}");
            }
        }
    }
}

#[test]
fn a_row_from_the_prepared_form_is_that_from_the_stored_one() {
    for steps in [
        r#"{"resize": [40, 50]}, {"random_crop": 24}, {"random_horizontal_flip": 0.5}"#,
        r#"{"resize": 30}, {"center_crop": 24}, {"dtype": "float32"}"#,
        r#"{"random_resized_crop": 24}, {"random_horizontal_flip": 0.5}"#,
        r#"{"resize": 30}, {"random_crop": 24}"#,
        r#"{"decode": {"dct": "fast"}}, {"random_resized_crop": 24}"#,
        r#"{"decode": {"scaled": true}}, {"resize": 10}, {"random_crop": 9}"#,
        r#"{"decode": {"mode": "grey", "orientation": "apply"}}, {"random_resized_crop": 24}"#,
    ] {
        for name in ["baseline-2x1", "progressive-4x1", "grey", "cmyk"] {
            check_prepared(steps, &fixture(name));
        }
    }
}

fn check_prepared(steps: &str, bytes: &[u8]) {
    let mut transform = Transform::new(pipeline(steps), 9);
    let Size { width, height } = Decoder::default().header(bytes, 1 << 30).expect("an image").size;
    let length = transform.pipeline.prepared_bytes(tierfeed_transform::Size { height, width });
    for sample in 0..10 {
        let stored = input(sample, InputForm::Stored, bytes);
        let expected = row(&mut transform, &stored).expect("a row");
        let mut prepared = Vec::new();
        let mut at_once = vec![0; expected.len()];
        transform.apply(&stored, &mut at_once, Some(&mut prepared)).expect("a row");
        assert!(at_once == expected, "{steps}");
        let kept = input(sample, InputForm::Prepared, &prepared);
        assert!(row(&mut transform, &kept).expect("a row") == expected, "{steps}");
        assert_eq!(Some(prepared.len() as u64), length, "{steps}");
        for wrong in [&prepared[1..], &prepared[..prepared.len() - 1], &[], &[0; 12], &[1; 12]] {
            let refused = row(&mut transform, &input(sample, InputForm::Prepared, wrong));
            let is_told = matches!(
                refused,
                Err(TransformError::Prepared { .. } | TransformError::NotPrepared { .. })
            );
            assert!(is_told, "{steps}: {refused:?}");
        }
    }
}

#[test]
fn a_step_that_would_make_a_huge_image_is_refused() {
    let file = r#"{"steps": [{"resize": 60}, {"center_crop": 8}], "limits": {"pixels": 5000}}"#;
    let file: PipelineFile = serde_json::from_str(file).expect("the form of a pipeline");
    let mut transform = Transform::new(Pipeline::try_new(&file).expect("a pipeline"), 9);
    let refused = row(&mut transform, &input(0, InputForm::Stored, &fixture("grey")));
    assert!(
        matches!(refused, Err(TransformError::TooLarge { width: 84, height: 60, .. })),
        "{refused:?}"
    );
}

#[test]
fn bytes_behind_the_row_become_zero() {
    let mut transform = Transform::new(pipeline(r#"{"center_crop": 3}"#), 9);
    let mut row = [0xEE; 64];
    let bytes = fixture("grey");
    transform.apply(&input(0, InputForm::Stored, &bytes), &mut row, None).expect("a row");
    assert_eq!(row[27..], [0; 64 - 27]);
}

#[test]
fn an_error_tells_its_causes() {
    let mut transform = Transform::new(pipeline(r#"{"center_crop": 3}"#), 9);
    let bytes = b"\x89PNG\r\n\x1a\nno chunk follows";
    let refused =
        Apply::apply(&mut transform, &input(0, InputForm::Stored, bytes), &mut [0; 27], None);
    let defect = refused.expect_err("no image");
    assert!(defect.message.starts_with("this PNG image cannot be decoded: "), "{defect:?}");
    assert_eq!(defect.kind, DefectKind::Damaged);
}

#[test]
fn a_sample_of_a_dataset_without_a_transform_is_refused() {
    let steps = [r#"{"center_crop": 3}"#, r#"{"center_crop": 5}"#];
    let datasets = [(2, 4, steps[0]), (6, 8, steps[1])];
    let of = datasets.map(|(first, end, steps)| DatasetPipeline {
        first,
        end,
        pipeline: pipeline(steps),
    });
    let mut transforms = Transforms::new(of.to_vec(), 9);
    let bytes = fixture("grey");
    let is_refused = (0..9).map(|sample| {
        let input = input(sample, InputForm::Stored, &bytes);
        transforms.apply(&input, &mut [0; 128], None).is_err()
    });
    let expected = [true, true, false, false, true, true, false, false, true];
    assert_eq!(is_refused.collect::<Vec<_>>(), expected);
}
