//! `tierfeed manager`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use tierfeed_runtime::{
    manager::{self, Listener},
    observe::metrics,
    run_dir::{LockOwner, RunDir},
    shutdown,
    transport::token::Token,
    whole_file,
};
use tokio::time::timeout;

use super::Metrics;
use crate::{
    environment,
    failure::Failure,
    jobs::{self, IndexedJob, JobFile},
    panics,
};

#[derive(Debug, Args)]
pub(crate) struct Manager {
    /// The job file.
    pub(crate) job: PathBuf,
    /// Where to listen, as HOST:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: String,
    /// Where token, address and index go [default: .tierfeed/runs/JOB-TIME].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// The file that holds the token of the job, or gets a new one [default: token in the run
    /// directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: Metrics,
}

/// How long removing the target file may take: the run directory may hang.
const TARGETS_GONE_WITHIN: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &Manager) -> Result<(), Failure> {
    panics::end_this_process();
    environment::arm_drill();
    let file = JobFile::read(&arguments.job)?;
    let run_dir = environment::new_run_dir(arguments.run_dir.as_deref(), &file.job.name)?;
    let _run_dir_lock = run_dir.lock(LockOwner::Manager).map_err(Failure::input)?;
    let IndexedJob { manager, loaded } = jobs::load(file, &run_dir)?;
    let token = token(arguments.token_file.as_deref(), &run_dir)?;
    let network = super::metrics_network(&arguments.metrics, Some(&token), &run_dir)?;
    super::finish(async {
        let listener = Listener::tcp(&arguments.listen, &token).await.map_err(Failure::input)?;
        let metrics = watched(network, &run_dir, &loaded.job.name).await?;
        let address = listener.tcp_address()?;
        let address = address.map(|it| it.to_string()).unwrap_or_default();
        whole_file::write(&run_dir.manager_address(), format!("{address}\n"))
            .with_context(|| run_dir.manager_address().display().to_string())?;
        tracing::info!(%address, run_dir = %run_dir.path().display(), "manager listens");
        let (trigger, asked) = shutdown::channel();
        let signals = tokio::spawn(super::end_on_signal(trigger));
        let manager = manager::Manager::start(manager, listener, asked)
            .with_metrics(metrics)
            .with_peer_secret(&token);
        let outcome = manager.run().await.map(drop).map_err(Failure::work);
        signals.abort();
        if arguments.metrics.metrics_address.is_some() {
            // An error means that there is no such file.
            let targets = run_dir.manager_targets();
            let gone = tokio::task::spawn_blocking(|| fs::remove_file(targets));
            drop(timeout(TARGETS_GONE_WITHIN, gone).await);
        }
        outcome
    })
}

/// Serves metrics at the socket of the run directory, and where the user wants them.
async fn watched(
    network: Option<metrics::Network>,
    run_dir: &RunDir,
    job: &str,
) -> Result<metrics::Server, Failure> {
    let socket = run_dir.manager_metrics_socket();
    let server = metrics::Server::start(&socket, network).await.map_err(Failure::input)?;
    if let Some(address) = server.address() {
        tracing::info!(%address, "metrics");
        let targets = run_dir.manager_targets();
        if let Err(error) = metrics::Target::manager(job, address).write(&targets) {
            tracing::warn!(%error, "Prometheus is not told where the metrics are");
        }
    }
    Ok(server)
}

/// The token of the file, of the environment, of an earlier manager here, or a new one.
fn token(file: Option<&Path>, run_dir: &RunDir) -> Result<Token, Failure> {
    let own = run_dir.token();
    let path = file.unwrap_or(&own);
    let known = if file.is_some_and(|file| !file.exists()) {
        None
    } else {
        environment::token(file, Some(run_dir))?
    };
    if let Some(token) = known {
        return Ok(token);
    }
    let token = Token::generate()?;
    token.save(path).map_err(Failure::input)?;
    tracing::info!(token_file = %path.display(), "new token; give this file to the agents");
    Ok(token)
}
