//! `tierfeed-bench policies`: real runs of every policy on the same files, beside the simulator's
//! prediction and beside what no policy can undercut.
//!
//! The dataset is an image folder with files of many sizes; the cold store is slowed down, the CXL tier
//! holds 40 % and the scratch tier 10 % of the dataset, main memory only stages.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use tierfeed_core::retention::policy;

use crate::{files, judgement::Judgement, programs::Programs};

const EPOCHS: u32 = 3;
const RANKS: u32 = 2;
/// One process takes the batches of all ranks in turn, so little is left to chance: what a policy throws
/// away while the cold store is late. Measured: up to 0.013 in an epoch on a loaded machine.
const DRIFT_MAX: f64 = 0.03;
/// Samples do not fill tiers to the last byte.
const OVER_LEAST_MAX: f64 = 1.03;
const CHUNK_BYTES: u64 = 256 << 10;
/// A few batches of both ranks, and nothing left for a cache.
const MAIN_MEMORY_BYTES: u64 = 9 << 20;

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it starts.
    pub programs: Programs,
    /// Where files are made, and removed afterwards.
    pub folder: PathBuf,
    /// A RAM disk for the scratch tier.
    pub scratch: PathBuf,
    /// Files of 20 to 200 KB.
    pub files: u64,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Bytes of the dataset.
    pub dataset_bytes: u64,
    /// What the cache tiers hold together.
    pub capacity_bytes: u64,
    /// One row for each policy and epoch.
    pub rows: Vec<Row>,
}

/// One epoch of one policy.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Which policy.
    pub policy: String,
    /// Which epoch.
    pub epoch: u32,
    /// Read from the cold store, as the agent counted.
    pub cold_read_bytes: u64,
    /// As the simulator predicted.
    pub predicted_bytes: u64,
    /// What no policy can undercut.
    pub minimal_cold_bytes: u64,
}

impl Outcome {
    /// The prediction of every policy, and what `gap` reads beside the least.
    #[must_use]
    pub fn judged(&self) -> Judgement {
        let mut judged = Judgement::default();
        for row in &self.rows {
            let Row { policy, epoch, .. } = row;
            let [cold, predicted, least] =
                [row.cold_read_bytes, row.predicted_bytes, row.minimal_cold_bytes]
                    .map(|bytes| bytes as f64);
            let off = (cold - predicted).abs() / predicted;
            let what = format!("{policy}, epoch {epoch}: off the prediction by");
            judged = judged.at_most(&what, off, DRIFT_MAX);
            if policy == policy::Kind::Gap.name() {
                let what = format!("{policy}, epoch {epoch}: cold bytes over the least");
                judged = judged.at_most(&what, cold / least, OVER_LEAST_MAX);
            }
        }
        judged
    }
}

#[derive(Debug, Deserialize)]
struct Report {
    epochs: Vec<EpochReport>,
    order_digest: String,
}

#[derive(Debug, Deserialize)]
struct EpochReport {
    epoch: u32,
    cold_read_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Prediction {
    epochs: Vec<EpochPrediction>,
}

#[derive(Debug, Deserialize)]
struct EpochPrediction {
    cold_read_bytes: u64,
    minimal_cold_bytes: u64,
}

/// Makes the files, runs and predicts every policy, removes the files.
///
/// # Errors
///
/// If the folder cannot be written, a run fails, or two policies hand over different orders.
pub fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| measure(settings, folder))
}

fn measure(settings: &Settings, folder: &Path) -> anyhow::Result<Outcome> {
    let data = folder.join("data");
    let mut dataset_bytes = 0;
    for number in 0..settings.files {
        let class = data.join(format!("class{:02}", number % 10));
        let len = 20_000 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
        files::write_noise(&class.join(format!("{number:05}.jpg")), number, len)?;
        dataset_bytes += len;
    }
    let job = folder.join("job.yaml");
    let scratch = settings.scratch.join(format!("tierfeed-bench-{}", std::process::id()));
    let chunks = |percent: u64| dataset_bytes * percent / 100 / CHUNK_BYTES;
    let capacity_bytes = (chunks(40) + chunks(10)) * CHUNK_BYTES;
    let mut rows = Vec::new();
    let mut digests = Vec::new();
    for policy in policy::Kind::ALL {
        fs::write(&job, job_text(policy, &data, &scratch, [chunks(40), chunks(10)]))?;
        let prediction = predict(settings, &job)?;
        let report = train(settings, &job, &folder.join(policy.name()))?;
        digests.push(report.order_digest);
        ensure!(
            report.epochs.len() == prediction.epochs.len(),
            "{}: {} epochs were run and {} predicted",
            policy.name(),
            report.epochs.len(),
            prediction.epochs.len()
        );
        for (ran, predicted) in report.epochs.iter().zip(prediction.epochs) {
            rows.push(Row {
                policy: policy.name().to_owned(),
                epoch: ran.epoch,
                cold_read_bytes: ran.cold_read_bytes,
                predicted_bytes: predicted.cold_read_bytes,
                minimal_cold_bytes: predicted.minimal_cold_bytes,
            });
        }
    }
    fs::remove_dir(&scratch).with_context(|| format!("{}: not empty", scratch.display()))?;
    if digests.windows(2).any(|pair| pair[0] != pair[1]) {
        bail!("policies handed over different orders: {digests:?}");
    }
    Ok(Outcome { dataset_bytes, capacity_bytes, rows })
}

