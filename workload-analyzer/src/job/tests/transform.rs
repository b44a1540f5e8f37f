//! The keys below `transform`, and `threads`.

use std::num::NonZeroU32;

use tierfeed_transform::{Dtype, Pipeline, Prepared};

use super::{REQUIRED, check_text, parse};
use crate::job::{CachedForm, Job, Threads};

fn with(keys: &str) -> Job {
    parse(&format!("{REQUIRED}{keys}\n")).unwrap_or_else(|error| panic!("{error}"))
}

/// Keys that begin in line 5.
#[track_caller]
fn check_refused(keys: &str, message: &str) {
    check_text(&format!("{REQUIRED}{keys}\n"), message);
}

#[track_caller]
fn check_refused_for(format: &str, keys: &str, message: &str) {
    let text = REQUIRED.replace("format: image-folder", &format!("format: {format}"));
    check_text(&format!("{text}{keys}\n"), message);
}

#[test]
fn every_key_of_a_transform_arrives() {
    let job = with(
        "transform:\n  cache: prepared\n  limits: { pixels: 4000 }\n  steps:\n  - resize: [48, 64]\n  - \
         random_crop: 32\n  - layout: hwc\nthreads: 3",
    );
    let transform = job.transform.expect("it was typed");
    assert_eq!(transform.cache, CachedForm::Prepared);
    let pipeline = transform.pipeline;
    assert_eq!(pipeline.limits().pixels, 4000);
    assert_eq!(
        (&pipeline.output().shape[..], pipeline.output().dtype),
        (&[32, 32, 3][..], Dtype::Uint8)
    );
    assert_eq!(pipeline.prepared().and_then(Prepared::bytes), Some(48 * 64 * 3));
    assert_eq!(job.threads, Threads::Count(NonZeroU32::new(3).expect("not 0")));
}

#[test]
fn a_job_without_these_keys_hands_out_what_is_stored() {
    let job = with("threads: auto");
    assert_eq!((job.transform, job.threads), (None, Threads::Auto));
    let job = with("transform: { steps: [{ center_crop: 8 }] }");
    assert_eq!(job.transform.map(|it| it.cache), Some(CachedForm::Auto));
}

#[test]
fn a_wrong_step_is_named_with_its_line() {
    check_refused(
        "transform:\n  steps:\n  - resize: 256\n  - center_crop:\n      0",
        "9: transform.steps[1].center_crop is `0`; it must be between 1 and 65500",
    );
    check_refused(
        "transform:\n  steps:\n  - center_crop: 12000",
        "6: transform.limits.pixels is `100000000`; a step makes 12000 x 12000 pixels of each image",
    );
    check_refused(
        "transform:\n  steps:\n  - random_resized_crop: 224\n  - rezise: 3",
        "8: transform.steps[1].rezise: unknown field `rezise`, expected one of `decode`, `array`, `tokens`, \
         `resize`, `center_crop`, `random_crop`, `random_resized_crop`, `random_horizontal_flip`, `normalize`, \
         `dtype`, `layout`; did you mean `resize`?",
    );
    check_refused(
        "transform: { steps: [{ random_resized_crop: { size: 224, scal: [0, 1] } }] }",
        "5: transform.steps[0].random_resized_crop.scal: unknown field `scal`, expected one of `size`, `scale`, \
         `ratio`; did you mean `scale`?",
    );
    check_refused(
        "transform: { steps: [{ resize: 256 }] }",
        "5: transform.steps is `1 step`; the size of a row would depend on the image; end the geometry with \
         center_crop, random_crop, random_resized_crop or `resize: [height, width]`, for example `{ center_crop: \
         224 }`",
    );
    check_refused(
        "transform: { steps: [{ center_crop: 8 }], limits: { pixels: 0 } }",
        "5: transform.limits.pixels is `0`; it must be between 1 and 1000000000000",
    );
    check_refused(
        "transform: random_resized_crop",
        "5: transform: invalid type: string \"random_resized_crop\", expected a mapping such as `{ steps: [{ \
         random_resized_crop: 224 }] }`",
    );
}

#[test]
fn what_a_transform_cannot_stand_beside_is_named() {
    let center = "transform: { steps: [{ center_crop: 8 }] }";
    let only = |steps: &str, formats: &str| {
        format!(
            "5: transform has steps for {steps}, which are samples of `format: {formats}`; remove it, and decode in \
             the trainer"
        )
    };
    for (format, sample) in [("parquet", "row group"), ("arrow", "record batch")] {
        let message = format!(
            "5: transform makes one row of a sample, and one of `format: {format}` is a {sample}, many rows; write each \
             row as a sample of webdataset, mds or tfrecord (docs/transforms.md, \"Rows of tables\", has the script), or \
             decode in the trainer (`decode=`)"
        );
        check_refused_for(format, center, &message);
    }
    check_refused_for(
        "npy",
        center,
        &only("images", "image-folder, files, webdataset, tfrecord, mds, litdata"),
    );
    let array = "transform: { steps: [{ array: { shape: [8], dtype: uint8 } }] }";
    check_refused(
        array,
        &only("arrays", "files, npy, npz, raw, hdf5, webdataset, tfrecord, mds, litdata"),
    );
    let tokens = "transform: { steps: [{ tokens: { length: 8, dtype: uint16 } }] }";
    check_refused(
        tokens,
        &only("tokens", "raw, megatron, npy, files, webdataset, tfrecord, mds, litdata"),
    );
    check_refused(
        &format!("{center}\ntiers: {{ main-memory: {{ size: 1 GiB, direct: always }} }}"),
        "5: transform stands beside a tier with `direct: always`, which hands samples out as they are stored; use \
         `auto` or `never` there",
    );
}

