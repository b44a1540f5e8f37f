//! Builds an agent: data plane, hand-off, session.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
    sync::Arc,
};

use tierfeed_core::{
    budget::Holdings,
    fleet::{Applied, Assignment, Ledger, Origin, launch::JobWorld, schedule::Schedule},
    id::{Epoch, NodeId, NumaNode, Rank},
    order::{Spec, World},
    retention::in_place,
    session::{Event as SessionEvent, LookAhead, Session},
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::Catalog;
use tierfeed_handoff::{Briefing, ClientEvent, Limits as ClientLimits, Server, SharedTier};
use tierfeed_numa_memory::RegionPart;
use tierfeed_prefetcher::{
    plane::{DataPlane, Settings as PlaneSettings, Verify},
    tier::Backing,
};
use tierfeed_resource_gatherer::{Sysroot, Watch};
use tierfeed_workload_analyzer::Job;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    Agent, AgentError, Completions, Jobs, Loans, Monitor, ObserveSettings, Phase, Publications,
    Ranks, Readers, Settings, Starvation, briefing,
    fetcher::{Cold, fetcher},
    join::Joined,
    memory::Chunks,
    observer::Observer,
    page_cache,
    published::PublishedOrders,
    ram_disk::RamDisk,
    schedules::Schedules,
    scratch::Scratch,
    sockets::Sockets,
    trainers::Training,
    transforms,
};
use crate::{
    clock::Clock,
    dataset::few_samples,
    descriptors,
    layout::{self, Layout, LeftOut, Lengths, MemoryNodes, Node, StagingPart, TierLayout},
    observe::{footprint::Footprint, pauses::Pauses},
    run_dir::{RunDir, trainer_file::TrainerFile},
    shutdown::Shutdown,
};

/// Client events that the loop has not taken yet; beyond, the hand-off thread blocks.
const CLIENT_EVENTS_MAX: usize = 4096;

/// Samples that are staged before the loop handles other events: a millisecond, with millions of samples
/// in memory and a busy machine.
const STAGED_AT_A_TIME: NonZeroU32 = NonZeroU32::new(64).expect("not zero");

/// Starts an agent. At the end it writes the file by which trainers find it and can connect.
pub(super) async fn agent(
    joined: Joined,
    Settings { run_dir, observe, transform_worker, memory, .. }: Settings,
    shutdown: Shutdown,
) -> Result<Agent, AgentError> {
    let Joined { job, job_file, catalog, prepared, index_path, node, layout, order, .. } = joined;
    let Joined { assignment, post, manager, applicant, secret, clock, run_dir_lock, .. } = joined;
    let (number, completions) = (assignment.node, Completions::new(clock));
    let published = publications(&run_dir, order, number)?;
    let (layout, ram_disk, scratch) = with_disks(&job, &node, layout, number)?;
    let sockets = sockets(&node, order.world, number);
    let (plane, cold, layout) = start_plane(&job, &catalog, layout, &sockets, &completions)?;
    transforms::start(&job, order, &assignment.schedule, transform_worker, &plane)?;
    page_cache::set_first_limit(cold.page_cache.as_deref(), &node, &layout, order);
    let observer = observer(observe, &run_dir, &job, number, &layout, &plane, clock).await?;
    let (mut session, holdings) = session(&job, &catalog, prepared, &layout, (order, number));
    let briefing = first_briefing(&job, order, &catalog, &index_path, &layout);
    let socket = run_dir.agent_socket();
    let (server, clients) = listen(&socket, order, post, plane.shared_tiers())?;
    let own = scratch.as_ref().map(|scratch| scratch.path().to_owned());
    TrainerFile { socket, job: job_file, index: index_path, node: number.0, scratch: own }
        .write(&run_dir.trainer_file())?;
    Ok(Agent {
        began: follow_schedule(&mut session, order.start.epoch, &assignment, clock.now()),
        schedules: Schedules::of(&assignment.schedule),
        loans: loans(&holdings, layout.chunk),
        lending: JoinSet::new(),
        holdings,
        monitor: monitor(&layout, memory, scratch)?,
        observer,
        footprint: footprint(&layout, &node),
        connections: std::collections::BTreeMap::new(),
        readers: Readers::default(),
        sockets,
        ram_disk,
        applicant,
        peers: None,
        starvation: Starvation::default(),
        training: Training::awaited_since(clock.now()),
        ranks: Ranks::new(order.world, number),
        phase: Phase::Serving,
        is_superseded: false,
        _run_dir_lock: run_dir_lock,
        job,
        catalog,
        node,
        layout,
        assignment,
        order,
        run_dir,
        briefing,
        session,
        plane,
        cold,
        server,
        clients,
        completions,
        jobs: Jobs::new(),
        manager,
        published,
        clock,
        staging_told: Nanoseconds(0),
        next_tick: Instant::now(),
        next_look: None,
        is_report_due: true,
        pauses: Pauses::default(),
        shutdown,
    }
    .with_peers(secret))
}

