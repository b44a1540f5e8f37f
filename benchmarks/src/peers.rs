//! `tierfeed-bench peers`: a training on several nodes of this host, whose caches are one or are each for itself.
//!
//! Each node is an agent with its own run directory and its own caches; all read one cold store, whose rate is
//! divided among them. The ranks of all nodes are in lock-step, in this process.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    output::step,
    programs::Programs,
};

use crate::{
    manager::{Manager, wait_until},
    processes::Killed,
    reader,
    runs::Report,
};

const FILES: u64 = 1_200;
const EPOCHS: u32 = 4;
const BATCH: u32 = 8;

const STEP: Duration = Duration::from_millis(5);

/// The rate of the cold store, of all nodes together, in MB/s.
const COLD_MB_PER_S: f64 = 48.0;

/// The cache of each node as a share of the dataset.
const CACHED: f64 = 0.3;

/// The largest ratio of cold bytes after the first epoch and those that no plan can avoid.
const COLD_MAX: f64 = 1.03;

/// The same bytes as a share of the dataset, where all of it fits.
const REST_MAX: f64 = 0.005;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// The numbers of nodes.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [2, 3, 4],
          value_parser = clap::value_parser!(u32).range(2..=64), conflicts_with = "transport")]
    pub(crate) nodes: Vec<u32>,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) dataset_bytes: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) gains: Vec<Gain>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Gain {
    pub(crate) nodes: u32,
    /// The time of later epochs without sharing over that with it.
    pub(crate) times_as_fast: f64,
}

impl Gain {
    fn of(nodes: u32, rows: &[Row]) -> Self {
        let time = |policy| -> f64 {
            let rows = rows.iter().filter(|it| it.nodes == nodes && it.policy == policy);
            rows.filter(|row| row.epoch > 0).map(|row| row.time_s).sum()
        };
        Self { nodes, times_as_fast: time("gap") / time("partitioned") }
    }
}

/// One epoch of one training; bytes of all nodes together.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) nodes: u32,
    /// `partitioned`, or `gap`: each node for itself.
    pub(crate) policy: &'static str,
    pub(crate) epoch: u32,
    pub(crate) time_s: f64,
    pub(crate) cold_read_bytes: u64,
    /// The bytes that fit into none of the caches.
    pub(crate) least_cold_bytes: u64,
    pub(crate) peer_read_bytes: u64,
}

