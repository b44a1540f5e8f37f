//! Arrays and tokens under pipelines: one input is the bytes of a sample.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_transform::{Pipeline, PipelineFile, worker_protocol::InputForm};
use tierfeed_transform_worker::{Input, Transform};

const PIPELINES: [&str; 4] = [
    r#"{"steps": [{"array": {"shape": [3, 4, 4], "dtype": "uint8"}}]}"#,
    r#"{"steps": [{"array": {"shape": [3, 4, 4], "dtype": "uint8", "key": "images"}}]}"#,
    r#"{"steps": [{"array": {"shape": [2, 2], "dtype": "float64"}}]}"#,
    r#"{"steps": [{"tokens": {"length": 32, "dtype": "uint16"}}]}"#,
];

fuzz_target!(|bytes: &[u8]| {
    for text in PIPELINES {
        let file: PipelineFile = serde_json::from_str(text).expect("the form of a pipeline");
        let pipeline = Pipeline::try_new(&file).expect("a pipeline");
        let length = usize::try_from(pipeline.row_bytes()).expect("small");
        let mut transform = Transform::new(pipeline, 3);
        let input = Input { sample: 1, epoch: 2, form: InputForm::Stored, bytes };
        let mut prepared = Vec::new();
        let mut row = vec![1; length];
        if transform.apply(&input, &mut row, Some(&mut prepared)).is_ok() {
            assert_eq!(row, prepared, "the prepared form is the row");
        }
    }
});