/// Only the first node warns, for all.
pub(super) fn warn_of_few_samples(Joined { job, assignment, order, .. }: &Joined) {
    let (format, ranks) = (&job.dataset.format, order.world.ranks());
    let warning = few_samples(format, order.samples, ranks, order.batch_size);
    let warning = warning.filter(|_| assignment.node == NodeId(0));
    warning.into_iter().for_each(|warning| tracing::warn!("{warning}"));
}

/// Starts what observes the agent, and has the data plane record its operations there.
async fn observer(
    settings: ObserveSettings,
    run_dir: &RunDir,
    job: &Job,
    node: NodeId,
    layout: &Layout,
    plane: &DataPlane,
    clock: Clock,
) -> Result<Observer, AgentError> {
    let observer = Observer::start(settings, run_dir, &job.name, node, layout, clock).await?;
    plane.record_with(Arc::clone(&observer.recorder));
    Ok(observer)
}

/// Has the session follow the schedule that the agent got; returns since when it does.
fn follow_schedule(
    session: &mut Session,
    from: Epoch,
    assignment: &Assignment,
    now: Nanoseconds,
) -> Applied {
    let Schedule { generation, .. } = assignment.schedule;
    let points = assignment.schedule.points();
    session.handle(SessionEvent::Scheduled { generation, from, points }, now);
    Applied { generation, epoch: from }
}

/// The writer of published orders. Removes those of an earlier run, and the file by which trainers found that
/// run.
fn publications(run_dir: &RunDir, order: Spec, node: NodeId) -> Result<Publications, AgentError> {
    TrainerFile::remove(&run_dir.trainer_file())?;
    let orders = PublishedOrders::new(run_dir.path().join("published"));
    if let Err(error) = orders.clear() {
        tracing::warn!(%error, "published orders of an earlier run are left behind");
    }
    Ok(Publications::new(orders, order, node))
}

fn start_plane(
    job: &Job,
    catalog: &Catalog,
    layout: Layout,
    sockets: &Sockets,
    completions: &Completions,
) -> Result<(DataPlane, Cold, Layout), AgentError> {
    descriptors::raise_limit();
    let settings = plane_settings(job, &layout, sockets);
    let (fetcher, cold) = fetcher(job, catalog, settings.operations_max)?;
    let finished = completions.clone();
    let plane = DataPlane::start(&settings, fetcher, move |ended| finished.push(ended))?;
    if let Some(files) = &cold.cached_files {
        plane.drop_pages_with(Arc::clone(files) as _);
    }
    let layout = announced(job, layout, &plane.shared_tiers());
    Ok((plane, cold, layout))
}

/// The layout without direct use where memory cannot be mapped; logs each tier.
fn announced(job: &Job, layout: Layout, shared_tiers: &[SharedTier]) -> Layout {
    let layout = layout
        .without_direct_use(|at| shared_tiers.iter().any(|it| usize::from(it.tier().0) == at));
    layout.tiers.iter().for_each(log_tier);
    for LeftOut { kind, standing, .. } in &layout.left_out {
        tracing::warn!(tier = kind.name(), "{}", standing.decision);
    }
    let cold = &layout.cold;
    let rate = cold.bandwidth.map(|rate| rate.to_string());
    let latency = cold.latency.map(|latency| latency.to_string());
    tracing::info!(latency, rate, figures = cold.from, "cold store");
    layout.unused_tiers(job).iter().for_each(|unused| tracing::warn!("{unused}"));
    layout
}

