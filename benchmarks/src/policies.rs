//! `tierfeed-bench policies`: real runs of every policy on the same files, beside the simulator's
//! prediction, the least that any policy has to read, and the least time that an epoch can take.
//!
//! The dataset is an image folder with files of many sizes; the cold store is slowed down, the CXL tier
//! holds 40 % and the scratch tier 10 % of the dataset, main memory only stages. The trainer computes about
//! as long as the fewest cold reads of an epoch take, so that a policy which reads more takes longer.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::Serialize;
use tierfeed_core::retention::policy;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    leftovers::own_name,
    programs::Programs,
};

use crate::runs::{ReaderRun, predict};

const EPOCHS: u32 = 3;
const RANKS: u32 = 2;
/// One process takes the batches of all ranks in turn, so the only chance is in what a policy drops while
/// the cold store is late. Measured: at most 0.003, `lru`; 0.0 with most. Larger ones (0.04 to 0.10 in one
/// epoch) were pauses that the training does not have: a rank's wait was told after the gap of another that
/// waited for it, and the manager took room from what is retained for one epoch.
const DRIFT_MAX: f64 = 0.03;
/// Samples do not fill tiers to the last byte.
const OVER_LEAST_MAX: f64 = 1.03;
/// The time of an epoch with `gap` over the larger of computing and reading what has to be read. A machine
/// that builds beside it has added up to a tenth.
const OVER_BOUND_MAX: f64 = 1.25;
const STEP_MS: u32 = 20;
const COLD_MB_PER_S: u32 = 40;
const BATCH: u32 = 8;
const CHUNK_BYTES: u64 = 256 << 10;
/// A few batches of both ranks, and nothing left for a cache.
const MAIN_MEMORY_BYTES: u64 = 9 << 20;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// How many files, of 20 to 200 KB.
    #[arg(long, value_name = "NUMBER", default_value_t = 500)]
    pub(crate) files: u64,
    /// A RAM disk for the scratch tier.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) scratch: PathBuf,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) dataset_bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) policy: String,
    pub(crate) epoch: u32,
    pub(crate) cold_read_bytes: u64,
    pub(crate) cold_of_dataset: f64,
    pub(crate) predicted_bytes: u64,
    pub(crate) minimal_cold_bytes: u64,
    pub(crate) time_s: f64,
    /// The longer of computing, and of reading the fewest bytes.
    pub(crate) bound_s: f64,
    pub(crate) over_bound: f64,
}

impl Judged for Outcome {
    /// The prediction of every policy, and what `gap` reads beside the least.
    fn judged(&self) -> Judgement {
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
                let what = format!("{policy}, epoch {epoch}: time over the bound");
                judged = judged.at_most(&what, row.over_bound, OVER_BOUND_MAX);
            }
        }
        judged
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let programs = Programs::find()?;
        Ok(self.folder.with_files(|folder| measure(&self, &programs, folder))?)
    }
}

fn measure(settings: &Settings, programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    let data = folder.join("data");
    let dataset_bytes = files::write_image_folder(&data, settings.files)?;
    let job = folder.join("job.yaml");
    let scratch = settings.scratch.join(own_name());
    let chunks = |percent: u64| dataset_bytes * percent / 100 / CHUNK_BYTES;
    let capacity_bytes = (chunks(40) + chunks(10)) * CHUNK_BYTES;
    let mut rows = Vec::new();
    let mut digests = Vec::new();
    for policy in policy::Kind::ALL {
        fs::write(&job, job_text(policy, &data, &scratch, [chunks(40), chunks(10)]))?;
        let predicted = predict(programs, &job)?;
        let (run_dir, options) =
            (folder.join(policy.name()), &["--step", &*format!("{STEP_MS} ms")]);
        let run = ReaderRun { programs, job: &job, run_dir, options };
        let (report, times) = run.finish(Command::new(&programs.tierfeed))?;
        digests.push(report.order_digest);
        ensure!(
            times.len() == predicted.len(),
            "{policy}: {} epochs were predicted",
            predicted.len()
        );
        let epochs = report.epochs.iter().zip(predicted).zip(times);
        for (epoch, ((ran, predicted), time_s)) in (0..).zip(epochs) {
            let compute_s = f64::from(predicted.steps * STEP_MS) / 1000.0;
            let reading_s = predicted.minimal_cold_bytes as f64 / (f64::from(COLD_MB_PER_S) * 1e6);
            let bound_s = compute_s.max(reading_s);
            rows.push(Row {
                policy: policy.name().to_owned(),
                epoch,
                cold_read_bytes: ran.cold_read_bytes,
                cold_of_dataset: ran.cold_read_bytes as f64 / dataset_bytes as f64,
                predicted_bytes: predicted.cold_read_bytes,
                minimal_cold_bytes: predicted.minimal_cold_bytes,
                time_s,
                bound_s,
                over_bound: time_s / bound_s,
            });
        }
    }
    fs::remove_dir(&scratch).with_context(|| format!("{}: not empty", scratch.display()))?;
    if digests.windows(2).any(|pair| pair[0] != pair[1]) {
        bail!("policies handed over different orders: {digests:?}");
    }
    Ok(Outcome { dataset_bytes, capacity_bytes, rows })
}

fn job_text(policy: policy::Kind, data: &Path, scratch: &Path, chunks: [u64; 2]) -> String {
    let [cxl_bytes, scratch_bytes] = chunks.map(|chunks| chunks * CHUNK_BYTES);
    format!(
        "name: bench-policies\n\
         dataset:\n  source: {data}\n  format: image-folder\n\
         \x20 emulate: {{ latency: 1 ms, bandwidth: {COLD_MB_PER_S} MB/s }}\n\
         order: {{ shuffle: torch-distributed, seed: 42, epochs: {EPOCHS} }}\n\
         batch_size: {BATCH}\n\
         world: {{ nodes: 1, ranks_per_node: {RANKS} }}\n\
         step_time: {STEP_MS} ms\n\
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
