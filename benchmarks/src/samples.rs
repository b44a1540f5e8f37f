//! `tierfeed-bench handoff --samples`: small samples that tierfeed keeps in main memory, beside a plain loop over
//! the same files in the page cache, turn by turn in one process.
//!
//! The plain loop is `numpy.memmap` with random indices for records and rows, and one read for each sample of
//! files and shards. In the first epoch tierfeed reads what the plain loop reads.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use serde::{Deserialize, Serialize};
use tierfeed_harness::{
    bench::Folder,
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    programs::Programs,
    statistics::percentile,
};

use crate::runs::read_json;

const PEERS: &str = include_str!("../peers/samples.py");
const KIB: u64 = 1 << 10;
/// The length of a sample, and the least ratio of records of that length to the plain loop.
const SIZES: [(u64, f64); 5] =
    [(2 * KIB, 0.6), (8 * KIB, 0.9), (32 * KIB, 0.9), (100 * KIB, 1.0), (1000 * KIB, 1.0)];
const BATCH_SIZES: [u64; 2] = [64, 1024];
/// The least ratio of the first epoch to the plain loop.
const FIRST_RATIO_MIN: f64 = 0.5;
/// Batches that are staged, at most.
const STAGED_BATCHES: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Form {
    Raw,
    Npy,
    ImageFolder,
    Webdataset,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Samples {
    /// The formats of the small samples.
    #[arg(long, value_name = "FORMAT", value_enum, value_delimiter = ',',
          default_values_t = [Form::Raw, Form::Npy, Form::ImageFolder, Form::Webdataset])]
    pub(crate) formats: Vec<Form>,
    /// MiB of each dataset of small samples.
    #[arg(long, value_name = "MIB", default_value_t = 256,
          value_parser = RangedU64ValueParser::<u64>::new().range(64..=4096))]
    pub(crate) mib: u64,
    /// How often each side reads all small samples.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub(crate) turns: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) format: Form,
    pub(crate) sample_bytes: u64,
    pub(crate) batch_size: u64,
    pub(crate) plain_samples_per_s: f64,
    pub(crate) samples_per_s: f64,
    pub(crate) first_epoch_samples_per_s: f64,
    /// The medians of tierfeed over those of the plain loop.
    pub(crate) ratio: f64,
    pub(crate) first_epoch_ratio: f64,
}

#[derive(Debug, Deserialize)]
struct Raw {
    first: f64,
    warm: Vec<f64>,
    plain: Vec<f64>,
    mode: String,
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        let records = self.rows.iter().filter(|row| row.format == Form::Raw);
        records.fold(Judgement::default(), |judged, row| {
            let size = SIZES.iter().find(|(size, _)| *size == row.sample_bytes);
            let what =
                format!("records of {} B in batches of {}", row.sample_bytes, row.batch_size);
            judged.at_least(&what, row.ratio, size.map_or(f64::NAN, |(_, least)| *least)).at_least(
                &format!("{what}, first epoch"),
                row.first_epoch_ratio,
                FIRST_RATIO_MIN,
            )
        })
    }
}

impl Samples {
    pub(crate) fn run(&self, python: &Path, folder: &Folder) -> Result<Outcome, Failure> {
        let programs = Programs::find()?;
        let mut rows = Vec::new();
        for format in &self.formats {
            for (size, _) in SIZES {
                let measured = folder.with_files(|folder| {
                    fs::write(folder.join("samples.py"), PEERS)?;
                    let dataset = Dataset { folder, python, format: *format, size };
                    dataset.measure(self, &programs)
                });
                rows.extend(measured?);
            }
        }
        Ok(Outcome { rows })
    }
}

struct Dataset<'a> {
    folder: &'a Path,
    python: &'a Path,
    format: Form,
    size: u64,
}

impl Dataset<'_> {
    fn measure(&self, samples: &Samples, programs: &Programs) -> anyhow::Result<Vec<Row>> {
        let count = (samples.mib << 20) / self.size;
        step(&format!("{count} samples of {} B, {}", self.size, self.format.name()));
        let mut make = Command::new(self.python);
        make.arg(self.folder.join("samples.py")).args(["make", self.format.name()]);
        make.arg(self.folder.join("data")).args([self.size, count].map(|it| it.to_string()));
        ensure!(make.status()?.success(), "the samples were not made");
        let batch_sizes = BATCH_SIZES.iter().filter(|it| **it * STAGED_BATCHES <= count);
        batch_sizes.map(|batch_size| self.row(*batch_size, samples, programs)).collect()
    }

    fn row(&self, batch_size: u64, samples: &Samples, programs: &Programs) -> anyhow::Result<Row> {
        let (job, result) = (self.folder.join("job.yaml"), self.folder.join("result.json"));
        fs::write(&job, self.job(batch_size, samples))?;
        let mut run = Command::new(&programs.tierfeed);
        run.args(["run", "--run-dir"]).arg(self.folder.join("run")).arg(&job).arg("--");
        run.arg(self.python).arg(self.folder.join("samples.py")).args(["read", self.format.name()]);
        run.arg(self.folder.join("data"));
        run.args([self.size, batch_size, samples.turns].map(|it| it.to_string())).arg(&result);
        let status = run.stdout(std::io::stderr()).status();
        ensure!(status.context("tierfeed does not start")?.success(), "the measured run failed");
        let raw: Raw = read_json(&result)?;
        ensure!(raw.mode == "agent", "Python read without the agent, so nothing was measured");
        let median = |rates: &[f64]| percentile(rates, 50).context("a side without a turn");
        let (plain, warm) = (median(&raw.plain)?, median(&raw.warm)?);
        Ok(Row {
            format: self.format,
            sample_bytes: self.size,
            batch_size,
            plain_samples_per_s: plain,
            samples_per_s: warm,
            first_epoch_samples_per_s: raw.first,
            ratio: warm / plain,
            first_epoch_ratio: raw.first / plain,
        })
    }

    fn job(&self, batch_size: u64, samples: &Samples) -> String {
        let keys = match self.format {
            Form::Raw => format!("\n  record_bytes: {}", self.size),
            Form::Npy | Form::ImageFolder | Form::Webdataset => String::new(),
        };
        let staged = STAGED_BATCHES * batch_size * self.size / (1 << 20);
        format!(
            "name: bench-samples\n\
             dataset:\n  source: {}\n  format: {}{keys}\n\
             order: {{ shuffle: torch-distributed, seed: 42, epochs: {} }}\n\
             batch_size: {batch_size}\n\
             chunk: 32 MiB\n\
             tiers:\n  main-memory: {{ size: {} MiB }}\n",
            self.folder.join("data").display(),
            self.format.name(),
            samples.turns + 1,
            2 * samples.mib + staged,
        )
    }
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Npy => "npy",
            Self::ImageFolder => "image-folder",
            Self::Webdataset => "webdataset",
        }
    }
}
