//! The end of an agent: it stops its threads and tasks and writes the report.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use tierfeed_core::{
    fleet::{self, Applied, Assignment, Origin, TransformProgress, schedule::WriteRates},
    id::{Rank, SampleId},
    order::Spec,
    session::{Progress, Session},
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::{Catalog, read::page_cache::PageCacheFigures, source::Location};
use tierfeed_handoff::Server;
use tierfeed_numa_memory::Placement;
use tierfeed_prefetcher::{
    plane::{Counters, DataPlane, Usage, WriteModes},
    transforms::Counts,
};
use tierfeed_workload_analyzer::Job;
use tokio::time::timeout;

use super::{
    Agent, AgentError, fetcher::Cold, limits::CacheRange, monitor::Monitor, peers::Peers,
    ranks::Ranks, readers::Readers, schedules::Schedules, sockets::Sockets, starvation::Starvation,
    trainers::TrainingSpan, transforms,
};
use crate::{
    layout::{self, Layout, LeftOut, StagingPart, Standing, TierLayout},
    observe::report::{
        ColdStoreEntry, Facts, PageCacheEntry, ReaderStats, Report, ScratchEntry, StagingEntry,
        StagingPartEntry, TierEntry, WritersEntry, order_digest,
    },
    observe::{footprint::Footprint, pauses::Pauses},
    run_dir::RunDir,
};

/// A read that hangs in the kernel cannot be cancelled, and the report must not wait for it.
const THREADS_END_WITHIN: Duration = Duration::from_secs(4);

/// How long the digest of the report may take, which permutes orders again.
const DIGEST_WITHIN: Nanoseconds = Nanoseconds(3_000_000_000);

pub(super) async fn conclude(agent: Agent) -> Result<Option<Report>, AgentError> {
    let Agent { server, clients, plane, manager, mut lending, session, monitor, published, .. } =
        agent;
    // The hand-off thread may be blocked on this queue.
    drop(clients);
    lending.abort_all();
    let mut footprint = agent.footprint;
    let reasons = reasons(session.progress(), &plane);
    let used = end_threads(server, plane).await;
    used.iter().for_each(|used| footprint.note(&used.usage, agent.loans.granted()));
    let copyouts = agent.observer.copyouts;
    agent.observer.end();
    let scratch = end_scratch(monitor).await;
    drop(agent.ram_disk);
    let published = timeout(THREADS_END_WITHIN, published.end()).await.ok();
    let progress = session.progress();
    let cached = agent.cold.page_cache_figures();
    let counts = used.as_ref().and_then(|used| used.transforms);
    let transforms = transforms::progress(counts, agent.training.span);
    let rooms = agent.limits.rooms();
    manager.end(&summary(progress, rooms, agent.began, cached, transforms)).await;
    if agent.is_superseded {
        return Ok(None);
    }
    let order = agent.order;
    let digest_until = Nanoseconds(agent.clock.now().0 + DIGEST_WITHIN.0);
    let is_in_time = || agent.clock.now() < digest_until;
    let known = Known {
        job: &agent.job,
        catalog: &agent.catalog,
        layout: &agent.layout,
        assignment: &agent.assignment,
        order,
        began: agent.began,
        session: &session,
        schedules: &agent.schedules,
        ranks: &agent.ranks,
        readers: &agent.readers,
        starvation: &agent.starvation,
        sockets: &agent.sockets,
        cold: &agent.cold,
        peers: agent.peers.as_ref(),
        training: agent.training.span,
        pauses: &agent.pauses,
        ranges: agent.limits.ranges(),
        copyouts,
        memory: footprint,
        order_digest: order_digest(&order, &progress.handed, &published, is_in_time),
        transforms: counts,
        reasons,
        used: used.as_ref(),
        scratch,
    };
    let report = known.report();
    write(&report, &agent.run_dir)?;
    if let Some(Err(error)) = published.map(|it| it.clear()) {
        tracing::debug!(%error, "published orders are left behind");
    }
    Ok(Some(report))
}

