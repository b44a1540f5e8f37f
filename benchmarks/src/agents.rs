//! `tierfeed-bench agents`: a real manager with the connections of many agents.
//!
//! The manager is the program itself. Its agents are light: each has a connection of its own over TCP and TLS,
//! asks for the job, registers what it found, and reports twice a second, but feeds no trainer. All start at
//! once, as the nodes of a job script do. Agents and manager share the cores of this machine.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod light;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use tierfeed_harness::{
    bench::{Bench, Folder},
    clock::now,
    failure::Failure,
    judgement::{Judged, Judgement},
    programs::Programs,
    statistics::percentile,
};
use tierfeed_runtime::{
    rpc::client::{Address, Client},
    transport::token::Token,
};
use tokio::task::JoinSet;

use self::light::Agent;
use crate::{manager::Manager, processes};

/// The most seconds until all agents have joined.
pub(crate) const JOINED_WITHIN_S: f64 = 30.0;

/// The most memory of the manager, in MiB.
pub(crate) const MEMORY_MAX_MIB: f64 = 1_024.0;

/// The largest share of a core that the manager may take for reports.
pub(crate) const CORES_MAX: f64 = 1.0;

const STEPS: u64 = 16;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// The number of agents.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_024,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) agents: u32,
    /// How long they report before their schedules change, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) agents: u32,
    /// Until the last agent had its schedule.
    pub(crate) joined_s: f64,
    /// The same of the median agent.
    pub(crate) joined_median_s: f64,
    /// Connections that agents tried again.
    pub(crate) retries: u64,
    /// CPU time of the manager until all had joined.
    pub(crate) joining_cpu_s: f64,
    /// Memory of the manager with all agents.
    pub(crate) memory_mib: f64,
    pub(crate) reports_per_s: f64,
    /// The share of a core that the manager took for reports.
    pub(crate) cores: f64,
    pub(crate) report_ms: f64,
    pub(crate) report_p99_ms: f64,
    /// The time until `tierfeed status` has its answer.
    pub(crate) status_ms: f64,
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        Judgement::default()
            .at_most("seconds until all agents joined", self.joined_s, JOINED_WITHIN_S)
            .at_most("MiB of the manager", self.memory_mib, MEMORY_MAX_MIB)
            .at_most("cores of the manager for reports", self.cores, CORES_MAX)
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let tierfeed = Programs::find()?.tierfeed;
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let runtime = threads.worker_threads(2).enable_all().build().context("no threads")?;
        Ok(self.folder.with_files(|folder| {
            let job = write_job(folder, self.agents)?;
            let manager = Manager::start(&tierfeed, &job, folder)?;
            runtime.block_on(measure(&self, &manager))
        })?)
    }
}

async fn measure(settings: &Settings, manager: &Manager) -> anyhow::Result<Outcome> {
    let address = Address::Tcp(manager.address.clone());
    let token = Arc::new(Token::load(&manager.token_file())?);
    let began = now();
    let mut joining = JoinSet::new();
    for node in 0..settings.agents {
        let (address, token) = (address.clone(), Arc::clone(&token));
        joining.spawn(async move { Agent::join(node, &address, &token, began).await });
    }
    let agents = joining.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let joined: Vec<f64> = agents.iter().map(|agent| agent.joined.as_secs_f64()).collect();
    let retries = agents.iter().map(|agent| agent.retries).sum();
    let cpu_s =
        || Ok::<_, anyhow::Error>(processes::cpu_time(manager.process.0.id())?.as_secs_f64());
    let joining_cpu_s = cpu_s()?;

    let length = Duration::from_secs(settings.seconds);
    let mut reporting = JoinSet::new();
    for agent in agents {
        reporting.spawn(agent.report(length));
    }
    let (cpu_before, at) = (cpu_s()?, now());
    let half = length / 2;
    tokio::time::sleep(half).await;
    let status_ms = status_ms(&address, &token, settings.agents).await?;
    tokio::time::sleep(length.saturating_sub(half)).await;
    let reported_s = at.elapsed().as_secs_f64();
    let cores = (cpu_s()? - cpu_before) / reported_s;
    let memory_mib = manager.process.resident_bytes() as f64 / f64::from(1 << 20);
    let times = reporting.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let times: Vec<f64> = times.into_iter().flatten().collect();
    let of = |values: &[f64], percent| percentile(values, percent).context("no agent reported");
    Ok(Outcome {
        agents: settings.agents,
        joined_s: of(&joined, 100)?,
        joined_median_s: of(&joined, 50)?,
        retries,
        joining_cpu_s,
        memory_mib,
        reports_per_s: times.len() as f64 / reported_s,
        cores,
        report_ms: of(&times, 50)?,
        report_p99_ms: of(&times, 99)?,
        status_ms,
    })
}

/// Asks for the status as `tierfeed status` does, with a connection of its own.
async fn status_ms(address: &Address, token: &Token, agents: u32) -> anyhow::Result<f64> {
    let began = now();
    let status = Client::connect(address, Some(token)).await?.status().await?;
    ensure!(status.joined.len() == agents as usize, "{} nodes joined", status.joined.len());
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

fn write_job(folder: &Path, agents: u32) -> anyhow::Result<PathBuf> {
    let data = folder.join("data");
    fs::create_dir(&data).context("no folder for the dataset")?;
    let samples = u64::from(agents) * STEPS;
    let bytes = vec![7; usize::try_from(samples * 16).context("too many samples")?];
    fs::write(data.join("records.bin"), bytes).context("no dataset")?;
    let job = folder.join("job.yaml");
    let text = format!(
        "name: agents\n\
         dataset: {{ source: {}, format: raw, record_bytes: 16 }}\n\
         order: {{ shuffle: torch-distributed, seed: 7, epochs: 90 }}\n\
         batch_size: 1\n\
         chunk: 1 MiB\n\
         world: {{ nodes: {agents}, ranks_per_node: 1 }}\n",
        data.display()
    );
    fs::write(&job, text).context("no job")?;
    Ok(job)
}
