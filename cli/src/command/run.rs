//! `tierfeed run`: manager, agent and training on one node, and a report at the end.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, anyhow};
use tierfeed_core::units::Bytes;
use tierfeed_runtime::{
    agent::{self, Agent, AgentError, Calibration, scratch},
    expansion::Expansion,
    manager::{Listener, Manager},
    observe::{metrics, report::Report},
    rpc::client::Address,
    run_dir::{LockOwner, RunDir, start_marker::StartMarker, trainer_file::TrainerFile},
    shutdown,
};
use tokio::task::JoinHandle;

use super::expansion;
use crate::{
    arguments::{Launch, Run},
    deadline, environment,
    failure::{Failure, code_of},
    jobs::{self, IndexedJob, JobFile},
    launcher::launcher_in,
    output, panics,
    processes::{self, Ending, Signals, Trainer},
    program,
};

pub(crate) fn run(arguments: &Run) -> Result<(), Failure> {
    panics::end_this_process();
    program::require(&arguments.command)?;
    let file = JobFile::read(&arguments.job)?;
    let job = &file.job;
    if job.world.nodes != 1 {
        return Err(Failure::Input(anyhow!(
            "{}: world.nodes is {}; `tierfeed run` is for one node: start manager and agents apart",
            arguments.job.display(),
            job.world.nodes
        )));
    }
    let run_dir = environment::new_run_dir(arguments.run_dir.clone(), &job.name)?;
    // Before any file of a run in progress is touched.
    let _run_dir_lock = run_dir.lock(LockOwner::Manager).map_err(Failure::input)?;
    file.job.require_dataset().map_err(Failure::input)?;
    // Beside everything that the start does from here on.
    let calibration = Calibration::begin(job, environment::tiers_report(None).ok().as_deref());
    let indexed = jobs::load(file, &run_dir)?;
    let expand = |wish| expansion::plan(wish, &indexed.job);
    let expansion = arguments.expand_memory.map(expand).transpose()?;
    let (ending, mut report) =
        super::finish(all(arguments, &indexed, &run_dir, expansion.as_ref(), calibration))?;
    if let (Some(report), Some(expansion)) = (&mut report, expansion) {
        report.expanded_memory = Some(expansion.into());
        report.write(&run_dir.report()).map_err(Failure::work)?;
    }
    if let Some(report) = &report {
        if arguments.json {
            output::json(report)?;
        }
        summarize(report, &run_dir.report());
    }
    match ending {
        Ending::Done => ended(&run_dir),
        Ending::Stopped(_, None) => Ok(()),
        Ending::Failed(status) if report.as_ref().is_some_and(|it| it.ranks.turned_away > 0) => {
            let refused = report.and_then(|it| it.ranks.turned_away_because).unwrap_or_default();
            Err(Failure::Input(anyhow!("{refused} (the command ended with {status})")))
        }
        Ending::Failed(status) => {
            let said = anyhow!("the command ended with {status}");
            Err(Failure::Passed(code_of(status), Some(said)))
        }
        Ending::Stopped(signal, Some(status)) => {
            let said = anyhow!("stopped by {signal}; the command ended with {status}");
            Err(Failure::Passed(code_of(status), Some(said)))
        }
    }
}

/// Removes the start marker, so that the next run in this directory is a new job.
fn ended(run_dir: &RunDir) -> Result<(), Failure> {
    let note = run_dir.start_marker();
    StartMarker::remove(&note)
        .with_context(|| format!("{}: left behind", note.display()))
        .map_err(Failure::Work)
}

async fn all(
    arguments: &Run,
    indexed: &IndexedJob,
    run_dir: &RunDir,
    expansion: Option<&Expansion>,
    calibration: Calibration,
) -> Result<(Ending, Option<Report>), Failure> {
    let _deadline =
        deadline::on_signal(Duration::from_nanos(arguments.grace.0) + deadline::CONCLUDED_WITHIN)
            .map_err(Failure::work)?;
    // Listens from here on, because a signal may come before the first trainer is started.
    let signals = Signals::listen().map_err(Failure::work)?;
    let (stop_manager, manager_shutdown) = shutdown::channel();
    let (stop_agent, agent_shutdown) = shutdown::channel();
    let socket = run_dir.manager_socket();
    let listener = Listener::unix(&socket).map_err(Failure::work)?;
    let metrics = metrics::Server::start(&run_dir.manager_metrics_socket(), None, None).await;
    let manager = Manager::start(indexed.manager(), listener, manager_shutdown)
        .with_metrics(metrics.map_err(Failure::work)?);
    let manager = tokio::spawn(manager.run());
    let settings = agent::Settings {
        manager: Address::Unix(socket),
        token: None,
        launch: environment::launch_variables(),
        job: Some(indexed.loaded()),
        run_dir: run_dir.clone(),
        tiers_report: environment::tiers_report(None).ok(),
        calibration: Some(calibration),
        observe: super::observe(&arguments.observe, None, run_dir)?,
    };
    let agent = Agent::start(settings, agent_shutdown).await.map_err(of_agent)?;
    let agent = tokio::spawn(agent.run());
    let ending = train(arguments, indexed, run_dir, expansion, signals).await;
    stop_agent.pull();
    let report = finished(agent).await;
    stop_manager.pull();
    if let Err(error) = finished(manager).await {
        tracing::warn!(%error, "the manager did not end well");
    }
    let ending = match ending {
        Ok(ending) => ending,
        Err(error) => {
            if let Err(of_agent) = report {
                tracing::warn!(error = %of_agent, "the agent did not end well");
            }
            return Err(Failure::Work(error));
        }
    };
    match report {
        Err(error) if !matches!(ending, Ending::Done) => {
            tracing::warn!(%error, "the agent did not end well");
            Ok((ending, None))
        }
        report => Ok((ending, report.map_err(of_agent)?)),
    }
}

