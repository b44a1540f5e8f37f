//! Images under pipelines: one input is the bytes of an image, of any format.
//!
//! For any bytes the decoder returns a row or an error, the same on each call, and can decode the next image
//! afterwards. Both entropy decoders of JPEG give the same pixels, also of damaged data.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_images::{Decoder, Entropy, Image, Region, Settings};
use tierfeed_transform::{Pipeline, PipelineFile, worker_protocol::InputForm};
use tierfeed_transform_worker::{Input, Transform};

const PIXELS_MAX: u64 = 1 << 16;

const PIPELINES: [&str; 3] = [
    r#"{"steps": [{"random_resized_crop": 24}, {"random_horizontal_flip": 0.5}], "limits": {"pixels": 65536}}"#,
    r#"{"steps": [{"decode": {"orientation": "apply", "mode": "grey"}}, {"resize": 20}, {"center_crop": 16},
        {"dtype": "float32"}], "limits": {"pixels": 65536}}"#,
    r#"{"steps": [{"decode": {"dct": "fast", "scaled": true}}, {"resize": [9, 11]}, {"random_crop": 8},
        {"layout": "hwc"}], "limits": {"pixels": 65536}}"#,
];

fuzz_target!(|bytes: &[u8]| {
    for text in PIPELINES {
        let file: PipelineFile = serde_json::from_str(text).expect("the form of a pipeline");
        let pipeline = Pipeline::try_new(&file).expect("a pipeline");
        let length = usize::try_from(pipeline.row_bytes()).expect("small");
        let mut transform = Transform::new(pipeline, 3);
        let input = Input { sample: 1, epoch: 2, form: InputForm::Stored, bytes };
        let mut rows = [vec![1; length], vec![2; length]];
        let outcomes = rows.each_mut().map(|row| transform.apply(&input, row, None).is_ok());
        assert_eq!(outcomes[0], outcomes[1], "the same image twice");
        assert!(!outcomes[0] || rows[0] == rows[1], "the same row twice");
    }
    compare_regions(bytes);
});

/// Damaged data is decoded as far as possible, so even then a region must have its size, and the choice of
/// the decoder of Huffman codes must not matter.
fn compare_regions(bytes: &[u8]) {
    let mut decoder = Decoder::default();
    let Ok(header) = decoder.header(bytes, PIXELS_MAX) else { return };
    let all = Region::whole(header.size);
    let region = Region {
        left: all.width / 3,
        top: all.height / 2,
        width: all.width.div_ceil(3),
        height: all.height.div_ceil(4),
    };
    let mut image = Image::default();
    for region in [all, region] {
        let [quick, library] = [Entropy::Quick, Entropy::Library].map(|entropy| {
            let settings = Settings { entropy, ..Settings::default() };
            decoder.decode(bytes, header, region, &settings, &mut image).ok()?;
            let view = image.view();
            assert_eq!(view.size(), region.size());
            Some((0..region.height).flat_map(|it| view.row(it).to_vec()).collect::<Vec<_>>())
        });
        assert!(quick == library, "the same pixels of {region:?} by both entropy decoders");
    }
}
