//! `tierfeed-bench agents`: a real manager with the connections of many agents.
//!
//! The manager is the program itself. Its agents are light: each has a connection of its own over TCP and TLS,
//! asks for the job, registers what it found, and reports twice a second, but feeds no trainer. All start at
//! once, as the nodes of a job script do. Agents and manager share the cores of this machine.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod light;
mod process;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tierfeed_harness::{
    clock::now, files, judgement::Judgement, programs::Programs, statistics::percentile,
};
use tierfeed_runtime::{
    rpc::client::{Address, Client},
    transport::token::Token,
};
use tokio::task::JoinSet;

use self::{light::Agent, process::ManagerProcess};

/// The most seconds until all agents have joined.
pub const JOINED_WITHIN_S: f64 = 30.0;

/// The most memory of the manager, in MiB.
pub const MEMORY_MAX_MIB: f64 = 1_024.0;

/// The largest share of a core that the manager may take for reports.
pub const CORES_MAX: f64 = 1.0;

const STEPS: u64 = 16;

#[derive(Debug, Clone)]
pub struct Settings {
    pub programs: Programs,
    pub folder: PathBuf,
    pub agents: u32,
    pub reporting: Duration,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub agents: u32,
    /// Until the last agent had its schedule.
    pub joined_s: f64,
    /// The same of the median agent.
    pub joined_median_s: f64,
    /// Connections that agents tried again.
    pub retries: u64,
    /// CPU time of the manager until all had joined.
    pub joining_cpu_s: f64,
    /// Memory of the manager with all agents.
    pub memory_mib: f64,
    pub reports_per_s: f64,
    /// The share of a core that the manager took for reports.
    pub cores: f64,
    pub report_ms: f64,
    pub report_p99_ms: f64,
    /// The time until `tierfeed status` has its answer.
    pub status_ms: f64,
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
        Judgement::default()
            .at_most("seconds until all agents joined", self.joined_s, JOINED_WITHIN_S)
            .at_most("MiB of the manager", self.memory_mib, MEMORY_MAX_MIB)
            .at_most("cores of the manager for reports", self.cores, CORES_MAX)
    }
}

/// # Errors
///
/// If the manager fails or refuses an agent.
pub fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).enable_all().build().context("no threads")?;
    files::in_folder(&settings.folder, |folder| {
        let job = write_job(folder, settings.agents)?;
        let manager = ManagerProcess::start(&settings.programs.tierfeed, &job, folder)?;
        runtime.block_on(measure(settings, &manager))
    })
}

async fn measure(settings: &Settings, manager: &ManagerProcess) -> anyhow::Result<Outcome> {
    let address = Address::Tcp(manager.address.clone());
    let token = Arc::new(Token::load(&manager.token_file)?);
    let began = now();
    let mut joining = JoinSet::new();
    for node in 0..settings.agents {
        let (address, token) = (address.clone(), Arc::clone(&token));
        joining.spawn(async move { Agent::join(node, &address, &token, began).await });
    }
    let agents = joining.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let joined: Vec<f64> = agents.iter().map(|agent| agent.joined.as_secs_f64()).collect();
    let retries = agents.iter().map(|agent| agent.retries).sum();
    let joining_cpu_s = manager.cpu_s()?;

    let mut reporting = JoinSet::new();
    for agent in agents {
        reporting.spawn(agent.report(settings.reporting));
    }
    let (cpu_before, at) = (manager.cpu_s()?, now());
    let half = settings.reporting / 2;
    tokio::time::sleep(half).await;
    let status_ms = status_ms(&address, &token, settings.agents).await?;
    tokio::time::sleep(settings.reporting.saturating_sub(half)).await;
    let reported_s = at.elapsed().as_secs_f64();
    let cores = (manager.cpu_s()? - cpu_before) / reported_s;
    let memory_mib = manager.memory_mib()?;
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

/// # Panics
///
/// Never: writing to a string cannot fail.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let mut line = |it: String| writeln!(text, "{it}").expect("writing to a string cannot fail");
    let Outcome { agents, joined_s, joined_median_s, retries, joining_cpu_s, .. } = outcome;
    line(format!("{agents} agents, which start at once, and one manager"));
    line(format!(
        "joined       the last after {joined_s:.2} s, the median after {joined_median_s:.2} s; {retries} \
         connections tried again; {joining_cpu_s:.2} s of CPU time of the manager"
    ));
    line(format!("memory       {:.0} MiB of the manager", outcome.memory_mib));
    line(format!(
        "reports      {:.0} a second: {:.2} of a core of the manager; median {:.2} ms, 99 % {:.2} ms",
        outcome.reports_per_s, outcome.cores, outcome.report_ms, outcome.report_p99_ms
    ));
    line(format!("status       {:.1} ms", outcome.status_ms));
    text
}
