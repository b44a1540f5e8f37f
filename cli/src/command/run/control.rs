//! The manager of a run as a node has it: its own on the first node, that of the first node on the others.

use std::time::Duration;

use anyhow::anyhow;
use tierfeed_core::{
    fleet::training::{Cause, Stage},
    id::NodeId,
};
use tierfeed_runtime::{
    agent::LoadedJob,
    manager::{Listener, Manager, ManagerError, Settings, Summaries},
    observe::{metrics, report::NodeSummary},
    rpc::client::{Address, Client},
    run_dir::RunDir,
    shutdown,
    transport::token::Token,
    whole_file,
};
use tokio::task::JoinHandle;

use super::{
    Dirs, finished,
    meeting::{Meeting, host_of},
    trainer_variables::MeetingPlace,
    watch::{Ended, TrainingWatch},
};
use crate::{
    command::status::of_call,
    failure::Failure,
    jobs::{IndexedJob, JobFile},
    signals::Signals,
};

/// How long the first node waits for others that still train after a rank has failed: they have 20 s to end
/// their ranks.
pub(super) const OTHERS_END_WITHIN: Duration = Duration::from_secs(40);

/// How long it waits for others after a second signal, or one before the training: a launcher sends it to all of
/// them. After the first one they end as their training likes.
pub(super) const OTHERS_END_AFTER_SIGNAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Control {
    pub(super) address: Address,
    pub(super) token: Option<Token>,
    /// The job, if this process has read and indexed it.
    pub(super) job: Option<LoadedJob>,
    pub(super) ranks_meet_at: MeetingPlace,
    /// `None` in a job of one node.
    pub(super) training: Option<TrainingWatch>,
    own: Option<OwnManager>,
}

#[derive(Debug)]
struct OwnManager {
    running: JoinHandle<Result<Summaries, ManagerError>>,
    stop: shutdown::Trigger,
    /// The directory in which the other nodes find it.
    met_in: Option<RunDir>,
}

#[derive(Debug, Default)]
pub(super) struct JobEnd {
    /// The cause that ended it first, as far as this node knows.
    pub(super) cause: Option<Cause>,
    /// The summaries of the nodes, on the first one.
    pub(super) summaries: Summaries,
}

impl Control {
    pub(super) async fn alone(indexed: IndexedJob, run_dir: &RunDir) -> Result<Self, Failure> {
        let socket = run_dir.manager_socket();
        let listener = Listener::unix(&socket)?;
        let ranks_meet_at = MeetingPlace::here()?;
        let own = OwnManager::start(indexed.manager, listener, run_dir, None).await?;
        Ok(Self {
            address: Address::Unix(socket),
            token: None,
            job: Some(indexed.loaded),
            ranks_meet_at,
            training: None,
            own: Some(own),
        })
    }

    /// A manager that the other nodes join.
    pub(super) async fn first(
        indexed: IndexedJob,
        job_dir: &RunDir,
        meeting: Meeting,
    ) -> Result<Self, Failure> {
        let ranks_meet_at = MeetingPlace::here()?;
        let (listener, own, token) = meeting.open(job_dir).await?;
        let settings = Settings { meeting_port: ranks_meet_at.port, ..indexed.manager };
        let manager = OwnManager::start(settings, listener, job_dir, Some(&token)).await?;
        let address = Address::Tcp(own);
        let client = Client::connect(&address, Some(&token)).await.map_err(of_call)?;
        Ok(Self {
            address,
            token: Some(token),
            job: Some(indexed.loaded),
            ranks_meet_at,
            training: Some(TrainingWatch::start(client, NodeId(0))),
            own: Some(OwnManager { met_in: Some(job_dir.clone()), ..manager }),
        })
    }

    /// The manager of the first node, once it answers.
    pub(super) async fn joined(
        file: &JobFile,
        node: NodeId,
        dirs: &Dirs,
        meeting: Meeting,
        within: Duration,
    ) -> Result<Self, Failure> {
        let found = meeting.find(&dirs.job, dirs.arrived, within).await?;
        if !file.is_that_of(&found.job) {
            return Err(Failure::Input(anyhow!(
                "{} differs on this node, or the launcher says another world here: the first node has {} nodes of {} \
                 ranks",
                found.job.file.display(),
                found.job.world.nodes,
                found.job.world.ranks_per_node
            )));
        }
        let told = found.client.training(node, Stage::Running, None).await.map_err(of_call)?;
        let host = host_of(&found.address).to_owned();
        Ok(Self {
            training: Some(TrainingWatch::start(found.client, node)),
            address: Address::Tcp(found.address),
            token: Some(found.token),
            job: None,
            ranks_meet_at: MeetingPlace { host, port: told.meeting_port },
            own: None,
        })
    }

    /// Says that the training of this node has ended. The first node waits for the others, then ends the
    /// manager; it waits at most `within` if the job has ended before its time.
    pub(super) async fn end(
        self,
        cause: Option<Cause>,
        summary: NodeSummary,
        within: Option<Duration>,
        signals: &mut Signals,
    ) -> JobEnd {
        let mut of_job = None;
        if let Some(training) = self.training {
            let mut ended = training.end(cause, summary).await;
            if self.own.is_some() {
                wait_for_others(&mut ended, within, signals).await;
            }
            of_job = ended.of_job();
        }
        let summaries = match self.own {
            Some(own) => own.end().await,
            None => Summaries::new(),
        };
        JobEnd { cause: of_job, summaries }
    }
}

async fn wait_for_others(ended: &mut Ended, within: Option<Duration>, signals: &mut Signals) {
    let asked = tokio::select! {
        () = ended.others(within) => return,
        asked = signals.ending() => asked,
    };
    tracing::info!("{asked}: the other nodes are not waited for any longer");
    // An error means that some still train.
    let _ = tokio::time::timeout(OTHERS_END_AFTER_SIGNAL, ended.others(Some(Duration::ZERO))).await;
}

impl OwnManager {
    async fn start(
        settings: Settings,
        listener: Listener,
        run_dir: &RunDir,
        token: Option<&Token>,
    ) -> Result<Self, Failure> {
        let (stop, shutdown) = shutdown::channel();
        let metrics = metrics::Server::start(&run_dir.manager_metrics_socket(), None).await?;
        let manager = Manager::start(settings, listener, shutdown).with_metrics(metrics);
        let manager = match token {
            Some(token) => manager.with_peer_secret(token),
            None => manager,
        };
        Ok(Self { running: tokio::spawn(manager.run()), stop, met_in: None })
    }

    async fn end(self) -> Summaries {
        self.stop.pull();
        let summaries = finished(self.running).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the manager did not end well");
            Summaries::new()
        });
        if let Some(Err(error)) = self.met_in.map(|it| whole_file::remove(&it.rendezvous())) {
            tracing::warn!(%error, "the address of an ended manager is left behind");
        }
        summaries
    }
}