async fn train(
    arguments: &Run,
    indexed: &IndexedJob,
    run_dir: &RunDir,
    expansion: Option<&Expansion>,
    signals: Signals,
) -> anyhow::Result<Ending> {
    let ranks = indexed.job.world.ranks_per_node;
    let launcher = launcher_in(&arguments.command);
    let default = if ranks == 1 || launcher.is_some() { Launch::Once } else { Launch::PerRank };
    if let Some(launcher) = launcher.filter(|_| arguments.launch.is_none()) {
        tracing::info!(launcher, "the command starts its ranks itself, so it is started once");
    }
    let shared = trainer_variables(run_dir)?;
    let per_rank = match arguments.launch.unwrap_or(default) {
        Launch::Once => vec![Vec::new()],
        Launch::PerRank => processes::rank_variables(ranks)?,
    };
    let trainers: Vec<_> = per_rank
        .into_iter()
        .map(|own| Trainer { variables: shared.iter().cloned().chain(own).collect() })
        .collect();
    let started = {
        // Trainers inherit the policy of the thread that starts them; it ends before the first await.
        let _policy = expansion.map(Expansion::apply).transpose()?;
        processes::start(&arguments.command, &trainers, arguments.json)?
    };
    panics::arm_drill();
    started.wait(signals, Duration::from_nanos(arguments.grace.0)).await
}

/// The variables by which a trainer finds its agent, and continues without it.
pub(crate) fn trainer_variables(run_dir: &RunDir) -> anyhow::Result<Vec<(&'static str, String)>> {
    let text = |path: &Path| -> anyhow::Result<String> {
        let text = path.to_str().ok_or_else(|| anyhow!("{} is not UTF-8", path.display()))?;
        Ok(text.to_owned())
    };
    let file = TrainerFile::read(&run_dir.trainer_file())?;
    let mut variables = vec![
        (environment::SOCKET, text(&file.socket)?),
        (environment::JOB, text(&file.job)?),
        (environment::INDEX, text(&file.index)?),
        (environment::EXE, text(&environment::exe()?)?),
        (environment::RUN_DIR, text(run_dir.path())?),
    ];
    if let Some(scratch) = &file.scratch {
        scratch::hold(scratch).with_context(|| format!("{}", scratch.display()))?;
        variables.push((environment::SCRATCH, text(scratch)?));
    }
    Ok(variables)
}

pub(crate) fn of_agent(error: AgentError) -> Failure {
    if error.is_input() { Failure::input(error) } else { Failure::work(error) }
}

async fn finished<T, E: std::error::Error + Send + Sync + 'static>(
    task: JoinHandle<Result<T, E>>,
) -> Result<T, E> {
    match task.await {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Prints the most important figures on standard error; the report has all.
pub(crate) fn summarize(report: &Report, path: &Path) {
    let hits: Vec<_> = report
        .tiers
        .iter()
        .map(|tier| {
            let mark = if tier.emulated { " (emulated)" } else { "" };
            let samples = report.tier_hits.get(tier.name).copied().unwrap_or(0);
            format!("{} {samples}{mark}", tier.name)
        })
        .collect();
    eprintln!("{}: {}", report.job, report.verdict);
    for complaint in report.ranks.complaints() {
        eprintln!("  {complaint}");
    }
    for advice in &report.advice {
        eprintln!("  would help: {}", advice.text);
    }
    eprintln!(
        "{}: {} batches, {} in {:.2} s, stall {:.3} s, cold {}, hits: {}",
        report.job,
        report.steps,
        Bytes(report.bytes),
        report.wall_s,
        report.stall_s,
        Bytes(report.cold_read_bytes),
        hits.join(", ")
    );
    for choice in report.choices() {
        eprintln!("  {choice}");
    }
    if report.fault_count > 0 {
        eprintln!("{} faults; the report names them", report.fault_count);
    }
    eprintln!("report: {}", path.display());
    eprintln!("as a page: {}", path.with_file_name("report.html").display());
}