/// The inputs of a report, at the end or while the agent runs.
struct Known<'a> {
    job: &'a Job,
    catalog: &'a Catalog,
    layout: &'a Layout,
    assignment: &'a Assignment,
    order: Spec,
    began: Applied,
    session: &'a Session,
    schedules: &'a Schedules,
    ranks: &'a Ranks,
    readers: &'a Readers,
    starvation: &'a Starvation,
    sockets: &'a Sockets,
    cold: &'a Cold,
    peers: Option<&'a Peers>,
    training: Option<TrainingSpan>,
    pauses: &'a Pauses,
    ranges: &'a [CacheRange],
    copyouts: u64,
    memory: Footprint,
    order_digest: Option<u64>,
    used: Option<&'a Used>,
    scratch: Option<ScratchEntry>,
    transforms: Option<Counts>,
    reasons: BTreeMap<SampleId, String>,
}

impl Agent {
    /// The report so far. It lacks what takes long to find out: the digest of the order, and how memory is
    /// written.
    pub(super) fn report_so_far(&self) -> Report {
        let known = Known {
            job: &self.job,
            catalog: &self.catalog,
            layout: &self.layout,
            assignment: &self.assignment,
            order: self.order,
            began: self.began,
            session: &self.session,
            schedules: &self.schedules,
            ranks: &self.ranks,
            readers: &self.readers,
            starvation: &self.starvation,
            sockets: &self.sockets,
            cold: &self.cold,
            peers: self.peers.as_ref(),
            training: self.training.span,
            pauses: &self.pauses,
            ranges: self.limits.ranges(),
            copyouts: self.observer.copyouts,
            memory: self.footprint.clone(),
            order_digest: None,
            used: None,
            scratch: None,
            transforms: self.plane.transform_counts(),
            reasons: reasons(self.session.progress(), &self.plane),
        };
        known.report()
    }
}

impl Known<'_> {
    fn report(self) -> Report {
        let Self { job, layout, assignment, order, session, .. } = self;
        let progress = session.progress();
        let kinds: Vec<Kind> = layout.tiers.iter().map(|it| it.settings.kind).collect();
        let speed = job.cold.speed;
        let facts = Facts {
            job: &job.name,
            node: assignment.node.0,
            generation: assignment.generation,
            ranks: self.ranks.entry(),
            policy: assignment.policy.name(),
            order,
            further: job.further.iter().map(|dataset| dataset.name.as_str()).collect(),
            progress,
            order_digest: self.order_digest,
            reader_stats: ReaderStats {
                starved: self.starvation.mean(),
                ..self.readers.reader_stats()
            },
            wasted: session.wasted(),
            staged_batches: session.depth(),
            generations: self.schedules.entries(&applied(progress, self.began)),
            look_ahead: job.look_ahead,
            cycle: session.cycle(),
            chunk: layout.chunk,
            session_tiers: &kinds,
            tiers: tiers(job, layout, (progress, self.ranges), self.used),
            staging: staging(layout, order, self.sockets, self.used),
            cold: speed.map_or(BytesPerSecond(0), |speed| speed.bandwidth),
            cold_store_emulated: speed.is_some(),
            cold_engine: &self.cold.engine,
            cold_store: cold_store(layout),
            cold_reads_at_a_time: session.cold_window() as u64,
            requests: self.cold.requests.as_ref().map(|counters| counters.figures()),
            peers: self.peers.map(Peers::entries).unwrap_or_default(),
            page_cache: page_cache(job, self.cold.page_cache_figures()),
            transform: transforms::facts(job, &assignment.schedule, self.transforms),
            reasons: self.reasons,
            copyouts: self.copyouts,
            step_time: job.step_time,
            wall: self.training.map_or(Nanoseconds(0), TrainingSpan::len),
            pauses: self.pauses.into(),
            head_start: self.training.map_or(Nanoseconds(0), |span| span.head_start),
            cold_before: self.training.map_or(Bytes(0), |span| span.cold_before),
            transformed_before: self.training.map_or(Nanoseconds(0), |it| it.transformed_before),
            processors: std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64,
            memory: self.memory,
            scratch: self.scratch,
        };
        Report::of(facts, |sample| self.catalog.object_name(sample))
    }
}

