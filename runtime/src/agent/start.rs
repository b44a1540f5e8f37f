//! Puts an agent together: data plane, hand-off, session.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
};

use tierfeed_core::{
    fleet::{Ledger, Origin},
    id::{NodeId, Rank},
    session::Session,
    tier::{Kind, Locality},
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{Limits as ClientLimits, Server};
use tierfeed_prefetcher::{
    plane::{DataPlane, Settings as PlaneSettings, Verify},
    tier::Backing,
};
use tierfeed_resource_gatherer::{Sysroot, Watch};
use tierfeed_workload_analyzer::{Job, job};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    Agent, AgentError, Attendance, Completions, Jobs, Limits, Loans, Looks, Phase, Publications,
    Readers, Starvation,
    fetcher::fetcher,
    join::Joined,
    observe::{self, Observer},
};
use crate::{
    briefing, descriptors,
    footprint::Footprint,
    pauses::Pauses,
    places::{Layout, Place},
    published::PublishedOrders,
    run_dir::RunDir,
    scratch::Scratch,
    shutdown::Shutdown,
    trainer_file::TrainerFile,
};

/// What clients did and the loop has not seen yet; the thread of the hand-off waits beyond.
const CLIENT_EVENTS_MAX: usize = 4096;

/// Samples that are staged between two looks at events: with millions of them in memory, and a busy
/// machine, a millisecond.
const STAGED_AT_A_TIME: NonZeroU32 = NonZeroU32::new(64).expect("not zero");

#[expect(
    clippy::too_many_lines,
    reason = "one list of the parts of an agent, in the order of their making"
)]
pub(super) async fn agent(
    joined: Joined,
    run_dir: RunDir,
    observe: observe::Settings,
    shutdown: Shutdown,
) -> Result<Agent, AgentError> {
    let Joined { job, job_file, index, index_path, node, layout, .. } = joined;
    let Joined { assignment, post, link, clock, occupied, .. } = joined;
    let index_path = std::path::absolute(&index_path).unwrap_or(index_path);
    TrainerFile::remove(&run_dir.trainer_file())?;
    let orders = PublishedOrders::new(run_dir.path().join("published"));
    if let Err(error) = orders.clear() {
        tracing::warn!(%error, "published orders of an earlier run are left behind");
    }
    descriptors::raise_limit();
    let published = Publications::new(orders, assignment.order, assignment.node);
    let completions = Completions::new(clock);
    let finished = completions.clone();
    let settings = plane_settings(&job, &layout);
    let cold = fetcher(&job, &index, settings.operations_max)?;
    let plane =
        DataPlane::start(&settings, cold.fetcher, move |op, outcome| finished.push(op, outcome))?;
    let shelves = plane.shelves();
    let layout =
        layout.without_shelves(|at| shelves.iter().any(|shelf| usize::from(shelf.tier().0) == at));
    layout.places.iter().for_each(log_tier);
    layout.idle(&job).iter().for_each(|idle| tracing::warn!("{idle}"));
    let observer =
        Observer::start(observe, &run_dir, &job.name, assignment.node, &layout, clock).await?;
    plane.record_with(Arc::clone(&observer.recorder));
    let (events, clients) = mpsc::channel(CLIENT_EVENTS_MAX);
    // Nobody receives only when the agent ends: then nobody needs the event.
    let forward = Box::new(move |event| drop(events.blocking_send(event)));
    let limits = ClientLimits {
        published_samples_max: assignment.order.samples_per_rank(),
        ..ClientLimits::STANDARD
    };
    let settings = layout.session(&job, index.sizes().collect(), assignment.order, assignment.node);
    let limits_of_tiers = Limits::of(&layout, &settings);
    let session = Session::new(settings).with_slices(STAGED_AT_A_TIME);
    let briefing = briefing::of(
        &job,
        Rank(0),
        assignment.order,
        &index,
        index_path.clone(),
        assignment.staged_batches,
    );
    let budget = layout.memory_budget(&node);
    let scratch = job_scratch(&job, assignment.node)?;
    let socket = run_dir.agent_socket();
    let server = Server::bind(&socket, limits, post, forward)?;
    // As many as the layout has, which keeps to the limit.
    drop(server.show(shelves));
    // Whoever finds the file finds an agent that listens.
    let scratch_path = scratch.as_ref().map(|scratch| scratch.path().to_owned());
    let NodeId(node_number) = assignment.node;
    let attendance = Attendance::new(assignment.order.world, assignment.node);
    TrainerFile {
        socket,
        job: job_file,
        index: index_path,
        node: node_number,
        scratch: scratch_path,
    }
    .write(&run_dir.trainer_file())?;
    Ok(Agent {
        loans: Loans::new(Ledger::of(&limits_of_tiers.lends(), layout.chunk), layout.chunk),
        lending: JoinSet::new(),
        limits: limits_of_tiers,
        looks: Looks::new(Watch::new(Sysroot::live())?, directories(&layout), scratch),
        observer,
        footprint: Footprint { budget_bytes: budget.0, ..Footprint::default() },
        holders: std::collections::BTreeMap::new(),
        readers: Readers::default(),
        starvation: Starvation::default(),
        training: None,
        attendance,
        phase: Phase::Serving,
        is_superseded: false,
        _occupied: occupied,
        job,
        index,
        node,
        layout,
        assignment,
        run_dir,
        briefing,
        session,
        plane,
        cold_engine: cold.engine,
        requests: cold.requests,
        server,
        clients,
        completions,
        jobs: Jobs::new(),
        link,
        published,
        clock,
        staging_told: Nanoseconds(0),
        next_tick: Instant::now(),
        pauses: Pauses::default(),
        shutdown,
    })
}