impl Judged for Outcome {
    /// The cold bytes of nodes that share their caches, beside the least.
    fn judged(&self) -> Judgement {
        let mut judged = Judgement::default();
        for row in self.rows.iter().filter(|row| row.policy == "partitioned" && row.epoch > 0) {
            let place = format!("{} nodes, epoch {}", row.nodes, row.epoch);
            let cold = row.cold_read_bytes as f64;
            judged = if row.least_cold_bytes == 0 {
                let part = cold / self.dataset_bytes as f64;
                judged.at_most(&format!("{place}: cold part of the dataset"), part, REST_MAX)
            } else {
                let ratio = cold / row.least_cold_bytes as f64;
                judged.at_most(&format!("{place}: cold bytes over the least"), ratio, COLD_MAX)
            };
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

/// Makes the files, trains with each number of nodes and each policy, removes the files.
fn measure(settings: &Settings, programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    let data = folder.join("data");
    let dataset_bytes = files::write_image_folder(&data, FILES)?;
    let mut outcome = Outcome { dataset_bytes, rows: Vec::new(), gains: Vec::new() };
    for &nodes in &settings.nodes {
        for policy in ["gap", "partitioned"] {
            step(&format!("{nodes} nodes, {policy}"));
            let folder = folder.join(format!("{policy}-{nodes}"));
            let training = Training { nodes, policy, dataset_bytes };
            training.measure(programs, &data, &folder, &mut outcome.rows)?;
        }
        outcome.gains.push(Gain::of(nodes, &outcome.rows));
    }
    Ok(outcome)
}

struct Training {
    nodes: u32,
    policy: &'static str,
    dataset_bytes: u64,
}

impl Training {
    fn measure(
        &self,
        programs: &Programs,
        data: &Path,
        folder: &Path,
        rows: &mut Vec<Row>,
    ) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("job.yaml"), self.job_text(data))?;
        let start = |arguments: &[&str]| {
            let mut command = Command::new(&programs.tierfeed);
            command.args(arguments).current_dir(folder).stdin(Stdio::null());
            Killed::start(command.stdout(Stdio::null()))
        };
        let mut manager = Manager::start(&programs.tierfeed, &folder.join("job.yaml"), folder)?;
        let run_dirs: Vec<_> = (0..self.nodes).map(|node| format!("run{node}")).collect();
        let mut agents = Vec::new();
        for (node, run_dir) in run_dirs.iter().enumerate() {
            let node = node.to_string();
            let join = ["agent", "--manager", &manager.address, "--token-file", "manager/token"];
            let own = ["--node", &node, "--run-dir", run_dir];
            agents.push(start(&[&join[..], &own[..]].concat())?);
        }
        let sockets: Vec<PathBuf> =
            run_dirs.iter().map(|run_dir| folder.join(run_dir).join("agent.sock")).collect();
        wait_until("all agents listen", || Ok(sockets.iter().all(|socket| socket.exists())))?;
        let times = reader::read_all(&sockets, |_| STEP)?;
        start(&["drain", "--run-dir", "manager"])?.0.wait()?;
        for process in agents.iter_mut().chain([&mut manager.process]) {
            let status = process.0.wait()?;
            ensure!(status.success(), "a process of the job failed ({status})");
        }
        let reports = run_dirs.iter().map(|run_dir| Report::read(&folder.join(run_dir)));
        let reports: Vec<_> = reports.collect::<anyhow::Result<_>>()?;
        let caches = reports.iter().flat_map(|it| &it.tiers).map(|tier| tier.cache_bytes).sum();
        for (epoch, time) in (0..).zip(times) {
            let of_epoch = || reports.iter().filter_map(|report| report.epochs.get(epoch));
            let caches = if epoch == 0 { 0 } else { caches };
            rows.push(Row {
                nodes: self.nodes,
                policy: self.policy,
                epoch: u32::try_from(epoch)?,
                time_s: time.as_secs_f64(),
                cold_read_bytes: of_epoch().map(|it| it.cold_read_bytes).sum(),
                least_cold_bytes: self.dataset_bytes.saturating_sub(caches),
                peer_read_bytes: of_epoch().map(|it| it.peer_read_bytes).sum(),
            });
        }
        Ok(())
    }

    /// Main memory holds the staging, and nothing else.
    fn job_text(&self, data: &Path) -> String {
        let Self { nodes, policy, dataset_bytes } = *self;
        format!(
            "name: bench-peers-{policy}-{nodes}\n\
             dataset:\n  source: {data}\n  format: image-folder\n\
             \x20 emulate: {{ latency: 1 ms, bandwidth: {rate:.1} MB/s }}\n\
             order: {{ shuffle: torch-distributed, seed: 42, epochs: {EPOCHS} }}\n\
             batch_size: {BATCH}\n\
             world: {{ nodes: {nodes}, ranks_per_node: 1 }}\n\
             policy: {policy}\n\
             prefetch: {{ look_ahead: off, batches: 4 }}\n\
             chunk: 1 MiB\n\
             tiers:\n\
             \x20 main-memory: {{ size: 8 MiB }}\n\
             \x20 cxl-memory: {{ size: {cxl} KiB, emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }} }}\n",
            data = data.display(),
            rate = COLD_MB_PER_S / f64::from(nodes),
            cxl = (dataset_bytes as f64 * CACHED / 1024.0).round(),
        )
    }
}