/// The reasons why samples that a report lists could not be handed over.
fn reasons(progress: &Progress, plane: &DataPlane) -> BTreeMap<SampleId, String> {
    let faults = progress.faults.iter();
    faults.filter_map(|(sample, _)| Some((*sample, plane.reason(*sample)?))).collect()
}

fn write(report: &Report, run_dir: &RunDir) -> Result<(), AgentError> {
    report.write(&run_dir.report())?;
    if let Err(error) = report.write_page(&run_dir.report_page()) {
        tracing::warn!(%error, "there is no page of the report");
    }
    Ok(())
}

fn cold_store(Layout { cold, .. }: &Layout) -> ColdStoreEntry {
    ColdStoreEntry {
        latency_ns: cold.latency.map(|it| it.0),
        bandwidth_bytes_per_s: cold.bandwidth.map(|it| it.0),
        figures_from: cold.from.clone(),
    }
}

struct Used {
    usage: Usage,
    write_modes: WriteModes,
    counters: Counters,
    placements: BTreeMap<Rank, Placement>,
    transforms: Option<Counts>,
}

/// Ends the threads of hand-off and data plane; returns what the data plane held, if they ended in time.
async fn end_threads(server: Server, plane: DataPlane) -> Option<Used> {
    let ended = tokio::task::spawn_blocking(move || {
        server.shutdown();
        let ended = Used {
            usage: plane.usage(),
            write_modes: plane.write_modes(),
            counters: plane.counters(),
            placements: plane.staging_placements(),
            transforms: plane.transform_counts(),
        };
        plane.shutdown();
        ended
    });
    match timeout(THREADS_END_WITHIN, ended).await {
        Ok(Ok(ended)) => return Some(ended),
        Ok(Err(error)) => tracing::warn!(%error, "a thread did not end well"),
        Err(_) => {
            tracing::warn!("threads still wait for storage; the report is written without them");
        }
    }
    None
}

/// Ends the scratch of the job, whose file system may hang.
async fn end_scratch(monitor: Monitor) -> Option<ScratchEntry> {
    let ended = async {
        let scratch = monitor.end().await?;
        tokio::task::spawn_blocking(move || scratch.end()).await.ok()
    };
    timeout(THREADS_END_WITHIN, ended).await.unwrap_or_else(|_| {
        tracing::warn!("the scratch of the job does not answer; it is left behind");
        None
    })
}

/// The page cache of a job whose cold store is files.
fn page_cache(job: &Job, figures: Option<PageCacheFigures>) -> Option<PageCacheEntry> {
    let is_files = matches!(job.dataset.source, Location::Path(_));
    is_files.then(|| PageCacheEntry::of(job.cold.page_cache.name(), figures))
}

fn staging(layout: &Layout, order: Spec, sockets: &Sockets, used: Option<&Used>) -> StagingEntry {
    let modes = used.map(|used| &used.write_modes);
    let placement = |at: usize| Some(*modes?.staging_placements.get(at)?);
    let part = |(at, part): (usize, &StagingPart)| {
        let entry = StagingPartEntry {
            tier: part.kind.name(),
            bytes: part.len.0.saturating_mul(order.world.ranks_per_node.into()),
            emulated: part.origin == Origin::Emulated,
            placement: None,
        };
        entry.placed(placement(at))
    };
    let parts = layout.staging.iter().enumerate().map(part).collect();
    let no_placements = BTreeMap::new();
    let ranks = sockets.entries(used.map_or(&no_placements, |used| &used.placements));
    StagingEntry::of(modes.and_then(|modes| modes.staging), parts, ranks)
}

