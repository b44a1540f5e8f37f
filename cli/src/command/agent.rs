//! `tierfeed agent`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use tierfeed_core::fleet::launch::NODE_ARGUMENT;
use tierfeed_runtime::{
    agent::{self, AgentError, ObserveSettings, Settings},
    dataset::{image_sizes::ImageSizeCache, measured_transforms::MeasuredTransforms},
    observe::report::Report,
    rpc::client::Address,
    run_dir::RunDir,
    shutdown,
    transport::token::Token,
};
use tierfeed_transform::worker_process::Program;

use super::Metrics;
use crate::{deadline, environment, failure::Failure, panics};

#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Where the manager is, as HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS", env = "TIERFEED_MANAGER")]
    pub(crate) manager: Address,
    /// The file with the token of the job [default: $TIERFEED_TOKEN, else token in the run directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The number of this node [default: $TIERFEED_NODE, else as srun, mpirun or Kubernetes says; 0 in a
    /// job of one node].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) node: Option<u32>,
    /// Where sockets and the report of this node go; the same after a restart [default: in a job of Slurm
    /// node-NUMBER below /tmp/tierfeed-UID/slurm-JOB, else .tierfeed/node-NUMBER, or .tierfeed/agent where
    /// no launcher gives a number].
    #[arg(long, value_name = "DIR", env = "TIERFEED_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) observe: Observe,
}

/// How an agent is watched.
#[derive(Debug, Default, Args)]
pub(crate) struct Observe {
    #[command(flatten)]
    pub(crate) metrics: Metrics,
    /// Writes a trace of the run for Perfetto into this file when it ends.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

pub(crate) fn run(arguments: Agent) -> Result<(), Failure> {
    panics::end_this_process();
    environment::arm_drill();
    let mut launch = environment::launch_variables();
    launch.extend(arguments.node.map(|node| (NODE_ARGUMENT.to_owned(), node.to_string())));
    let identity = environment::identity(&launch)?;
    let run_dir = environment::agent_run_dir(arguments.run_dir, &identity)?;
    let token = environment::token(arguments.token_file.as_deref(), Some(&run_dir))?;
    let report_path = run_dir.report();
    let settings = settings(arguments.manager, token, launch, run_dir, &arguments.observe)?;
    let report = super::finish(async {
        let (trigger, asked) = shutdown::channel();
        let signals = tokio::spawn(super::end_on_signal(trigger));
        let outcome = Box::pin(async {
            let mut agent = agent::Agent::start(settings, asked).await?;
            agent.serve().await;
            // It may be the manager that asked for the end, not a signal.
            deadline::start(deadline::ENDS_WITHIN);
            Box::pin(agent.conclude()).await
        })
        .await;
        signals.abort();
        outcome.map_err(of_agent)
    })?;
    if let Some(report) = report {
        summarize(&report, &report_path, Told::Lines);
    }
    Ok(())
}

/// The settings of an agent that asks its manager for the job.
pub(super) fn settings(
    manager: Address,
    token: Option<Token>,
    launch: BTreeMap<String, String>,
    run_dir: RunDir,
    observe: &Observe,
) -> Result<Settings, Failure> {
    let indexes = Path::new(environment::INDEXES);
    let metrics = super::metrics_network(&observe.metrics, token.as_ref(), &run_dir)?;
    Ok(Settings {
        observe: ObserveSettings { metrics, trace: observe.trace.clone() },
        manager,
        token,
        launch,
        job: None,
        run_dir,
        tiers_report: environment::tiers_report(None).ok(),
        calibration: None,
        memory: environment::job_memory(),
        transform_worker: environment::exe().map(Program::tierfeed)?,
        image_sizes: ImageSizeCache::new(indexes),
        measured_transforms: MeasuredTransforms::new(indexes),
    })
}

pub(crate) fn of_agent(error: AgentError) -> Failure {
    if error.is_input() { Failure::input(error) } else { Failure::work(error) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The verdict, what would help most, and where the report is.
    Lines,
    /// The verdict and where the report is: after a failure, whose own words matter more, and in a notebook.
    Line,
}

/// Prints the end of a run on standard error; the report has all.
pub(crate) fn summarize(report: &Report, path: &Path, told: Told) {
    let page = path.with_file_name("report.html");
    if told == Told::Line {
        eprintln!("{}: {}; report: {}", report.job, report.verdict, page.display());
        return;
    }
    eprintln!("{}: {}", report.job, report.verdict);
    for complaint in report.ranks.complaints() {
        eprintln!("  {complaint}");
    }
    if report.fault_count > 0 {
        eprintln!("  {} faults; the report names them", report.fault_count);
    }
    if let [first, others @ ..] = report.advice.as_slice() {
        let more = if others.is_empty() {
            String::new()
        } else {
            format!(" ({} more in the report)", others.len())
        };
        eprintln!("  would help: {}{more}", first.text);
    }
    eprintln!("report: {}, and report.json beside it", page.display());
}
