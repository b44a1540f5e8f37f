//! `tierfeed-bench end-to-end`: a training on photographs whose cold store the kernel throttles, beside
//! the least time that any loader needs.
//!
//! The photographs lie on an ext4 image whose reads are limited to a half, one and two times what the
//! training takes ([`tierfeed_harness::slow_disk`]). Two ranks take batches in lock-step; a step takes a fixed time,
//! as on an accelerator. A RAM disk holds 30 % of the dataset.
//!
//! The bound of an epoch is the larger of its computing time and the least that must be read cold at the
//! rate that the disk really gave: parallel reads of the same files just before the run.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};
use tierfeed_harness::{
    bench::{Bench, Folder},
    clock::now,
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    leftovers::own_name,
    output::step,
    programs::Programs,
    slow_disk::{SlowDisk, on_slow_disk},
};

use crate::runs::{Predicted, ReaderRun, Report, predict};

const RANKS: u64 = 2;
const BATCH_SIZE: u64 = 8;
const CHUNK: Bytes = Bytes::mib(1);
const CACHED_PERCENT: u64 = 30;
/// Files that are made where no photographs are given.
const FILES: u64 = 500;
/// The largest time of all epochs over the lower bound.
const TIME_MAX: f64 = 1.05;
/// The most cold bytes over the least that are needed.
const COLD_MAX: f64 = 1.03;
/// Cold bandwidth as a share of the demand, in per cent.
const RATES: [u64; 3] = [50, 100, 200];

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// An image folder [default: 500 files of such sizes, made for this run].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// A RAM disk for the scratch tier.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) scratch: PathBuf,
    /// Epochs at each rate of the cold store.
    #[arg(long, value_name = "NUMBER", default_value_t = 6,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) epochs: u32,
    /// How long a step takes.
    #[arg(long, value_name = "TIME", default_value = "100 ms")]
    pub(crate) step: Nanoseconds,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) dataset_bytes: u64,
    /// The rate at which the training reads the dataset.
    pub(crate) demand_bytes_per_s: f64,
    pub(crate) runs: Vec<Run>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) cold_limit_bytes_per_s: u64,
    /// The rate of parallel reads of the files just before.
    pub(crate) cold_bytes_per_s: f64,
    pub(crate) wall_s: f64,
    /// The least time that any loader needs, in seconds.
    pub(crate) lower_bound_s: f64,
    pub(crate) wall_to_bound: f64,
    /// Read from the cold store, by tierfeed's report.
    pub(crate) cold_read_bytes: u64,
    /// Read from the device while it ran, metadata included.
    pub(crate) device_read_bytes: u64,
    pub(crate) minimal_cold_bytes: u64,
    pub(crate) epochs: Vec<EpochTime>,
}

impl Judged for Outcome {
    const DETAILS: &'static [&'static str] = &["epochs"];

    fn judged(&self) -> Judgement {
        self.runs.iter().fold(Judgement::default(), |judged, run| {
            let rate = run.cold_limit_bytes_per_s;
            let cold = run.cold_read_bytes as f64 / run.minimal_cold_bytes as f64;
            judged
                .at_most(&format!("time over the bound at {rate} B/s"), run.wall_to_bound, TIME_MAX)
                .at_most(&format!("cold bytes over the least at {rate} B/s"), cold, COLD_MAX)
        })
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct EpochTime {
    pub(crate) wall_s: f64,
    pub(crate) lower_bound_s: f64,
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let _watch = self.folder.watch()?;
        let programs = Programs::find()?;
        Ok(self.folder.with_files(|folder| measure(&self, &programs, folder))?)
    }
}

/// Copies the photographs to a slow disk, trains at every rate, and removes the disk.
fn measure(settings: &Settings, programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    let photographs = if let Some(path) = &settings.data {
        path.clone()
    } else {
        let made = folder.join("photographs");
        files::write_image_folder(&made, FILES)?;
        made
    };
    let files = files_below(&photographs)?;
    ensure!(!files.is_empty(), "no file below {}", photographs.display());
    let dataset = Bytes(files.iter().map(|(_, len)| len).sum());
    on_slow_disk(folder, dataset, |disk| {
        for (path, _) in &files {
            let below = path.strip_prefix(&photographs)?;
            let to = disk.path().join("data").join(below);
            fs::create_dir_all(to.parent().unwrap_or(disk.path()))?;
            fs::copy(path, to)?;
        }
        let bench = Rates { settings, programs, folder, disk, dataset, count: files.len() as u64 };
        bench.run()
    })
}

struct Rates<'a> {
    settings: &'a Settings,
    programs: &'a Programs,
    folder: &'a Path,
    disk: &'a SlowDisk,
    dataset: Bytes,
    count: u64,
}

