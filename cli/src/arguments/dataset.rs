//! Arguments of the commands that index and read a dataset.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are printed in terminals, without Markdown"
)]

use std::path::PathBuf;

use clap::Args;
use tierfeed_workload_analyzer::job::keys::FORMATS;

#[derive(Debug, Args)]
pub(crate) struct Index {
    #[command(flatten)]
    pub(crate) dataset: DatasetOptions,
    /// Where the index goes [default: SOURCE's name with .tfx, here].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Then reads all data and compares it with the checksums that the format has.
    #[arg(long)]
    pub(crate) check: bool,
    /// Prints what was indexed as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a dataset is and how it is stored: the keys below `dataset` of a job file.
#[derive(Debug, Args)]
pub(crate) struct DatasetOptions {
    /// A directory or file, as a path or as file://PATH, or a bucket as s3://BUCKET/PREFIX, gs://, az:// or
    /// https://HOST/PREFIX. Credentials come from the variables of the provider, such as AWS_ACCESS_KEY_ID.
    pub(crate) source: PathBuf,
    #[command(flatten)]
    pub(crate) bucket: BucketOptions,
    /// How samples lie in objects.
    #[arg(long, value_name = "FORMAT", default_value = "image-folder", value_parser = FORMATS)]
    pub(crate) format: String,
    #[command(flatten)]
    pub(crate) keys: FormatOptions,
}

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

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The index of the dataset.
    #[arg(long, value_name = "FILE")]
    pub(crate) index: PathBuf,
    /// The server of the bucket [default: the usual one].
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The region of the bucket [default: as the environment says].
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// Reads the bucket without credentials.
    #[arg(long)]
    pub(crate) anonymous: bool,
}
