//! The keys of a dataset as options of a command, and what is wrong with them by the names of the options.

use std::path::Path;

use clap::Args;
use tierfeed_dataset::{Dataset, source::Location};
use tierfeed_workload_analyzer::job::{
    KeyConflict,
    keys::{DatasetKeys, KeyError},
};

use crate::failure::Failure;

/// How a bucket is reached.
#[derive(Debug, Args)]
pub(crate) struct BucketOptions {
    /// The server of a bucket, such as http://127.0.0.1:9000 [default: the usual one of s3://, gs:// or
    /// az://].
    #[arg(long, value_name = "URL", help_heading = "Buckets")]
    pub(crate) endpoint: Option<String>,
    /// The region of a bucket of s3:// [default: as the environment says].
    #[arg(long, value_name = "NAME", help_heading = "Buckets")]
    pub(crate) region: Option<String>,
    /// Reads the bucket without credentials.
    #[arg(long, help_heading = "Buckets")]
    pub(crate) anonymous: bool,
}

/// What a format needs to be told.
#[derive(Debug, Args)]
pub(crate) struct FormatOptions {
    /// Which files are taken, such as "**/*.npz" or "train-*".
    #[arg(long, value_name = "PATTERN", help_heading = "Formats")]
    pub(crate) glob: Option<String>,
    /// A text file with the path of a file to take, below SOURCE, per line.
    #[arg(long, value_name = "FILE", help_heading = "Formats")]
    pub(crate) manifest: Option<String>,
    /// For raw: the size of a record, such as 3073 or "4 KiB".
    #[arg(long, value_name = "SIZE", help_heading = "Formats")]
    pub(crate) record_bytes: Option<String>,
    /// For raw, instead of a size: what a token is, such as uint16.
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) dtype: Option<String>,
    /// For raw, beside --dtype, and for chunks of tokens of litdata: tokens in a sample.
    #[arg(long, value_name = "NUMBER", help_heading = "Formats")]
    pub(crate) sequence_length: Option<u64>,
    /// For raw: what stands in each file before its first record [default: nothing].
    #[arg(long, value_name = "SIZE", help_heading = "Formats")]
    pub(crate) header_bytes: Option<String>,
    /// For tfrecord: none or gzip [default: none].
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) compression: Option<String>,
    /// For npz: an array that is a sample; may be given several times [default: all].
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) member: Vec<String>,
    /// For parquet: row-group or column-chunk [default: row-group].
    #[arg(long, value_name = "NAME", help_heading = "Formats")]
    pub(crate) unit: Option<String>,
    /// For parquet: the dotted path of a column; may be given several times [default: all].
    #[arg(long, value_name = "PATH", help_heading = "Formats")]
    pub(crate) column: Vec<String>,
    /// For hdf5: the path of the dataset in each file.
    #[arg(long, value_name = "PATH", help_heading = "Formats")]
    pub(crate) dataset: Option<String>,
}

pub(super) fn of_options(
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

/// The dataset at `source` that `keys` describe, whose paths start at `here`. A URL is UTF-8, a path need not be.
pub(super) fn dataset(source: &Path, keys: &DatasetKeys, here: &Path) -> Result<Dataset, KeyError> {
    let location = match source.to_str() {
        Some(source) => DatasetKeys { source: source.to_owned(), ..keys.clone() }.location(here)?,
        None => Location::Path(here.join(source)),
    };
    Ok(Dataset::new(location, keys.format(here)?).picking(keys.picked(here)?))
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