const VALIDATION: &str = "datasets: { val: { source: val, format: image-folder";

#[test]
fn each_dataset_has_steps_of_its_own_or_none() {
    let crop = "transform: { steps: [{ random_resized_crop: 8 }] }";
    let job = with(&format!("{crop}\n{VALIDATION} }} }}"));
    let found: Vec<_> = job.pipelines().map(|it| it.is_some()).collect();
    assert_eq!(found, [true, false]);
    let job = with(&format!(
        "{crop}\n{VALIDATION}, transform: {{ steps: [{{ center_crop: 4 }}] }} }} }}"
    ));
    let rows: Vec<_> = job.pipelines().map(|it| it.map_or(0, Pipeline::row_bytes)).collect();
    assert_eq!(rows, [192, 48]);
    assert!(job.pipelines().flatten().map(Pipeline::is_random).eq([true, false]));
}

#[test]
fn steps_of_a_further_dataset_are_checked_where_they_stand() {
    let crop = "transform: { steps: [{ random_resized_crop: 8 }] }";
    let of_validation = |keys: &str| format!("{VALIDATION}, transform: {{ {keys} }} }} }}");
    check_refused(
        &format!("{crop}\n{}", of_validation("steps: [{ resize: 8 }]")),
        "6: datasets.val.transform.steps is `1 step`; the size of a row would depend on the image; end the geometry with \
         center_crop, random_crop, random_resized_crop or `resize: [height, width]`, for example \
         `{ center_crop: 224 }`",
    );
    check_refused(
        &of_validation("steps: [{ center_crop: 8 }]"),
        "5: datasets.val.transform stands in a job without `transform`, which is that of the first dataset; add it, \
         or transform in the trainer (`decode=`)",
    );
    check_refused(
        &format!(
            "transform: {{ steps: [{{ center_crop: 8 }}], cache: prepared }}\n{VALIDATION} }} }}"
        ),
        "5: transform.cache is `prepared` in a job with `datasets`, whose samples would have other sizes; use \
         `stored` or `auto`",
    );
}

#[test]
fn what_hdf5_cannot_give_is_said_with_what_can() {
    let script =
        "webdataset, mds or tfrecord (docs/transforms.md, \"Rows of tables\", has the script)";
    let hdf5 = "hdf5, dataset: images";
    check_refused_for(
        hdf5,
        "transform: { steps: [{ center_crop: 8 }] }",
        &format!(
            "5: transform has steps for images, and a sample of `format: hdf5` is a row of one array; begin with \
             `array` if it holds pixels, else write the images as samples of {script}"
        ),
    );
    check_refused_for(
        hdf5,
        "transform: { field: images, steps: [{ array: { shape: [8], dtype: uint8 } }] }",
        &format!(
            "5: transform.field is for samples of several fields, and `format: hdf5` reads one array, which \
             `dataset.dataset` names; remove it, or write what belongs together as samples of {script}"
        ),
    );
}

#[test]
fn a_field_is_of_formats_that_have_several() {
    let field = "transform: { field: jpg, steps: [{ center_crop: 8 }] }";
    check_refused(
        field,
        "5: transform.field is for samples of several fields, which are those of `format: webdataset, tfrecord, \
         mds, litdata`; remove it",
    );
    let prepared = "transform: { cache: prepared, steps: [{ center_crop: 8 }] }";
    check_refused_for(
        "webdataset",
        prepared,
        "5: transform.cache is `prepared`, but samples of `format: webdataset` have other fields, which trainers \
         get from their stored bytes; use `stored` or `auto`",
    );
    let array = "transform: { steps: [{ array: { shape: [8], dtype: uint8 } }] }";
    check_refused_for(
        "mds",
        array,
        "5: transform has steps for arrays, and samples of `format: mds` have several fields; name the one that holds \
         them, for example `field: npy`",
    );
}

#[test]
fn a_form_that_cannot_be_kept_is_refused() {
    check_refused(
        "transform: { steps: [{ decode: { scaled: true } }, { random_resized_crop: 8 }], cache: prepared }",
        "5: transform.cache is `prepared`, but with `scaled: true` an image is decoded at the scale of each crop; \
         begin with a resize, leave `scaled` out, or use `stored` or `auto`",
    );
    check_refused(
        "transform: { steps: [{ center_crop: 8 }], cache: prepare }",
        "5: transform.cache is `prepare`; expected one of auto, stored, prepared; did you mean `prepared`?",
    );
}

#[test]
fn a_number_of_threads_is_checked() {
    for wrong in ["0", "1025", "many", "-1", "1.5"] {
        check_refused(
            &format!("threads: {wrong}"),
            &format!(
                "5: threads is `{wrong}`; expected `auto`, or a number of threads from 1 to 1024"
            ),
        );
    }
}