impl Rates<'_> {
    fn run(&self) -> anyhow::Result<Outcome> {
        let batch = RANKS * BATCH_SIZE;
        let demand = float(self.dataset.0) / float(self.count) * float(batch) / self.step_s();
        let mut runs = Vec::new();
        for percent in RATES {
            step(&format!("cold store at {percent} % of the demand"));
            runs.push(self.train(limit(demand, percent))?);
        }
        Ok(Outcome { dataset_bytes: self.dataset.0, demand_bytes_per_s: demand, runs })
    }

    fn step_s(&self) -> f64 {
        float(self.settings.step.0) / 1e9
    }

    fn train(&self, rate: BytesPerSecond) -> anyhow::Result<Run> {
        let job = self.folder.join("job.yaml");
        let scratch = self.settings.scratch.join(own_name());
        fs::write(&job, self.job_text(&scratch))?;
        let predicted = predict(self.programs, &job)?;
        self.disk.limit(rate)?;
        let cold = self.read_plainly()?;
        let (report, epochs, device) = self.feed(&job)?;
        _ = fs::remove_dir(&scratch);
        let step = self.step_s();
        let bound = |epoch: &Predicted| {
            (f64::from(epoch.steps) * step).max(float(epoch.minimal_cold_bytes) / cold)
        };
        let bounds: Vec<f64> = predicted.iter().map(bound).collect();
        ensure!(bounds.len() == epochs.len(), "{} epochs ran of {}", epochs.len(), bounds.len());
        let (wall_s, lower_bound_s) = (epochs.iter().sum::<f64>(), bounds.iter().sum::<f64>());
        Ok(Run {
            cold_limit_bytes_per_s: rate.0,
            cold_bytes_per_s: cold,
            wall_s,
            lower_bound_s,
            wall_to_bound: wall_s / lower_bound_s,
            cold_read_bytes: report.cold_read_bytes,
            device_read_bytes: device.0,
            minimal_cold_bytes: predicted.iter().map(|epoch| epoch.minimal_cold_bytes).sum(),
            epochs: epochs
                .iter()
                .zip(bounds)
                .map(|(&wall_s, lower_bound_s)| EpochTime { wall_s, lower_bound_s })
                .collect(),
        })
    }

    /// Bytes per second that eight readers get of all files, the page cache empty.
    fn read_plainly(&self) -> anyhow::Result<f64> {
        self.disk.forget_cached()?;
        let list = format!("find {} -type f -print0", self.disk.path().join("data").display());
        let start = now();
        let status = self
            .disk
            .enter(Path::new("sh"))
            .args(["-c", &format!("{list} | xargs -0 -P 8 -n 16 cat > /dev/null")])
            .status()?;
        ensure!(status.success(), "reading the files failed ({status})");
        Ok(float(self.dataset.0) / (now() - start).as_secs_f64())
    }

    fn feed(&self, job: &Path) -> anyhow::Result<(Report, Vec<f64>, Bytes)> {
        self.disk.forget_cached()?;
        let before = self.disk.read()?;
        let options = &["--step", &*self.settings.step.to_string()];
        let run =
            ReaderRun { programs: self.programs, job, run_dir: self.folder.join("run"), options };
        let (report, seconds) = run.finish(self.disk.enter(&self.programs.tierfeed))?;
        Ok((report, seconds, Bytes(self.disk.read()?.0 - before.0)))
    }

    fn job_text(&self, scratch: &Path) -> String {
        let cached = self.dataset.0 * CACHED_PERCENT / 100 / CHUNK.0 * CHUNK.0;
        format!(
            "name: bench-end-to-end\n\
             dataset: {{ source: {data}, format: image-folder, page_cache: off }}\n\
             order: {{ shuffle: torch-distributed, seed: 42, epochs: {epochs} }}\n\
             batch_size: {BATCH_SIZE}\n\
             world: {{ nodes: 1, ranks_per_node: {RANKS} }}\n\
             step_time: {step}\n\
             prefetch: {{ batches: 8 }}\n\
             chunk: {CHUNK}\n\
             tiers:\n\
             \x20 main-memory: {{ size: 24 MiB }}\n\
             \x20 scratch: {{ size: {cached} B, path: {scratch} }}\n",
            data = self.disk.path().join("data").display(),
            epochs = self.settings.epochs,
            step = self.settings.step,
            scratch = scratch.display(),
        )
    }
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else {
            files.push((entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(files)
}

fn limit(demand: f64, percent: u64) -> BytesPerSecond {
    BytesPerSecond(whole(demand * float(percent) / 100.0))
}

#[expect(clippy::cast_precision_loss, reason = "byte counts of a benchmark are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive, and the cast of a float saturates"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}
