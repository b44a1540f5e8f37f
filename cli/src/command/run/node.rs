//! A run on one node: its agent and its ranks, from the manager to the end of the job.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use clap::ValueEnum;
use nix::unistd::gethostname;
use tierfeed_core::{
    fleet::{
        launch::{ProcessPlacement, Task},
        training::Cause,
    },
    order::World,
};
use tierfeed_runtime::{
    agent::{self, Agent, Calibration},
    observe::report::{JobReport, NodeSummary, Report},
    shutdown,
};
use tierfeed_workload_analyzer::Job;
use tokio::time::timeout;

use super::{
    Dirs, FIRST, Ranks, Run,
    control::{Control, JobEnd, OTHERS_END_AFTER_SIGNAL, OTHERS_END_WITHIN},
    ending::Ending,
    finished,
    launcher::launcher_in,
    meeting::{Meeting, share_index, typed},
    tasks::OtherTasks,
    trainer_variables::{self, MeetingPlace},
};
use crate::{
    command::{self, agent::of_agent},
    deadline, environment,
    failure::Failure,
    jobs::{self, IndexedJob, JobFile},
    signals::Signals,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Launch {
    /// Once; it starts its ranks itself, as torchrun does.
    Once,
    /// Once for each local rank, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and so on set.
    PerRank,
}

/// How often the agent says that it still waits, for ranks or other nodes.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// An agent that is starting has so long to leave the job when a signal comes.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct NodeRun<'a> {
    pub(super) arguments: &'a Run,
    pub(super) ranks: Ranks<'a>,
    pub(super) launch: BTreeMap<String, String>,
    pub(super) seat: ProcessPlacement,
    pub(super) dirs: &'a Dirs,
    /// Whether a launcher has started this process.
    pub(super) is_launched: bool,
}

#[derive(Debug)]
pub(super) struct NodeEnd {
    pub(super) ending: Ending,
    /// The cause that ended the job first, as far as this node knows.
    pub(super) of_job: Option<Cause>,
    pub(super) report: Option<Report>,
    /// Only on the first of several nodes.
    pub(super) job_report: Option<JobReport>,
}

/// The job as a node has it before the manager is there.
enum ReadJob {
    /// On the first node, whose manager gives the index to the others.
    Indexed(Box<IndexedJob>),
    File(JobFile),
}