fn tiers(
    job: &Job,
    layout: &Layout,
    (progress, ranges): (&Progress, &[CacheRange]),
    used: Option<&Used>,
) -> Vec<TierEntry> {
    let most =
        |at: usize| progress.epochs.iter().filter_map(|it| it.written.get(at)).max().copied();
    let entry = |(at, tier): (usize, &TierLayout)| {
        let planned = planned(tier, layout::writes_per_epoch(job, tier.settings.kind));
        let planned = match ranges.get(at) {
            Some(CacheRange { least, most }) => {
                TierEntry { cache_least_bytes: least.0, cache_most_bytes: most.0, ..planned }
            }
            None => planned,
        };
        match used
            .and_then(|used| Some((*used.write_modes.tiers.get(at)?, used.counters.tiers.get(at)?)))
        {
            Some((way, traffic)) => planned.used(way, traffic, most(at).unwrap_or_default()),
            None => planned,
        }
    };
    let used = layout.tiers.iter().enumerate().map(entry);
    used.chain(layout.left_out.iter().map(left_out)).collect()
}

fn left_out(tier: &LeftOut) -> TierEntry {
    let entry = TierEntry {
        name: tier.kind.name(),
        budget_bytes: tier.budget.0,
        emulated: tier.origin == Origin::Emulated,
        ..TierEntry::default()
    };
    standing_at(entry, &tier.standing)
}

fn planned(tier: &TierLayout, writes_per_epoch: Option<Bytes>) -> TierEntry {
    let writers = |measured: WriteRates| WritersEntry {
        one_bytes_per_s: measured.one.0,
        two_bytes_per_s: measured.two.0,
    };
    let entry = TierEntry {
        name: tier.settings.kind.name(),
        budget_bytes: tier.budget.0,
        cache_bytes: tier.cache.0,
        cache_least_bytes: tier.cache.0,
        cache_most_bytes: tier.cache.0,
        adapts: tier.share.is_some(),
        emulated: tier.origin == Origin::Emulated,
        copy_threads: tier.settings.copy_threads.get() as u64,
        writers_measured: tier.writers.map(writers),
        writes_per_epoch_bytes: writes_per_epoch.map(|bytes| bytes.0),
        direct: tier.direct.map(Into::into),
        ..TierEntry::default()
    };
    standing_at(entry, &tier.standing)
}

fn standing_at(entry: TierEntry, standing: &Standing) -> TierEntry {
    TierEntry {
        latency_ns: standing.figures.latency.map(|it| it.0),
        bandwidth_bytes_per_s: standing.figures.bandwidth.map(|it| it.0),
        figures_from: standing.figures.from.clone(),
        role: standing.role.name(),
        decision: standing.decision.clone(),
        ..entry
    }
}

/// The progress that the manager gets.
pub(super) fn summary(
    progress: &Progress,
    rooms: Vec<(Kind, Bytes)>,
    began: Applied,
    cached: Option<PageCacheFigures>,
    transforms: Option<TransformProgress>,
) -> fleet::Progress {
    let epochs = &progress.epochs;
    let sum = |of: fn(&tierfeed_core::session::EpochProgress) -> u64| epochs.iter().map(of).sum();
    let tier_read = |(at, (kind, _)): (usize, &(Kind, Bytes))| {
        let bytes = epochs.iter().filter_map(|epoch| epoch.from_tier.get(at));
        (*kind, Bytes(bytes.map(|bytes| bytes.0).sum()))
    };
    fleet::Progress {
        batches: sum(|epoch| epoch.batches),
        samples: sum(|epoch| epoch.samples),
        handed_over: Bytes(sum(|epoch| epoch.demand.0)),
        cold_read: Bytes(sum(|epoch| epoch.cold.0)),
        page_cache_read: cached.unwrap_or_default().served,
        tier_read: rooms.iter().enumerate().map(tier_read).collect(),
        tier_room: rooms,
        stall: Nanoseconds(sum(|epoch| epoch.stall.0)),
        faults: progress.fault_count + progress.tier_faults,
        applied: applied(progress, began),
        transforms,
    }
}

/// The generations that were applied, each with its first epoch.
fn applied(progress: &Progress, began: Applied) -> Vec<Applied> {
    let mut applied = vec![began];
    for (epoch, generation) in &progress.generations {
        if applied.last().is_some_and(|last| last.generation != *generation) {
            applied.push(Applied { generation: *generation, epoch: *epoch });
        }
    }
    applied
}