/// Listens for trainers, which may read `shared_tiers` in place; their events go to `events`.
fn listen(
    socket: &Path,
    order: Spec,
    post: JobWorld,
    shared_tiers: Vec<SharedTier>,
) -> Result<(Server, mpsc::Receiver<ClientEvent>), AgentError> {
    let (events, clients) = mpsc::channel(CLIENT_EVENTS_MAX);
    let limits =
        ClientLimits { published_samples_max: order.samples_per_rank(), ..ClientLimits::STANDARD };
    // The receiver is dropped when the agent ends: then events are discarded.
    let forward = Box::new(move |event| drop(events.blocking_send(event)));
    let server = Server::bind(socket, limits, post, forward)?;
    // The layout has no more than the hand-off's limit.
    drop(server.share_tiers(shared_tiers));
    Ok((server, clients))
}

fn session(
    job: &Job,
    catalog: &Catalog,
    prepared: Option<Arc<[Bytes]>>,
    layout: &Layout,
    (order, node): (Spec, NodeId),
) -> (Session, Holdings) {
    let lengths = Lengths { stored: catalog.sizes().collect(), prepared };
    let settings = layout.session(job, lengths, order, node);
    let holdings = layout.holdings(&settings);
    (Session::new(settings).with_slices(STAGED_AT_A_TIME), holdings)
}

fn loans(holdings: &Holdings, chunk: Bytes) -> Loans<Chunks> {
    // What staging takes of the tier is not lent.
    let lends = holdings.rooms().find(|(kind, _)| *kind == Kind::CxlMemory);
    Loans::new(Ledger::of(lends, chunk), chunk)
}

/// The directory for the trainer's own files, if the job asks for one, also on a tier that is left out as a
/// cache.
fn job_scratch(
    job: &Job,
    ram_disk: Option<&RamDisk>,
    node: NodeId,
) -> Result<Option<Scratch>, AgentError> {
    let Some(request) = job.job_scratch else { return Ok(None) };
    let tier = job.tiers.iter().find(|tier| tier.kind == Kind::Scratch);
    let named =
        tier.and_then(|tier| Some((tier.path.as_deref()?, tier.numa_nodes.first().copied())));
    let Some(place) = ram_disk.map(RamDisk::place).or(named) else { return Ok(None) };
    Ok(Some(Scratch::prepare(place, &job.name, node, request)?))
}

/// The layout with the RAM disk of the agent, and the directory for files of the job, where the job has them.
fn with_disks(
    job: &Job,
    node: &Node,
    layout: Layout,
    number: NodeId,
) -> Result<(Layout, Option<RamDisk>, Option<Scratch>), AgentError> {
    let (layout, ram_disk) = with_ram_disk(job, node, layout)?;
    let scratch = job_scratch(job, ram_disk.as_ref(), number)?;
    Ok((layout, ram_disk, scratch))
}

/// Makes the RAM disk of a scratch tier without a path, if its cache is used or files of the job shall lie there.
fn with_ram_disk(
    job: &Job,
    node: &Node,
    mut layout: Layout,
) -> Result<(Layout, Option<RamDisk>), AgentError> {
    let locality = layout::ram_disk_locality(&job.tiers, node.inventory());
    let Some(locality) = locality.filter(|_| job.has_own_ram_disk()) else {
        return Ok((layout, None));
    };
    let chunk = layout.chunk;
    let beside = job.job_scratch.map(|scratch| scratch.size);
    let size = match (layout.scratch_mut(), beside) {
        (Some(TierLayout { share: None, budget, .. }), _) => *budget,
        // A share may grow, and the budget keeps it within its part.
        (Some(_), _) => node.memory_at(locality),
        (None, Some(size)) => size,
        (None, None) => return Ok((layout, None)),
    };
    let disk = RamDisk::make(node.ram_disk(), size.max(chunk), locality)?;
    if let Some(tier) = layout.scratch_mut() {
        tier.settings.backing = Backing::RamDisk(disk.path().to_owned(), locality);
    }
    Ok((layout, Some(disk)))
}

fn footprint(layout: &Layout, node: &Node) -> Footprint {
    Footprint { budget_bytes: layout.memory_budget(node).0, ..Footprint::default() }
}

