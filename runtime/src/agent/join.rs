//! From an address to a place in the job: what an agent does before it can serve.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tierfeed_core::{
    fleet::{Assignment, Registration},
    id::NodeId,
    launch::{Identity, LaunchError, Misfit, Post},
    order::Spec,
    units::Nanoseconds,
};
use tierfeed_dataset::Index;
use tierfeed_workload_analyzer::{
    Job,
    demand::{Demand, Sizes},
    job::{At, JobError},
};

use super::{AgentError, JobAtHand, JoinError, Settings, link::Link};
use crate::{
    clock::Clock,
    dataset::{self, DatasetError},
    layout::{Layout, Node, PlacesError, Room, report_at},
    rpc::{
        JobText,
        client::{CallError, Client},
        wire::Remedy,
    },
    run_dir::{Occupant, Occupied, RunDir, trainer_file::TrainerFile},
    transport::token,
};

/// How long an agent looks for its manager before it gives up.
const LOOK_FOR: Nanoseconds = Nanoseconds(60_000_000_000);

/// Between two looks.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(250);

/// An agent that knows its work.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) job: Arc<Job>,
    pub(super) job_file: PathBuf,
    pub(super) index: Arc<Index>,
    pub(super) index_path: PathBuf,
    pub(super) node: Node,
    pub(super) layout: Layout,
    pub(super) assignment: Assignment,
    pub(super) post: Post,
    pub(super) link: Link,
    pub(super) clock: Clock,
    pub(super) occupied: Occupied,
}

pub(super) async fn join(settings: &Settings) -> Result<Joined, AgentError> {
    let occupied = settings.run_dir.occupy(Occupant::Agent)?;
    let clock = Clock::start();
    let lookup = |name: &str| settings.launch.get(name).cloned();
    let identity = Identity::read(&lookup)
        .map_err(|error: LaunchError| JoinError::from(Misfit::from(error)))?;
    let (mut client, told) = look_for(settings, clock).await.map_err(JoinError::from)?;
    let run_dir = settings.run_dir.clone();
    let job_file = told.text().file.clone();
    let tiers_report = settings.tiers_report.clone();
    let look = move || look_at_job(&told, &identity, &run_dir, tiers_report.as_deref());
    let looked =
        tokio::task::spawn_blocking(look).await.expect("looking at a job does not panic")?;
    let Looked { job, post, number, index, index_path, node, layout } = looked;
    let agent = Registration {
        node: number,
        home: settings.run_dir.home(),
        incarnation: token::incarnation().map_err(JoinError::from)?,
        tiers: layout.offer(),
        chunk: layout.chunk,
    };
    let registered = register(settings, &mut client, &agent, clock).await;
    let assignment = registered.map_err(JoinError::from)?;
    let samples = index.len();
    check_order(&assignment.order, &job.order(samples).map_err(JoinError::from)?)?;
    let NodeId(number) = assignment.node;
    let post = Post { node: Some(assignment.node), ..post };
    tracing::info!(node = number, generation = assignment.generation, job = job.name, "joined");
    let link = Link::start(client, agent, clock);
    Ok(Joined {
        job,
        job_file,
        index,
        index_path,
        node,
        layout,
        assignment,
        post,
        link,
        clock,
        occupied,
    })
}

/// What a manager says must follow from the job and the index that are here.
fn check_order(told: &Spec, own: &Spec) -> Result<(), JoinError> {
    if told == own { Ok(()) } else { Err(JoinError::OtherOrder { samples: own.samples }) }
}

/// Agents are often started together with their manager, so it may come a little later, or go and come
/// again before it has told of the job.
async fn look_for(settings: &Settings, clock: Clock) -> Result<(Client, Told), CallError> {
    loop {
        match ask_for_job(settings).await {
            Err(error) if is_worth_another_try(&error, clock) => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            outcome => return outcome,
        }
    }
}

