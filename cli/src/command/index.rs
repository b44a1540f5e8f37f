//! `tierfeed index`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_dataset::{
    Dataset, Index as DatasetIndex, format::FORMATS, index::Checksums, source::Location,
};

use super::dataset_keys::{self, BucketOptions, FormatOptions, refused};
use crate::{failure::Failure, output};

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

#[derive(Serialize)]
struct Summary<'a> {
    index: &'a Path,
    source: String,
    format: &'a str,
    objects: usize,
    samples: u32,
    total_bytes: u64,
    classes: usize,
    fingerprint: String,
    /// `hold` or `none`, with `--check`.
    checksums: Option<&'static str>,
    /// The peak memory of this process; `None` if the system does not report it.
    peak_memory_bytes: Option<u64>,
}

pub(crate) fn run(arguments: &Index) -> Result<(), Failure> {
    let dataset = dataset(&arguments.dataset)?;
    let path = arguments.output.clone().unwrap_or_else(|| default_output(&dataset.source));
    DatasetIndex::check_place(&dataset, &path).map_err(Failure::input)?;
    let bar = output::bar();
    let previous = DatasetIndex::open(&path).ok();
    let mut progress = |it| output::show_indexing(&bar, it);
    let index = tierfeed_runtime::dataset::build(&dataset, previous.as_ref(), &mut progress);
    bar.finish_and_clear();
    let index = index.map_err(Failure::index)?;
    index.save(&path).map_err(Failure::index)?;
    let checksums = if arguments.check { Some(check(&index, &dataset)?) } else { None };
    let summary = Summary {
        index: &path,
        source: index.source(),
        format: index.format(),
        objects: index.objects(),
        samples: index.len(),
        total_bytes: index.total().0,
        classes: index.class_names().len(),
        fingerprint: format!("{:016x}", index.fingerprint()),
        checksums,
        peak_memory_bytes: peak_memory(),
    };
    if arguments.json {
        return output::json(&summary);
    }
    output::lines(&format!(
        "{}: {} samples, {}, in {} objects{}, fingerprint {}{}",
        path.display(),
        summary.samples,
        Bytes(summary.total_bytes),
        summary.objects,
        if summary.classes > 0 { format!(", {} classes", summary.classes) } else { String::new() },
        summary.fingerprint,
        summary.checksums.map_or_else(String::new, |found| format!(", checksums: {found}"))
    ))
}

/// Compares the checksums of the format: `hold`, or `none` if there are none.
fn check(index: &DatasetIndex, dataset: &Dataset) -> Result<&'static str, Failure> {
    let bar = output::bar();
    let found = index.check_contents(dataset, &mut |it| output::show_indexing(&bar, it));
    bar.finish_and_clear();
    Ok(match found.map_err(Failure::index)? {
        Checksums::Hold => "hold",
        Checksums::None => "none",
    })
}

/// `VmHWM`: the peak of the resident set.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

fn dataset(options: &DatasetOptions) -> Result<Dataset, Failure> {
    let here = std::path::absolute(".").map_err(Failure::input)?;
    let keys = dataset_keys::of_options("", &options.bucket, &options.format, &options.keys);
    dataset_keys::dataset(&options.source, keys, &here).map_err(refused)
}

fn default_output(source: &Location) -> PathBuf {
    let name = match source {
        Location::Path(path) => path.file_name().unwrap_or("dataset".as_ref()),
        Location::Bucket(bucket) => {
            let last = bucket.url.trim_end_matches('/').rsplit('/').next();
            last.filter(|name| !name.is_empty()).unwrap_or("dataset").as_ref()
        }
    };
    let mut name = name.to_owned();
    name.push(".tfx");
    name.into()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Arguments, Command};

    fn parsed(line: &str) -> Result<Dataset, Failure> {
        let words = ["tierfeed", "index"].into_iter().chain(line.split(' '));
        let Command::Index(arguments) = Arguments::parse_from(words).command else {
            panic!("{line}")
        };
        dataset(&arguments.dataset)
    }

    #[track_caller]
    fn check_refused(line: &str, expected: &str) {
        let Err(Failure::Input(error)) = parsed(line) else { panic!("{line}") };
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn every_format_is_described_by_options() {
        for (line, expected) in [
            ("/data", "image-folder"),
            ("/data --format files --glob *.npz", "files, those that match `*.npz`"),
            ("/data --format files --manifest /list", "files, those in /list"),
            ("/data --format raw --record-bytes 3073", "raw, records of 3073 B"),
            (
                "/data --format raw --dtype uint16 --sequence-length 1024 --header-bytes 256",
                "raw, records of 2048 B after 256 B, without the rest",
            ),
            ("/data --format tfrecord --compression gzip", "tfrecord, gzip"),
            ("/data --format npz --member x --member y", r#"npz, arrays ["x", "y"]"#),
            (
                "/data --format parquet --unit column-chunk --column a.b",
                r#"parquet, column chunks of ["a.b"]"#,
            ),
            ("/data --format hdf5 --dataset /x", "hdf5, dataset /x"),
            ("s3://bucket/train --format webdataset --anonymous", "webdataset"),
        ] {
            assert_eq!(parsed(line).unwrap().format.to_string(), expected);
        }
    }

    #[test]
    fn a_wrong_option_is_named_as_it_was_typed() {
        check_refused("/data --format files", "--format files needs --glob, which files");
        check_refused("/data --member x", "--member is for --format npz only; remove it");
        check_refused(
            "/data --format raw --dtype u2 --sequence-length 1",
            "--dtype is `u2`; expected one of uint8,",
        );
        check_refused(
            "/data --format raw --record-bytes 1 --dtype int8",
            "--dtype stands beside --record-bytes; keep one of them",
        );
        check_refused("/data --region eu", "--region is for sources that start with s3:// only");
        check_refused("s3://key:hunter2@bucket", "s3://***@bucket: a URL holds no credentials");
    }

    #[test]
    fn an_index_is_named_after_the_end_of_its_source() {
        for (line, expected) in [
            ("/data/train", "train.tfx"),
            ("s3://bucket/train/", "train.tfx"),
            ("/", "dataset.tfx"),
        ] {
            assert_eq!(default_output(&parsed(line).unwrap().source), Path::new(expected));
        }
    }
}
