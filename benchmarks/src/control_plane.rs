//! `tierfeed-bench control-plane`: the cost of encryption between manager and agents, in alternating turns
//! with and without it.
//!
//! Streams alone, over TCP on loopback: a connection with its handshake, and a round trip of a small
//! message, plain and by TLS. Then one client against a real manager: joining (a connection
//! and the job) and reports, through its socket file, which is plain, and through TCP and TLS. Both ends
//! are in this process, so CPU time is that of both.

mod manager;
mod streams;
mod table;

use std::{future::Future, path::PathBuf};

use anyhow::{Context as _, ensure};
use nix::sys::resource::UsageWho;
use serde::Serialize;
use tierfeed_harness::{clock::now, files, judgement::Judgement, statistics::percentile};

use crate::cpu_time::cpu_time;

pub use self::table::table;

/// The largest ratio of the CPU time of a report with encryption and without.
pub const REPORT_RATIO_MAX: f64 = 3.0;

/// The manager must serve this many nodes, each with two reports a second, within [`CORE_MAX`]; both ends
/// count.
pub const NODES: f64 = 1_024.0;

/// The share of a core that [`NODES`] may take.
pub const CORE_MAX: f64 = 1.0;

const REPORTS_PER_S: f64 = 2.0;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the socket file of a manager is made.
    pub folder: PathBuf,
    pub rounds: usize,
    pub connections: usize,
    pub messages: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub rounds: usize,
    pub rows: Vec<Row>,
    /// The share of a core for encrypted reports of [`NODES`] nodes, both ends counted.
    pub core_share: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub what: &'static str,
    pub plain: Cost,
    pub encrypted: Cost,
    /// Encrypted to plain, by the median time.
    pub latency_ratio: f64,
    /// Encrypted to plain, by CPU time.
    pub cpu_ratio: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    pub latency_us: f64,
    pub latency_p99_us: f64,
    /// CPU time of both ends; the median of the turns.
    pub cpu_us: f64,
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
        let report = self.rows.iter().find(|row| row.what == REPORT);
        let ratio = report.map_or(f64::NAN, |row| row.cpu_ratio);
        Judgement::default()
            .at_most(
                "CPU time of an encrypted report, x that of a plain one",
                ratio,
                REPORT_RATIO_MAX,
            )
            .at_most("cores for encrypted reports of all nodes", self.core_share, CORE_MAX)
    }
}

const REPORT: &str = "report";

/// # Errors
///
/// If a connection or a call fails.
pub fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    let Settings { rounds, connections, messages, .. } = *settings;
    ensure!(rounds >= 3, "{rounds} rounds; at least 3 are needed");
    ensure!(connections > 0 && messages > 0, "nothing to do");
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).enable_all().build().context("no threads")?;
    let rows = files::in_folder(&settings.folder, |folder| {
        runtime.block_on(async {
            let mut rows = streams::compare(settings).await?;
            rows.extend(manager::compare(settings, folder).await?);
            Ok(rows)
        })
    })?;
    let report = rows.iter().find(|row| row.what == REPORT).context("reports were not measured")?;
    let core_share = report.encrypted.cpu_us * NODES * REPORTS_PER_S / 1e6;
    Ok(Outcome { rounds, rows, core_share })
}

#[derive(Debug, Default)]
struct Side {
    latencies_us: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Side {
    /// One turn: the operation `count` times, one after the other.
    async fn turn<T, F>(&mut self, count: usize, mut work: impl FnMut() -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<T>>,
    {
        let cpu = cpu_us()?;
        for _ in 0..count {
            let start = now();
            work().await?;
            self.latencies_us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        self.cpu_us.push((cpu_us()? - cpu) / count as f64);
        Ok(())
    }

    fn cost(&self) -> Cost {
        let of = |values: &[f64], percent| percentile(values, percent).unwrap_or_default();
        Cost {
            latency_us: of(&self.latencies_us, 50),
            latency_p99_us: of(&self.latencies_us, 99),
            cpu_us: of(&self.cpu_us, 50),
        }
    }
}

fn row(what: &'static str, [plain, encrypted]: &[Side; 2]) -> Row {
    let (plain, encrypted) = (plain.cost(), encrypted.cost());
    let latency_ratio = encrypted.latency_us / plain.latency_us;
    let cpu_ratio = encrypted.cpu_us / plain.cpu_us;
    Row { what, plain, encrypted, latency_ratio, cpu_ratio }
}

/// CPU time of this process so far, in microseconds.
fn cpu_us() -> anyhow::Result<f64> {
    Ok(cpu_time(UsageWho::RUSAGE_SELF)?.as_secs_f64() * 1e6)
}