async fn ask_for_job(settings: &Settings) -> Result<(Client, Told), CallError> {
    let mut client = Client::connect(&settings.manager, settings.token.as_ref()).await?;
    let told = match &settings.job {
        Some(at_hand) => Told::AtHand(at_hand.clone()),
        None => Told::ByManager(client.job().await?),
    };
    Ok((client, told))
}

/// What an agent knows of its job before it has looked at it.
enum Told {
    /// By the process that started it.
    AtHand(JobAtHand),
    /// By its manager.
    ByManager(JobText),
}

impl Told {
    fn text(&self) -> &JobText {
        match self {
            Self::AtHand(JobAtHand { text, .. }) | Self::ByManager(text) => text,
        }
    }

    fn job(&self) -> Result<Arc<Job>, JobError> {
        match self {
            Self::AtHand(at_hand) => Ok(Arc::clone(&at_hand.job)),
            Self::ByManager(text) => Job::parse(&text.text, &text.file).map(Arc::new),
        }
    }

    /// The index of the dataset of `job`, which is or will be kept at `path`.
    fn index(&self, job: &Job, path: &Path) -> Result<Arc<Index>, DatasetError> {
        match self {
            Self::AtHand(at_hand) => Ok(Arc::clone(&at_hand.index)),
            Self::ByManager(JobText { index_fingerprint, .. }) => {
                dataset::open_or_build_same(&job.dataset, path, *index_fingerprint).map(Arc::new)
            }
        }
    }
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

/// A job as it is on this node.
struct Looked {
    job: Arc<Job>,
    post: Post,
    number: NodeId,
    index: Arc<Index>,
    index_path: PathBuf,
    node: Node,
    layout: Layout,
}

fn look_at_job(
    told: &Told,
    identity: &Identity,
    run_dir: &RunDir,
    tiers_report: Option<&Path>,
) -> Result<Looked, JoinError> {
    let (text, job) = (told.text(), told.job()?);
    let post = job.post(&text.text, &text.file);
    let number = identity.node_in(&post)?;
    let index_path = job.index.clone().unwrap_or_else(|| run_dir.index());
    let index_path = std::path::absolute(&index_path).unwrap_or(index_path);
    let index = told.index(&job, &index_path)?;
    let demand = Demand::of(&job, &Sizes::from(&*index))?;
    let placed = |error: PlacesError| {
        let keys = error.keys();
        JoinError::from(At::in_text(&text.text, &text.file, &keys, error))
    };
    let node = Node::read(&job).map_err(PlacesError::from).map_err(placed)?;
    let arrival = has_worked(run_dir, &text.file);
    let layout = layout(&job, &demand, &node, arrival).map_err(placed)?;
    let measured = tiers_report.and_then(report_at);
    let layout = layout.with_measured(&job, &node, index.sizes(), measured.as_ref());
    Ok(Looked { job, post, number, index, index_path, node, layout })
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

#[cfg(test)]
mod tests {
    use tierfeed_core::order::{Position, Shuffle, World};

    use super::*;

    #[test]
    fn an_order_that_does_not_follow_from_job_and_index_is_refused() {
        let own = Spec {
            samples: 100,
            shuffle: Shuffle::Sequential,
            seed: 0,
            epochs: 1,
            drop_last: false,
            batch_size: 10,
            world: World { nodes: 1, ranks_per_node: 1 },
            start: Position::START,
        };
        check_order(&own, &own).unwrap();
        let others = [
            Spec { samples: 99, ..own },
            Spec { seed: 1, ..own },
            Spec { batch_size: 11, ..own },
            Spec { world: World { nodes: 2, ranks_per_node: 1 }, ..own },
        ];
        for told in others {
            let error = check_order(&told, &own).unwrap_err();
            assert!(matches!(error, JoinError::OtherOrder { samples: 100 }), "{error}");
            assert!(error.is_input(), "another attempt brings the same");
        }
    }
}
