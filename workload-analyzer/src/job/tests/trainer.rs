//! The keys of the trainer and of a described dataset.

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{REQUIRED, check_text, parse};
use crate::job::{
    Described, Job,
    trainer::{
        Checkpoint, Device, Element, Interval, Loader, Model, NativeCache, Optimizer, Pass, Pause,
        Trainer, Validation,
    },
};

fn with(keys: &str) -> Job {
    parse(&format!("{REQUIRED}{keys}\n")).unwrap_or_else(|error| panic!("{error}"))
}

/// Keys that stand in line 5.
#[track_caller]
fn check_refused(keys: &str, message: &str) {
    check_text(&format!("{REQUIRED}{keys}\n"), &format!("5: {message}"));
}

fn described(keys: &str) -> String {
    REQUIRED.replace("image-folder }", &format!("image-folder, described: {{ {keys} }} }}"))
}

#[test]
fn every_key_of_the_trainer_arrives() {
    let job = with(
        "loader: { workers: 8, preprocessing: 6 ms }\n\
         decoded: { width: 224, height: 200, channels: 3, bytes_per_element: 4 }\n\
         validation: { samples: 500, sample_bytes: 1 kB, batch_size: 7, step_time: 1 ms, every: 2 epochs }\n\
         evaluation: { samples: 9, sample_bytes: 10, batch_size: 11, step_time: 12 ns }\n\
         model: { parameters: 25.6e6, bytes_per_parameter: 2, optimizer: adamw, device: gpu }\n\
         checkpoint: { every: 500 steps, bytes: 300 MB }\n\
         pause: { every: 25 steps, time: 300 ms }\n\
         cache: memory",
    );
    let pass = |samples, bytes, batch, time| Pass {
        samples,
        sample_bytes: Some(Bytes(bytes)),
        batch_size: Some(batch),
        step_time: Some(Nanoseconds(time)),
    };
    let expected = Trainer {
        loader: Loader { workers: 8, preprocessing: Some(Nanoseconds(6_000_000)) },
        decoded: vec![Element { width: 224, height: 200, depth: 3, bytes_per_element: 4 }],
        validation: Some(Validation { pass: pass(500, 1_000, 7, 1_000_000), every_epochs: 2 }),
        evaluation: Some(pass(9, 10, 11, 12)),
        model: Some(Model {
            parameters: 25_600_000,
            bytes_per_parameter: 2,
            optimizer: Optimizer::AdamW,
            device: Device::Gpu,
        }),
        checkpoint: Some(Checkpoint {
            every: Interval::Steps(500),
            bytes: Some(Bytes(300_000_000)),
        }),
        pause: Some(Pause { every: Interval::Steps(25), time: Nanoseconds(300_000_000) }),
        cache: NativeCache::Memory,
    };
    assert_eq!(job.trainer, expected);
}

#[test]
fn missing_keys_of_the_trainer_have_the_documented_defaults() {
    let job = with(
        "loader: {}\n\
         decoded: { elements: [ { width: 5 }, { depth: 2, bytes_per_element: 8 } ] }\n\
         validation: { samples: 3 }\n\
         model: { parameters: 1_000, optimizer: sgd }\n\
         checkpoint: { every: 1 epoch }\n\
         cache: spool",
    );
    let pass = Pass { samples: 3, sample_bytes: None, batch_size: None, step_time: None };
    let expected = Trainer {
        loader: Loader { workers: 0, preprocessing: None },
        decoded: vec![
            Element { width: 5, height: 1, depth: 1, bytes_per_element: 1 },
            Element { width: 1, height: 1, depth: 2, bytes_per_element: 8 },
        ],
        validation: Some(Validation { pass, every_epochs: 1 }),
        evaluation: None,
        model: Some(Model {
            parameters: 1_000,
            bytes_per_parameter: 4,
            optimizer: Optimizer::Sgd,
            device: Device::Cpu,
        }),
        checkpoint: Some(Checkpoint { every: Interval::Epochs(1), bytes: None }),
        pause: None,
        cache: NativeCache::Path("jobs/spool".into()),
    };
    assert_eq!(job.trainer, expected);
}

