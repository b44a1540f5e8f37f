//! How an agent joins: it reaches the manager, reads the job ([`local_job`](super::local_job)), registers, and lays
//! out its tiers by the schedule that it gets.

use std::{path::PathBuf, sync::Arc};

use tierfeed_core::{
    fleet::{
        Assignment, Direction, Progress, Registration,
        launch::{Identity, JobWorld, LaunchError, LaunchMismatch},
        members::PeerReport,
        schedule::Schedule,
    },
    id::NodeId,
    order::Spec,
    retention::form::Form,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{Catalog, Index};
use tierfeed_workload_analyzer::{Job, job::Transform};
use tokio::task::JoinHandle;

use super::{
    AgentError, Calibration, ImagesError, JoinError, Settings,
    index_transfer::bring_index,
    local_job::{JobSource, LocalJob, index_path, no_prepared_lengths, read_job},
    manager_connection::ManagerHandle,
    peers::{self, PeerSetup, Secret},
    prepared_sizes::{self, of_own_lengths},
    revisions::Revisions,
};
use crate::{
    clock::Clock,
    dataset::image_sizes::{ImageSizeCache, ImageSizes},
    layout::{Layout, Node},
    rpc::{
        call::{PeersAnswer, Remedy, Report},
        client::{Address, CallError, Client},
    },
    run_dir::{LockOwner, RunDirLock},
    shutdown::{self, Shutdown},
    transport::token,
};

/// How long an agent tries to reach its manager before it gives up.
const CONNECT_WITHIN: Nanoseconds = Nanoseconds(60_000_000_000);

/// The pause between two reports while images are scanned.
const HEARTBEAT_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

const RETRY_EVERY: std::time::Duration = std::time::Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Joined {
    pub(super) job: Arc<Job>,
    pub(super) job_file: PathBuf,
    pub(super) catalog: Catalog,
    /// The lengths of prepared samples, where tiers hold these and each has its own.
    pub(super) prepared: Option<Arc<[Bytes]>>,
    pub(super) index_path: PathBuf,
    pub(super) node: Node,
    pub(super) layout: Layout,
    pub(super) assignment: Assignment,
    pub(super) order: Spec,
    pub(super) post: JobWorld,
    pub(super) manager: ManagerHandle,
    /// `None` if nodes do not share what they hold.
    pub(super) applicant: Option<PeerSetup>,
    /// `None` also if the manager has not told it yet.
    pub(super) secret: Option<Secret>,
    pub(super) clock: Clock,
    pub(super) run_dir_lock: RunDirLock,
}

pub(super) async fn join(
    settings: &Settings,
    calibration: Option<Calibration>,
    shutdown: Shutdown,
) -> Result<Joined, AgentError> {
    let run_dir_lock = settings.run_dir.lock(LockOwner::Agent)?;
    let clock = Clock::start();
    let lookup = |name: &str| settings.launch.get(name).cloned();
    let identity = Identity::read(&lookup)
        .map_err(|error: LaunchError| JoinError::from(LaunchMismatch::from(error)))?;
    let (mut client, source) = connect(settings, clock).await.map_err(JoinError::from)?;
    if let JobSource::FromManager(text) = &source {
        let job = source.job().map_err(JoinError::from)?;
        let path = index_path(&job, &settings.run_dir);
        bring_index(&mut client, &job.dataset, &path, text.index_fingerprint).await;
    }
    let text = source.text().clone();
    // A scan of images ends if this future is dropped.
    let (_scanning, end_of_scan) = shutdown::channel();
    let local = read_locally(settings, source, identity, calibration, end_of_scan.clone()).await?;
    let LocalJob { job, post, number, catalog, index_path, demand, node, found, images } = local;
    let agent = Registration {
        node: number,
        home: settings.run_dir.home(),
        incarnation: token::incarnation().map_err(JoinError::from)?,
        offer: found.offer(),
    };
    let registered = register(settings, &mut client, &agent, clock).await;
    let assignment = registered.map_err(JoinError::from)?;
    let order = job.order_of_all(&catalog.samples()).map_err(JoinError::from)?;
    check_order(assignment.order, &order)?;
    let layout = found.layout(&demand, &node, &assignment.schedule);
    let NodeId(number) = assignment.node;
    tracing::info!(node = number, generation = assignment.generation, job = job.name, "joined");
    let applicant = applicant(&job, &agent, &settings.manager);
    let secret = secret(&mut client, &agent, applicant.as_ref()).await;
    let scan = {
        let (job, index) = (Arc::clone(&job), Arc::clone(catalog.first()));
        let known = settings.image_sizes.clone();
        move |transform: &Transform| {
            own_lengths(&job, transform, &index, images, &known, &end_of_scan)
        }
    };
    let lengths = transform_of_prepared(&job, &assignment.schedule).cloned();
    let lengths = lengths.map(|transform| tokio::task::spawn_blocking(move || scan(&transform)));
    let scanned = match lengths {
        None => None,
        Some(lengths) => Some(with_heartbeats(lengths, &mut client, &agent, shutdown).await?),
    };
    let prepared = scanned.map(|it| as_others_have_them(it?, &assignment, applicant.as_ref()));
    let prepared = prepared.transpose().map_err(|error| no_prepared_lengths(&text, error))?;
    let manager = ManagerHandle::start(client, agent, Revisions::of(&assignment, &order), clock);
    Ok(Joined {
        job,
        job_file: text.file,
        catalog,
        prepared,
        index_path,
        node,
        layout,
        post: JobWorld { node: Some(assignment.node), ..post },
        assignment,
        order,
        manager,
        applicant,
        secret,
        clock,
        run_dir_lock,
    })
}

async fn read_locally(
    settings: &Settings,
    source: JobSource,
    identity: Identity,
    calibration: Option<Calibration>,
    end_of_scan: Shutdown,
) -> Result<LocalJob, JoinError> {
    let (run_dir, tiers_report) = (settings.run_dir.clone(), settings.tiers_report.clone());
    let memory = settings.memory;
    let (program, known) = (settings.transform_worker.clone(), settings.image_sizes.clone());
    let records = settings.measured_transforms.clone();
    let read = move || {
        let figures = (tiers_report.as_deref(), memory);
        let local = read_job(&source, &identity, &run_dir, figures, calibration)?;
        let local = local.with_sample_time(&program).with_images(&known, &end_of_scan);
        let local = local.map_err(|error| no_prepared_lengths(source.text(), error))?;
        local.record(&records);
        Ok(local)
    };
    tokio::task::spawn_blocking(read).await.expect("reading a job does not panic")
}

/// The lengths of prepared samples; nodes that read from each other must have the same ones.
fn as_others_have_them(
    lengths: Arc<[Bytes]>,
    assignment: &Assignment,
    applicant: Option<&PeerSetup>,
) -> Result<Arc<[Bytes]>, ImagesError> {
    let first = assignment.schedule.transform.as_ref().and_then(|it| it.lengths);
    match (applicant, first) {
        (Some(_), Some(first)) if first != prepared_sizes::fingerprint(&lengths) => {
            Err(ImagesError::OtherSizes)
        }
        _ => Ok(lengths),
    }
}

/// `None` if nodes do not share what they hold.
fn applicant(job: &Job, agent: &Registration, manager: &Address) -> Option<PeerSetup> {
    if !job.policy.shares() || job.world.nodes == 1 {
        return None;
    }
    match peers::host(manager) {
        Ok(host) => Some(PeerSetup { incarnation: agent.incarnation, host, network: job.network }),
        Err(error) => {
            tracing::warn!(%error, "no address to listen at; this node does not read from others");
            None
        }
    }
}

/// The secret of the job, if nodes share what they hold. Without it the node reads alone, and asks again with each
/// report.
async fn secret(
    client: &mut Client,
    agent: &Registration,
    applicant: Option<&PeerSetup>,
) -> Option<Secret> {
    applicant?;
    let report = PeerReport::before_it_listens();
    match client.peers(agent.node, agent.incarnation, report).await {
        Ok(PeersAnswer::Same { secret: Some(secret) }) => return Some(Secret(secret)),
        Ok(PeersAnswer::Same { secret: None }) => {
            tracing::warn!("the manager has no token, so nodes do not read from each other");
        }
        Ok(PeersAnswer::Changed(_) | PeersAnswer::Unknown) => {
            tracing::warn!("the manager does not know this node yet; it reads alone meanwhile");
        }
        Err(error) => tracing::warn!(%error, "this node reads alone meanwhile"),
    }
    None
}

/// The manager's order must be the one that follows from the job and the index of this node.
fn check_order(assigned: u64, own: &Spec) -> Result<(), JoinError> {
    let samples = own.samples;
    if assigned == own.fingerprint() { Ok(()) } else { Err(JoinError::OtherOrder { samples }) }
}

/// Retries, because job scripts start agents and their manager at the same time, and the manager may start
/// later or restart before it has sent the job.
async fn connect(settings: &Settings, clock: Clock) -> Result<(Client, JobSource), CallError> {
    loop {
        match request_job(settings).await {
            Err(error) if is_worth_another_try(&error, clock) => {
                tokio::time::sleep(RETRY_EVERY).await;
            }
            outcome => return outcome,
        }
    }
}

async fn request_job(settings: &Settings) -> Result<(Client, JobSource), CallError> {
    let client = Client::connect(&settings.manager, settings.token.as_ref()).await?;
    let source = match &settings.job {
        Some(loaded) => JobSource::Loaded(loaded.clone()),
        None => JobSource::FromManager(client.job().await?),
    };
    Ok((client, source))
}

/// Registers with the manager; reconnects if the manager restarted meanwhile.
async fn register(
    settings: &Settings,
    client: &mut Client,
    agent: &Registration,
    clock: Clock,
) -> Result<Assignment, CallError> {
    loop {
        match client.register(agent).await {
            Err(error) if is_worth_another_try(&error, clock) => {
                tokio::time::sleep(RETRY_EVERY).await;
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
    error.remedy() == Remedy::Retry && clock.now() < CONNECT_WITHIN
}

/// The transform of a job whose prepared samples have lengths of their own, if tiers hold these.
fn transform_of_prepared<'a>(job: &'a Job, schedule: &Schedule) -> Option<&'a Transform> {
    let form = schedule.transform.as_ref().map(|transform| transform.form);
    of_own_lengths(job).filter(|_| form == Some(Form::Prepared))
}

/// The lengths of prepared samples. All images are scanned now if the manager gave this node another form than it
/// foresaw.
fn own_lengths(
    job: &Job,
    transform: &Transform,
    index: &Arc<Index>,
    images: Option<ImageSizes>,
    known: &ImageSizeCache,
    end: &Shutdown,
) -> Result<Arc<[Bytes]>, ImagesError> {
    let sizes = match images {
        Some(sizes) => sizes,
        None => prepared_sizes::scan_blocking(job, index, known, end)?,
    };
    prepared_sizes::lengths(&sizes, transform, index)
}

/// The result of `work`. Meanwhile the manager hears of this node, or it would count as lost; also that the node ends,
/// or it would be waited for.
async fn with_heartbeats<T>(
    mut work: JoinHandle<T>,
    client: &mut Client,
    agent: &Registration,
    mut shutdown: Shutdown,
) -> Result<T, AgentError> {
    let nothing = || Report::of_progress(agent.node, agent.incarnation, Progress::default());
    loop {
        tokio::select! {
            done = &mut work => return Ok(done.expect("a scan of images does not panic")),
            () = shutdown.recv() => {
                let Registration { node, incarnation, .. } = *agent;
                if let Err(error) = client.drained(node, incarnation, Progress::default()).await {
                    tracing::debug!(%error, "leaving during a scan of images");
                }
                return Err(AgentError::Ended);
            }
            () = tokio::time::sleep(HEARTBEAT_EVERY) => {
                match client.report(nothing()).await {
                    Ok(Direction::Drain | Direction::Superseded) => return Err(AgentError::Ended),
                    // After a restart of the manager, the first report behind the scan registers again.
                    Ok(Direction::Continue | Direction::Unknown) => (),
                    Err(error) => tracing::debug!(%error, "a heartbeat during a scan of images"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::fleet;
    use tierfeed_core::order::{FurtherDatasets, Position, Shuffle, World};

    use super::*;
    use crate::{
        manager::{self, Listener, Manager},
        shutdown,
    };

    #[tokio::test]
    async fn a_node_that_scans_counts_as_alive_until_it_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let mut settings = manager::tests::settings(directory.path().join("begun"));
        settings.fleet.lost_after = Nanoseconds(2_500_000_000);
        let (trigger, shutdown) = shutdown::channel();
        let manager = Manager::start(settings, Listener::unix(&socket).unwrap(), shutdown);
        let manager = tokio::spawn(manager.run());
        let socket = Address::Unix(socket);
        let mut client = Client::connect(&socket, None).await.unwrap();
        let watcher = Client::connect(&socket, None).await.unwrap();
        let agent = manager::tests::agent(1);
        client.register(&agent).await.unwrap();
        let (end, scan) = std::sync::mpsc::channel();
        let scan = tokio::task::spawn_blocking(move || scan.recv().unwrap());
        let watch = async {
            for _ in 0..40 {
                assert_eq!(watcher.status().await.unwrap().joined[0].state, fleet::State::Alive);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            end.send("scanned").unwrap();
        };
        let (signal, told) = shutdown::channel();
        let scanning = with_heartbeats(scan, &mut client, &agent, told.clone());
        let (scanned, ()) = tokio::join!(scanning, watch);
        assert_eq!(scanned.unwrap(), "scanned");

        signal.pull();
        let scan = tokio::spawn(std::future::pending::<()>());
        let ended = with_heartbeats(scan, &mut client, &agent, told).await;
        assert!(matches!(ended, Err(AgentError::Ended)));
        assert_eq!(watcher.status().await.unwrap().joined[0].state, fleet::State::Drained);
        trigger.pull();
        manager.await.unwrap().unwrap();
    }

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
            further: FurtherDatasets::NONE,
        };
        check_order(own.fingerprint(), &own).unwrap();
        let others = [
            Spec { samples: 99, ..own },
            Spec { seed: 1, ..own },
            Spec { batch_size: 11, ..own },
            Spec { world: World { nodes: 2, ranks_per_node: 1 }, ..own },
        ];
        for assigned in others {
            let error = check_order(assigned.fingerprint(), &own).unwrap_err();
            assert!(matches!(error, JoinError::OtherOrder { samples: 100 }), "{error}");
            assert!(error.is_input(), "another attempt brings the same");
        }
    }
}