fn predict(settings: &Settings, job: &Path) -> anyhow::Result<Prediction> {
    let output = Command::new(&settings.programs.tierfeed)
        .arg("plan")
        .arg(job)
        .args(["--simulate", "--json"])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("`tierfeed plan` failed ({})", output.status);
    }
    serde_json::from_slice(&output.stdout).context("`tierfeed plan` printed something else")
}

fn train(settings: &Settings, job: &Path, run_dir: &Path) -> anyhow::Result<Report> {
    let status = Command::new(&settings.programs.tierfeed)
        .args(["run", "--launch", "once", "--run-dir"])
        .arg(run_dir)
        .arg(job)
        .arg("--")
        .arg(&settings.programs.bench)
        .args(["reader"])
        .stdout(std::io::stderr())
        .status()?;
    if !status.success() {
        bail!("the run in {} failed ({status}); its messages are above", run_dir.display());
    }
    let text = fs::read_to_string(run_dir.join("report.json"))?;
    serde_json::from_str(&text).context("report.json is not what it should be")
}

/// The figures as a table.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let mib = |bytes: u64| format!("{}.{} MiB", bytes >> 20, ((bytes >> 10) & 1023) * 10 / 1024);
    let percent = |bytes: u64, of: u64| {
        let per_mille = bytes * 1000 / of.max(1);
        format!("{}.{} %", per_mille / 10, per_mille % 10)
    };
    let (dataset, capacity) = (outcome.dataset_bytes, outcome.capacity_bytes);
    _ = writeln!(
        text,
        "dataset {}, tiers hold {} ({}); cxl-memory emulated, cold store emulated",
        mib(dataset),
        mib(capacity),
        percent(capacity, dataset)
    );
    _ = writeln!(
        text,
        "{:<12}{:>6}{:>16}{:>12}{:>16}{:>12}{:>16}",
        "policy", "epoch", "cold, run", "of dataset", "simulated", "off by", "minimum"
    );
    for row in &outcome.rows {
        let off = row.cold_read_bytes.abs_diff(row.predicted_bytes);
        _ = writeln!(
            text,
            "{:<12}{:>6}{:>16}{:>12}{:>16}{:>12}{:>16}",
            row.policy,
            row.epoch,
            mib(row.cold_read_bytes),
            percent(row.cold_read_bytes, dataset),
            mib(row.predicted_bytes),
            percent(off, row.predicted_bytes),
            mib(row.minimal_cold_bytes)
        );
    }
    text
}

fn job_text(policy: policy::Kind, data: &Path, scratch: &Path, chunks: [u64; 2]) -> String {
    let [cxl_bytes, scratch_bytes] = chunks.map(|chunks| chunks * CHUNK_BYTES);
    format!(
        "name: bench-policies\n\
         dataset:\n  source: {data}\n  format: image-folder\n\
         \x20 emulate: {{ latency: 1 ms, bandwidth: 150 MB/s }}\n\
         order: {{ shuffle: torch-distributed, seed: 42, epochs: {EPOCHS} }}\n\
         batch_size: 8\n\
         world: {{ nodes: 1, ranks_per_node: {RANKS} }}\n\
         step_time: 5 ms\n\
         policy: {policy}\n\
         chunk: {CHUNK_BYTES} B\n\
         tiers:\n\
         \x20 main-memory: {{ size: {MAIN_MEMORY_BYTES} B }}\n\
         \x20 cxl-memory: {{ size: {cxl_bytes} B, emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }} }}\n\
         \x20 scratch: {{ size: {scratch_bytes} B, path: {scratch} }}\n",
        data = data.display(),
        scratch = scratch.display(),
    )
}