#[test]
fn an_invalid_key_of_the_trainer_is_refused() {
    check_refused(
        "pause: { every: 25 steps, time: 0 s }",
        "pause.time is `0 s`; it must be above 0, for example `120 ms`",
    );
    check_refused(
        "loader: { workers: 5000 }",
        "loader.workers is `5000`; it must be between 0 and 4096",
    );
    check_refused(
        "decoded: {}",
        "decoded has no array; give `width`, `height` and `channels`, or 1 to 256 `elements`",
    );
    check_refused(
        "decoded: { elements: [] }",
        "decoded.elements has no array; give `width`, `height` and `channels`, or 1 to 256 `elements`",
    );
    check_refused(
        "decoded: { width: 2, elements: [ { width: 2 } ] }",
        "decoded.elements stands beside `width, height and channels`, which says the same; keep one of them",
    );
    check_refused(
        "decoded: { width: 0 }",
        "decoded.width is `0`; it must be between 1 and 1048576",
    );
    check_refused(
        "validation: { samples: 1, every: 5 steps }",
        "validation.every is `5 steps`; expected a number of epochs, for example `1 epoch`",
    );
    for every in ["0 epochs", "epoch", "2", "2 days", "-1 steps"] {
        check_refused(
            &format!("checkpoint: {{ every: {every}, bytes: 1 }}"),
            &format!(
                "checkpoint.every is `{every}`; expected a number of epochs or steps, for example `1 epoch` or `500 steps`"
            ),
        );
    }
    check_refused(
        "checkpoint: { every: 1 epoch }",
        "checkpoint has no `bytes`, and there is no `model` from which they would follow; give one of them",
    );
    check_refused(
        "model: { parameters: 1.5, optimizer: sgd }",
        "model.parameters is `1.5`; it must be between 1 and 1125899906842624",
    );
    check_refused(
        "model: { parameters: 1, optimizer: lion }",
        "model.optimizer is `lion`; expected one of sgd, sgd-momentum, adam, adamw, adagrad, rmsprop, lamb",
    );
    check_refused(
        "model: { parameters: 1, optimizer: sgd, device: tpu }",
        "model.device is `tpu`; expected one of cpu, gpu; did you mean `cpu`?",
    );
}

#[test]
fn a_job_with_a_described_dataset_cannot_run() {
    let keys =
        "objects: 1024, samples_per_object: 1251, sample_bytes: 114660, sample_bytes_stdev: 1 kB";
    let job = parse(&described(keys)).unwrap();
    let expected = Described {
        objects: 1_024,
        samples_per_object: 1_251,
        sample_bytes: Bytes(114_660),
        sample_bytes_stdev: Bytes(1_000),
    };
    assert_eq!(job.described, Some(expected));
    let refused = job.require_dataset().unwrap_err().to_string();
    assert!(refused.contains("dataset.described") && refused.contains("remove"), "{refused}");
    assert_eq!(parse(REQUIRED).unwrap().require_dataset(), Ok(()));
}

#[test]
fn an_invalid_description_is_refused() {
    check_text(
        &described("objects: 65536, samples_per_object: 65536, sample_bytes: 1"),
        "2: dataset.described.objects is `65536`; 4294967296 samples; at most 4294967295 can be numbered",
    );
    check_text(
        &described("objects: 1, sample_bytes: 1000, sample_bytes_stdev: 950"),
        "2: dataset.described.sample_bytes_stdev is `950 B`; sizes that spread by more than nine tenths of their mean, 1000 B, are not supported",
    );
    for (objects, size) in [("1", "65 GiB"), ("4294967295", "1 GiB")] {
        check_text(
            &described(&format!("objects: {objects}, sample_bytes: {size}")),
            &format!(
                "2: dataset.described.sample_bytes is `{size}`; {objects} samples of this size; \
                 a sample has at most 64 GiB, all together at most 1 EiB"
            ),
        );
    }
    check_text(
        &described("objects: 0, sample_bytes: 1"),
        "2: dataset.described.objects is `0`; it must be between 1 and 4294967295",
    );
    check_text(
        &described("objects: 1, sample_bytes: 0"),
        "2: dataset.described.sample_bytes is `0`; expected a whole number of bytes of at least 1, or a size such as `4 KiB`",
    );
}

/// The states for each parameter are those of the documentation of `torch.optim`.
#[test]
fn a_model_takes_its_parameters_gradients_and_states() {
    let bytes = |optimizer| {
        let model =
            Model { parameters: 10, bytes_per_parameter: 4, optimizer, device: Device::Cpu };
        (model.saved_bytes().0, model.trained_bytes().0)
    };
    assert_eq!(bytes(Optimizer::Sgd), (40, 80));
    assert_eq!(bytes(Optimizer::SgdMomentum), (80, 120));
    assert_eq!(bytes(Optimizer::Adam), (120, 160));
    let huge = Element { width: 1 << 20, height: 1 << 20, depth: 1 << 20, bytes_per_element: 16 };
    assert_eq!(huge.bytes(), Bytes(u64::MAX));
}