/// The briefing of trainers, but for the rank of each.
fn first_briefing(
    job: &Job,
    order: Spec,
    catalog: &Catalog,
    index_path: &Path,
    layout: &Layout,
) -> Briefing {
    briefing::of(job, Rank(0), order, catalog, index_path.to_owned(), layout.staged.depth)
}

fn sockets(node: &Node, world: World, number: NodeId) -> Sockets {
    log_memory_nodes(node);
    Sockets::new(node, world, number)
}

/// Watches what is free, within the memory that a batch system gave the job.
fn monitor(
    layout: &Layout,
    memory: Option<Bytes>,
    scratch: Option<Scratch>,
) -> Result<Monitor, AgentError> {
    let watch = Watch::new(Sysroot::live())?.within(memory);
    Ok(Monitor::new(watch, directories(layout), scratch))
}

/// Logs which memory nodes the job has, where there is a choice.
fn log_memory_nodes(node: &Node) {
    let numbers = |nodes: &[NumaNode]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
    let unknown = node.unknown_nodes();
    if !unknown.is_empty() {
        tracing::info!(
            unknown = ?numbers(&unknown),
            "NUMA nodes without CPUs that are not used, because neither DAX, CXL nor HMAT says what their \
             memory is; name them as tiers.cxl-memory.numa_nodes to use them"
        );
    }
    let MemoryNodes { staging, remote, .. } = node.memory_nodes();
    if !staging.is_empty() {
        let staging = numbers(staging);
        tracing::info!(?staging, "NUMA nodes of main memory for this job");
    }
    if !remote.is_empty() {
        let remote = numbers(remote);
        tracing::info!(
            ?remote,
            "NUMA nodes that no process of this job may run on; their memory is a tier behind main memory"
        );
    }
}

fn directories(layout: &Layout) -> Vec<PathBuf> {
    let directories = layout.tiers.iter().filter_map(|place| place.settings.backing.directory());
    directories.map(Path::to_owned).collect()
}

fn plane_settings(job: &Job, layout: &Layout, sockets: &Sockets) -> PlaneSettings {
    let further = job.further.iter().map(|dataset| dataset.batch_size);
    let largest = further.fold(job.batch_size, u32::max);
    // Every staged sample may be read and, as long as it is staged, copied to each tier.
    let staged =
        u64::from(largest) * u64::from(layout.staged.depth) * u64::from(job.world.ranks_per_node);
    // What is fetched ahead may fill the window of the cold store beside them.
    let ahead = match job.look_ahead {
        LookAhead::Off => 0,
        LookAhead::Auto | LookAhead::Room(_) => u64::from(layout.staged.windows.cold_max),
    };
    let operations = staged * (2 + layout.tiers.len() as u64) + ahead + 64;
    let operations = usize::try_from(operations).unwrap_or(usize::MAX);
    let first = layout.staging.first();
    let in_main = usize::from(first.is_some_and(|part| part.kind == Kind::MainMemory));
    PlaneSettings {
        tiers: layout.tiers.iter().map(|it| it.settings.clone()).collect(),
        chunk: layout.chunk,
        staging: sockets.localities(),
        staging_behind: layout.staging.iter().skip(in_main).map(region_part).collect(),
        operations_max: NonZeroUsize::new(operations).unwrap_or(NonZeroUsize::MIN),
        verify: match job.verify {
            in_place::Verify::Shared => Verify::Shared,
            in_place::Verify::Always => Verify::Always,
        },
    }
}

fn region_part(part: &StagingPart) -> RegionPart {
    RegionPart { len: part.len, locality: part.locality }
}

fn log_tier(place: &TierLayout) {
    let tier = place.settings.kind.name();
    let Bytes(cache) = place.cache;
    let (budget, cache) = (place.budget, Bytes(cache));
    let (place_decided, figures) = (&place.standing.decision, &place.standing.figures.from);
    match place.origin {
        Origin::Real => {
            tracing::info!(tier, %budget, %cache, place = place_decided, figures, "tier");
        }
        Origin::Emulated => {
            tracing::info!(tier, %budget, %cache, emulated = true, place = place_decided, "tier");
        }
    }
    if let Some(choice) = &place.direct {
        tracing::info!(tier, direct_use = %choice, "tier");
    }
}
