//! One file for each command: what it reads, what it calls, what it prints.

pub(crate) mod agent;
mod agent_socket;
pub(crate) mod analyze;
pub(crate) mod client;
pub(crate) mod dataset_keys;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod embed;
pub(crate) mod exec;
mod expansion;
pub(crate) mod hog;
pub(crate) mod index;
pub(crate) mod init;
mod machine;
pub(crate) mod manager;
pub(crate) mod manual;
mod nodes_report;
pub(crate) mod objects;
pub(crate) mod plan;
mod program;
pub(crate) mod read;
pub(crate) mod run;
mod script_analysis;
pub(crate) mod status;
mod step_time;
pub(crate) mod tiers;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod transform_worker;

use std::{
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context;
use clap::Args;
use tierfeed_runtime::{
    observe::metrics::Network, run_dir::RunDir, shutdown, transport::token::Token,
};

use crate::{
    deadline,
    failure::Failure,
    signals::{Signals, TERMINATION},
};

/// Metrics on the network.
#[derive(Debug, Default, Args)]
pub(crate) struct Metrics {
    /// Serves metrics for Prometheus there, as HOST:PORT beside the socket in the run directory; port 0
    /// takes a free one. Those who ask there show a token.
    #[arg(long = "metrics", value_name = "ADDRESS")]
    pub(crate) metrics_address: Option<String>,
    /// The file with the token of those who ask for metrics, such as one for all jobs of a site [default:
    /// metrics.token in the run directory, written at the start].
    #[arg(long, value_name = "FILE", requires = "metrics_address")]
    pub(crate) metrics_token_file: Option<PathBuf>,
}

/// Threads of the asynchronous runtime; the agent's own threads move bytes.
const THREADS: usize = 2;

/// Threads for work that may take long or hang: enough for two measurements of every tier, the plans of
/// epochs and the writing of a published order at the same time. Without a limit, frequent short work would
/// start a new thread whenever the others have not woken up yet.
const BLOCKING_THREADS_MAX: usize = 16;

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("tierfeed")
        .enable_all()
        .build()
        .context("cannot start threads")
        .map_err(Failure::Work)
}

/// Runs the work of a command to its end. A thread that still hangs in the kernel, reading from a lost store,
/// ends with the process.
fn finish<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// The network address of metrics, if one was given, and its token: the user's, else one derived from the
/// token of the job, which is the same on all its nodes, else a new one.
fn metrics_network(
    wish: &Metrics,
    token: Option<&Token>,
    run_dir: &RunDir,
) -> Result<Option<Network>, Failure> {
    let Some(address) = wish.metrics_address.clone() else { return Ok(None) };
    if let Some(file) = &wish.metrics_token_file {
        let token = Token::load(file).map_err(Failure::input)?;
        return Ok(Some(Network { address, token }));
    }
    let token = token.map_or_else(Token::generate, |token| Ok(token.derive(b"metrics")))?;
    let path = run_dir.metrics_token();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => token.save(&path)?,
    }
    tracing::info!(token_file = %path.display(), "the token of those who ask for metrics");
    Ok(Some(Network { address, token }))
}

/// A flag that a termination signal sets, for work that checks it between its parts. From now on no such
/// signal kills the process.
fn ended_by_user(runtime: &tokio::runtime::Runtime) -> Result<Arc<AtomicBool>, Failure> {
    let _inside = runtime.enter();
    let mut signals = Signals::listen(&TERMINATION).context("cannot listen for signals")?;
    let is_ended = Arc::new(AtomicBool::new(false));
    let flag = is_ended.clone();
    runtime.spawn(async move {
        signals.next().await;
        flag.store(true, Ordering::Relaxed);
    });
    Ok(is_ended)
}

/// Pulls `trigger` on a termination signal, and starts the deadline of this process.
async fn end_on_signal(trigger: shutdown::Trigger) -> io::Result<()> {
    let mut signals = Signals::listen(&TERMINATION)?;
    loop {
        signals.next().await;
        deadline::start(deadline::ENDS_WITHIN);
        trigger.pull();
    }
}
