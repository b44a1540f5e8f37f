//! From an address to a place in the job: what an agent does before it can serve.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tierfeed_core::{
    fleet::{Assignment, Registration},
    id::NodeId,
    order::SpecError,
    units::Nanoseconds,
};
use tierfeed_workload_analyzer::{
    Index, Job,
    demand::{Demand, Sizes},
    job::JobError,
};

use super::{AgentError, Settings, link::Link};
use crate::{
    client::{CallError, Client},
    clock::Clock,
    dataset::{self, DatasetError},
    manager::JobText,
    places::{Layout, Node, PlacesError, Room, report_at},
    run_dir::{Occupant, Occupied, RunDir},
    token::{self, TokenError},
    trainer_file::TrainerFile,
    wire::Remedy,
};

/// How long an agent looks for its manager before it gives up.
const LOOK_FOR: Nanoseconds = Nanoseconds(60_000_000_000);

/// Between two looks.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(250);

/// Why an agent cannot take part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The manager cannot be reached or refuses.
    #[error(transparent)]
    Manager(#[from] CallError),
    /// The job makes no sense here.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The dataset cannot be indexed, or is another one than the manager's.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The job has no order for this dataset.
    #[error(transparent)]
    Order(#[from] SpecError),
    /// The tiers do not fit on this node.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// The system has no random source.
    #[error(transparent)]
    Random(#[from] TokenError),
    /// The index of this dataset has another number of samples than the manager's order.
    #[error("the index has {found} samples, the manager's order {expected}")]
    OtherOrder {
        /// What is here.
        found: u32,
        /// What the manager says.
        expected: u32,
    },
}

impl JoinError {
    /// Whether other input would help, rather than another attempt.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Manager(error) => error.remedy() == Remedy::Reconfigure,
            Self::Dataset(error) => error.is_input(),
            Self::Random(_) => false,
            _ => true,
        }
    }
}

/// An agent that knows its work.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) job: Job,
    pub(super) job_file: PathBuf,
    pub(super) index: Arc<Index>,
    pub(super) index_path: PathBuf,
    pub(super) node: Node,
    pub(super) layout: Layout,
    pub(super) assignment: Assignment,
    pub(super) link: Link,
    pub(super) clock: Clock,
    pub(super) occupied: Occupied,
}

pub(super) async fn join(settings: &Settings) -> Result<Joined, AgentError> {
    let occupied = settings.run_dir.occupy(Occupant::Agent)?;
    let clock = Clock::start();
    let (mut client, text) = look_for(settings, clock).await.map_err(JoinError::from)?;
    let run_dir = settings.run_dir.clone();
    let job_file = text.file.clone();
    let tiers_report = settings.tiers_report.clone();
    let look = move || look_at_job(&text, &run_dir, tiers_report.as_deref());
    let looked =
        tokio::task::spawn_blocking(look).await.expect("looking at a job does not panic")?;
    let (job, index, index_path, node, layout) = looked;
    let agent = Registration {
        node: settings.node,
        home: settings.run_dir.home(),
        incarnation: token::incarnation().map_err(JoinError::from)?,
        tiers: layout.offer(),
    };
    let registered = register(settings, &mut client, &agent, clock).await;
    let assignment = registered.map_err(JoinError::from)?;
    let (found, expected) = (index.len(), assignment.order.samples);
    if found != expected {
        return Err(JoinError::OtherOrder { found, expected }.into());
    }
    let NodeId(number) = assignment.node;
    tracing::info!(node = number, generation = assignment.generation, job = job.name, "joined");
    let link = Link::start(client, agent, assignment.node, clock);
    Ok(Joined { job, job_file, index, index_path, node, layout, assignment, link, clock, occupied })
}

/// Agents are often started together with their manager, so it may come a little later, or go and come
/// again before it has told of the job.
async fn look_for(settings: &Settings, clock: Clock) -> Result<(Client, JobText), CallError> {
    loop {
        match ask_for_job(settings).await {
            Err(error) if is_worth_another_try(&error, clock) => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            outcome => return outcome,
        }
    }
}

async fn ask_for_job(settings: &Settings) -> Result<(Client, JobText), CallError> {
    let mut client = Client::connect(&settings.manager, settings.token.as_ref()).await?;
    let text = client.job().await?;
    Ok((client, text))
}

/// Takes part in the job; by another connection if the manager went and came meanwhile.
async fn register(
    settings: &Settings,
    client: &mut Client,
    agent: &Registration,
    clock: Clock,
) -> Result<Assignment, CallError> {
    loop {
        match client.register(agent).await {
            Err(error) if is_worth_another_try(&error, clock) => {
                tokio::time::sleep(LOOK_EVERY).await;
                if let Ok(again) = Client::connect(&settings.manager, settings.token.as_ref()).await
                {
                    *client = again;
                }
            }
            outcome => return outcome,
        }
    }
}

fn is_worth_another_try(error: &CallError, clock: Clock) -> bool {
    error.remedy() == Remedy::Retry && clock.now() < LOOK_FOR
}

type Looked = (Job, Arc<Index>, PathBuf, Node, Layout);

fn look_at_job(
    text: &JobText,
    run_dir: &RunDir,
    tiers_report: Option<&Path>,
) -> Result<Looked, JoinError> {
    let job = Job::parse(&text.text, &text.file)?;
    let index_path = job.dataset.index.clone().unwrap_or_else(|| run_dir.index());
    let expected = text.index_fingerprint;
    let index = dataset::open_or_build_same(&job.dataset, &index_path, expected)?;
    let demand = Demand::of(&job, &Sizes::from(&index))?;
    let node = Node::read(&job).map_err(PlacesError::from)?;
    let layout = layout(&job, &demand, &node, has_worked(run_dir, &text.file))?;
    let measured = tiers_report.and_then(report_at);
    let layout = layout.with_measured(&job, &node, index.sizes(), measured.as_ref());
    Ok((job, Arc::new(index), index_path, node, layout))
}

/// Whether an agent is the first of its job here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    First,
    Again,
}

/// An agent leaves word for trainers when it has all that it needs.
fn has_worked(run_dir: &RunDir, job_file: &Path) -> Arrival {
    let left = TrainerFile::read(&run_dir.trainer_file());
    if left.is_ok_and(|it| it.job == job_file) { Arrival::Again } else { Arrival::First }
}

/// The first agent of a job refuses sizes that the node does not have. One that comes back had them: if
/// somebody else has taken them meanwhile, it starts with less.
fn layout(
    job: &Job,
    demand: &Demand,
    node: &Node,
    arrival: Arrival,
) -> Result<Layout, PlacesError> {
    match Layout::fit(job, demand, node, Room::Free) {
        Err(error) if arrival == Arrival::Again && error.is_want_of_room() => {
            tracing::warn!(%error, "an agent of this job worked here before; it starts with less");
            Layout::fit(job, demand, node, Room::Promised)
        }
        layout => layout,
    }
}