impl NodeRun<'_> {
    pub(super) fn run(&self, file: JobFile, told: Option<Signals>) -> Result<NodeEnd, Failure> {
        // Beside everything that the start does from here on.
        let tiers_report = environment::tiers_report(None).ok();
        let calibration = Calibration::begin(&file.job, tiers_report.as_deref());
        // Before the job is indexed: the other processes of this node come now.
        let others = self.other_tasks(file.job.world)?;
        let job = Arc::clone(&file.job);
        let read = match self.seat.node {
            FIRST => ReadJob::Indexed(Box::new(jobs::load(file, &self.dirs.job)?)),
            _ => ReadJob::File(file),
        };
        command::finish(self.run_with(&job, read, calibration, others, told))
    }

    fn other_tasks(&self, world: World) -> Result<Option<OtherTasks>, Failure> {
        match self.seat.task {
            Task::Node => Ok(None),
            Task::Rank { .. } => OtherTasks::listen(self.dirs, world.ranks_per_node - 1)
                .map(Some)
                .map_err(Failure::work),
        }
    }

    /// The summary that this node tells the first one at its end.
    fn summary(&self, code: u8, report: Option<&Report>) -> NodeSummary {
        let host = gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let path = self.dirs.node.report();
        let summary = NodeSummary::without_report(self.seat.node.0, host, code, &path);
        match report {
            Some(report) => summary.with(report),
            None => summary,
        }
    }

    async fn run_with(
        &self,
        job: &Job,
        read: ReadJob,
        calibration: Calibration,
        others: Option<OtherTasks>,
        told: Option<Signals>,
    ) -> Result<NodeEnd, Failure> {
        // Listens from here on, because a signal may come before the first trainer is started.
        let (mut signals, _deadline) = self.ranks.signals(told)?;
        let control = tokio::select! {
            control = self.control(read) => control?,
            signal = signals.next() => {
                let ending = Ending::Unstarted(signal);
                return Ok(NodeEnd { ending, of_job: None, report: None, job_report: None });
            }
        };
        let played = self.play(job, &control, calibration, others, &mut signals).await;
        let (code, cause) = match &played {
            Ok((ending, _)) => (ending.code(), ending.cause()),
            Err(failure) => (failure.code(), Some(Cause::Failed(failure.code()))),
        };
        let within = match &played {
            Ok((Ending::Unstarted(_), _)) => Some(OTHERS_END_AFTER_SIGNAL),
            Ok((Ending::Stopped(..), _)) => None,
            _ => Some(OTHERS_END_WITHIN),
        };
        let report = played.as_ref().ok().and_then(|(_, report)| report.as_ref());
        let summary = self.summary(code, report);
        let is_asked = matches!(&played, Ok((Ending::Unstarted(_) | Ending::Stopped(..), _)));
        let end = control.end(cause, summary, within, &mut signals);
        let JobEnd { cause: of_job, summaries } = self.waiting(end).await;
        if is_asked {
            deadline::start(deadline::CONCLUDED_WITHIN);
        }
        let job_report = (self.seat.node == FIRST && job.world.nodes > 1).then(|| {
            let code = of_job.map_or(code, Cause::code);
            JobReport::of(&job.name, job.world.nodes, code, summaries.into_values().collect())
        });
        if let Some(report) = &job_report {
            report.write(&self.dirs.job.report())?;
        }
        let (ending, report) = played?;
        Ok(NodeEnd { ending, of_job, report, job_report })
    }

    /// Tells the process that started this one that it waits, and does not hang.
    async fn waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            if let Ok(done) = timeout(SAID_EVERY, &mut work).await {
                return done;
            }
            if let Ranks::Supervisor(supervisor) = self.ranks {
                supervisor.wait();
            }
        }
    }

    /// The manager of the run, on this node or on the first one.
    async fn control(&self, read: ReadJob) -> Result<Control, Failure> {
        let place = &self.arguments.place;
        let meeting = || -> Result<Meeting, Failure> {
            let token = environment::token(place.token_file.as_deref(), None)?;
            Ok(Meeting { address: typed(place.manager.as_ref())?, token })
        };
        match read {
            ReadJob::Indexed(indexed) if indexed.loaded.job.world.nodes == 1 => {
                Control::alone(*indexed, &self.dirs.job).await
            }
            ReadJob::Indexed(indexed) => Control::first(*indexed, &self.dirs.job, meeting()?).await,
            ReadJob::File(file) => {
                let within = self.arguments.wait();
                Control::joined(&file, self.seat.node, self.dirs, meeting()?, within).await
            }
        }
    }

    async fn play(
        &self,
        job: &Job,
        control: &Control,
        calibration: Calibration,
        others: Option<OtherTasks>,
        signals: &mut Signals,
    ) -> Result<(Ending, Option<Report>), Failure> {
        share_index(&self.dirs.job, &self.dirs.node);
        let (address, token) = (control.address.clone(), control.token.clone());
        let (launch, run_dir) = (self.launch.clone(), self.dirs.node.clone());
        let observe = &self.arguments.observe;
        let settings = agent::Settings {
            job: control.job.clone(),
            calibration: Some(calibration),
            ..command::agent::settings(address, token, launch, run_dir, observe)?
        };
        let (stop_agent, agent_shutdown) = shutdown::channel();
        let mut start = Box::pin(Agent::start(settings, agent_shutdown));
        let agent = tokio::select! {
            agent = &mut start => agent.map_err(of_agent)?,
            signal = signals.next() => {
                stop_agent.pull();
                // One that has joined leaves, so that the manager does not wait for it.
                let leave = Box::pin(async {
                    if let Ok(agent) = start.await {
                        drop(Box::pin(agent.run()).await);
                    }
                });
                drop(timeout(LEAVES_WITHIN, leave).await);
                return Ok((Ending::Unstarted(signal), None));
            }
        };
        let agent = tokio::spawn(agent.run());
        let ending = self.train(job, control, others, signals).await;
        let waits_for_others = self.seat.node == FIRST && job.world.nodes > 1;
        if matches!(ending, Ok(Ending::Stopped(..))) && !waits_for_others {
            deadline::start(deadline::ENDS_WITHIN);
        }
        stop_agent.pull();
        let report = finished(agent).await;
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
        &self,
        job: &Job,
        control: &Control,
        others: Option<OtherTasks>,
        signals: &mut Signals,
    ) -> anyhow::Result<Ending> {
        let shared = trainer_variables::of_agent(&self.dirs.node)?;
        let mut started = match self.ranks {
            Ranks::Caller(caller) => caller.train(&shared)?,
            Ranks::Supervisor(supervisor) => {
                let own = self.rank_variables(job.world, &control.ranks_meet_at)?.into_iter();
                let with_shared = |own| shared.iter().cloned().chain(own).collect();
                supervisor.train(&own.map(with_shared).collect::<Vec<_>>())?
            }
        };
        if let Some(others) = others {
            others.join(&mut started, &control.ranks_meet_at, self.ranks)?;
        }
        environment::arm_drill();
        match &control.training {
            Some(training) => {
                self.waiting(started.wait(signals, None, training.ends_elsewhere())).await
            }
            None => self.waiting(started.wait(signals, None, std::future::pending())).await,
        }
    }

    /// For each process that this node starts, the variables that are its own.
    fn rank_variables(
        &self,
        world: World,
        place: &MeetingPlace,
    ) -> anyhow::Result<Vec<Vec<(&'static str, String)>>> {
        let ProcessPlacement { node, task } = self.seat;
        if let Task::Rank { rank, .. } = task {
            return trainer_variables::rank_variables(world, [rank].into_iter(), place);
        }
        let launcher = launcher_in(&self.arguments.command);
        if let Some(launcher) = launcher.filter(|_| self.arguments.launch.is_none()) {
            tracing::info!(launcher, "the command starts its ranks itself, so it is started once");
        }
        // Behind a launcher the command is one that works as several, and takes its variables.
        let is_alone = world.ranks() == 1 && !self.is_launched;
        let default = if is_alone || launcher.is_some() { Launch::Once } else { Launch::PerRank };
        match self.arguments.launch.unwrap_or(default) {
            Launch::Once if world.nodes > 1 => {
                Ok(vec![trainer_variables::launcher_variables(world, node, place)])
            }
            Launch::Once => Ok(vec![Vec::new()]),
            Launch::PerRank => {
                trainer_variables::rank_variables(world, world.ranks_of(node), place)
            }
        }
    }
}
