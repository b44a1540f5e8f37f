//! The keys of `datasets`: what is read beside the first dataset.

use super::*;

/// A job whose `datasets` have `keys` from line 5 on.
fn with(keys: &[&str]) -> Result<Job, JobError> {
    let keys = keys.iter().fold(String::new(), |text, key| text + "  " + key + "\n");
    parse(&format!(
        "name: a\ndataset: {{ source: data, format: image-folder }}\n\
         order: {{ shuffle: torch-distributed, epochs: 9, version: 2.10.0 }}\ndatasets:\n{keys}batch_size: 8\n"
    ))
}

#[track_caller]
fn check_error(keys: &[&str], begin: &str) {
    let error = with(keys).unwrap_err().to_string();
    assert!(error.starts_with(&format!("jobs/a.yaml:{begin}")), "{error}");
}

#[test]
fn a_dataset_needs_a_source_and_a_format_only() {
    let job = with(&["validation: { source: val, format: image-folder }"]).unwrap();
    let expected = FurtherDataset {
        name: "validation".to_owned(),
        dataset: Dataset::new(Location::Path("jobs/val".into()), Format::ImageFolder),
        speed: None,
        index: None,
        shuffle: Shuffle::Sequential,
        batch_size: 8,
        every: 1,
        transform: None,
    };
    assert_eq!(job.further, [expected]);
    assert_eq!(parse(REQUIRED).unwrap().further, []);
}

#[test]
fn datasets_are_read_in_the_order_of_their_names() {
    let job = with(&[
        "validation: { source: val, format: image-folder, batch_size: 512, every: 3 }",
        "test: { source: /t, format: image-folder, shuffle: torch-distributed, index: t.index }",
    ])
    .unwrap();
    let [test, validation] = &job.further[..] else { panic!("two datasets: {:?}", job.further) };
    assert_eq!((validation.batch_size, validation.every), (512, 3));
    assert_eq!((test.batch_size, test.every), (8, 1));
    assert_eq!(test.shuffle, job.shuffle, "of the same release of PyTorch");
    assert_eq!(test.index.as_deref(), Some(Path::new("jobs/t.index")));
    let order = job.order_of_all(&[100, 30, 20]).unwrap();
    assert_eq!(order.further.iter().map(|it| it.samples).collect::<Vec<_>>(), [30, 20]);
    assert_eq!(order.steps_per_epoch(), 13 + 4 + 1);
    assert_eq!(order.of_dataset(tierfeed_core::id::DatasetId(0)), job.order(100).ok());
    let error = job.order_of_all(&[100, 0, 20]).unwrap_err();
    assert_eq!(error.to_string(), "dataset is 0; it must be at least 1");
}

#[test]
fn keys_are_checked_as_those_of_the_first_dataset_and_named_in_full() {
    check_error(
        &["validation:", "  source: val", "  format: images"],
        "7: datasets.validation.format is `images`; expected one of image-folder, files, raw,",
    );
    check_error(
        &["validation: { source: val, format: raw }"],
        "5: datasets.validation has `format: raw`, which needs `record_bytes`",
    );
    check_error(
        &["validation: { source: val, format: image-folder, every: 10 }"],
        "5: datasets.validation.every is `10`; it must be between 1 and 9",
    );
    check_error(
        &["validation: { source: val, format: image-folder, batch_size: 0 }"],
        "5: datasets.validation.batch_size is `0`; it must be between 1 and 1048576",
    );
    check_error(
        &["validation: { source: val, format: image-folder, shuffle: mosaic }"],
        "5: datasets.validation.shuffle is `mosaic`; expected one of sequential, torch-distributed",
    );
    check_error(&["../x: { source: val, format: image-folder }"], "5: datasets.../x is `../x`; ");
    check_error(
        &["validation: { format: image-folder }"],
        "5: datasets.validation: missing field `source`",
    );
    check_error(
        &["validation: { source: val, format: image-folder, page_cache: off }"],
        "5: datasets.validation.page_cache: unknown field `page_cache`, expected one of",
    );
}

#[test]
fn what_cannot_stand_beside_further_datasets_is_refused() {
    let four: Vec<_> = ["a", "b", "c", "d"]
        .map(|it| format!("{it}: {{ source: val, format: image-folder }}"))
        .into();
    let four: Vec<_> = four.iter().map(String::as_str).collect();
    check_error(&four, "5: datasets names more than 3 datasets; keep 3 beside `dataset`");
    let beside = |line: &str| {
        let text = format!(
            "{line}datasets: {{ val: {{ source: val, format: image-folder }} }}\nbatch_size: 8\n"
        );
        parse(&text).unwrap_err().to_string()
    };
    let error = beside(
        "name: a\ndataset: { source: data, format: image-folder }\norder: { shuffle: published, epochs: 2 }\n",
    );
    assert!(error.contains("4: datasets stands beside `shuffle: published`"), "{error}");
    let error = beside(
        "name: a\ndataset: { source: data, format: image-folder, described: { objects: 9, sample_bytes: 10 } }\n\
         order: { shuffle: sequential, epochs: 2 }\n",
    );
    assert!(error.contains("4: datasets stands beside `dataset.described`"), "{error}");
}