/// The directory for the trainer's own files, if the job asks for one.
fn job_scratch(job: &Job, node: NodeId) -> Result<Option<Scratch>, AgentError> {
    let Some(wish) = job.job_scratch else { return Ok(None) };
    let tier = job.tiers.iter().find(|tier| tier.kind == Kind::Scratch);
    let Some(path) = tier.and_then(|tier| tier.path.as_deref()) else { return Ok(None) };
    Ok(Some(Scratch::prepare(path, &job.name, node, wish)?))
}

/// Where the tiers lie that are directories.
fn directories(layout: &Layout) -> Vec<PathBuf> {
    let backings = layout.places.iter().map(|place| &place.settings.backing);
    let directory = |backing: &Backing| match backing {
        Backing::Directory(path) => Some(path.clone()),
        Backing::Memory(_) | Backing::Shelf(..) => None,
    };
    backings.filter_map(directory).collect()
}

fn plane_settings(job: &Job, layout: &Layout) -> PlaneSettings {
    // Every staged sample may be read and, as long as it is staged, copied to each tier.
    let staged = u64::from(job.batch_size)
        * u64::from(job.prefetch_batches)
        * u64::from(job.world.ranks_per_node);
    let operations = staged * (2 + layout.places.len() as u64) + 64;
    let operations = usize::try_from(operations).unwrap_or(usize::MAX);
    PlaneSettings {
        tiers: layout.places.iter().map(|it| it.settings.clone()).collect(),
        chunk: layout.chunk,
        staging: Locality::Anywhere,
        operations_max: NonZeroUsize::new(operations).unwrap_or(NonZeroUsize::MIN),
        verify: match job.verify {
            job::Verify::Shared => Verify::Shared,
            job::Verify::Always => Verify::Always,
        },
    }
}

fn log_tier(place: &Place) {
    let tier = place.settings.kind.name();
    let Bytes(cache) = place.cache;
    let (budget, cache) = (place.budget, Bytes(cache));
    match place.origin {
        Origin::Real => tracing::info!(tier, %budget, %cache, "tier"),
        Origin::Emulated => tracing::info!(tier, %budget, %cache, emulated = true, "tier"),
    }
    if let Some(choice) = &place.direct {
        tracing::info!(tier, direct_use = %choice, "tier");
    }
}
