//! The keys of a dataset as options of a command, and what is wrong with them by the names of the options.

use tierfeed_workload_analyzer::job::{
    KeyConflict,
    keys::{DatasetKeys, KeyError},
};

use crate::{
    arguments::{BucketOptions, FormatOptions},
    failure::Failure,
};

pub(super) fn dataset_keys(
    source: String,
    bucket: &BucketOptions,
    format: String,
    options: &FormatOptions,
) -> DatasetKeys {
    let list = |names: &[String]| (!names.is_empty()).then(|| names.to_vec());
    DatasetKeys {
        source,
        endpoint: bucket.endpoint.clone(),
        region: bucket.region.clone(),
        anonymous: bucket.anonymous.then_some(true),
        format,
        glob: options.glob.clone(),
        manifest: options.manifest.clone(),
        record_bytes: options.record_bytes.clone(),
        dtype: options.dtype.clone(),
        sequence_length: options.sequence_length,
        header_bytes: options.header_bytes.clone(),
        compression: options.compression.clone(),
        members: list(&options.member),
        unit: options.unit.clone(),
        columns: list(&options.column),
        dataset: options.dataset.clone(),
    }
}

pub(super) fn refused(error: KeyError) -> Failure {
    Failure::Input(match error {
        KeyError::Invalid { key: "source", value, reason } => anyhow::anyhow!("{value}: {reason}"),
        KeyError::Invalid { key, value, reason } => {
            anyhow::anyhow!("{} is `{value}`; {reason}", option(key))
        }
        KeyError::Conflict {
            conflict: KeyConflict::NeededByFormat { format, key, what }, ..
        } => {
            anyhow::anyhow!("--format {format} needs {}, {what}", option(key))
        }
        KeyError::Conflict { conflict: KeyConflict::OfOtherFormat { formats }, key } => {
            anyhow::anyhow!("{} is for --format {formats} only; remove it", named(key))
        }
        KeyError::Conflict { conflict: KeyConflict::Beside { other }, key } => {
            let other = option(other);
            anyhow::anyhow!("{} stands beside {other}; keep one of them", named(key))
        }
        KeyError::Conflict { conflict, key } => anyhow::anyhow!("{} {conflict}", named(key)),
    })
}

fn named(key: Option<&str>) -> String {
    key.map_or_else(|| "the dataset".to_owned(), option)
}

/// The option of a key; lists are given one value at a time.
pub(super) fn option(key: &str) -> String {
    match key {
        "members" => "--member".to_owned(),
        "columns" => "--column".to_owned(),
        other => format!("--{}", other.replace('_', "-")),
    }
}
