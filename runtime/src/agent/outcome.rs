//! The end of an agent: it stops its threads and tasks and writes the report.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use tierfeed_core::{
    budget::CacheRange,
    fleet::{self, Applied, Origin},
    id::{Rank, SampleId},
    session::Fault,
    tier::Kind,
    units::{Bytes, BytesPerSecond, Nanoseconds, seconds},
};
use tierfeed_dataset::source::Location;
use tierfeed_handoff::Server;
use tierfeed_numa_memory::Placement;
use tierfeed_prefetcher::plane::{Counters, DataPlane, Usage, WriteModes};
use tokio::{sync::oneshot, time::timeout};

use super::{
    Agent, AgentError, monitor::Monitor, peers::Peers, trainers::TrainingSpan, transforms,
};
use crate::{
    clock::process_cpu_time,
    layout::{self, LeftOut, StagingPart, Standing, TierLayout},
    observe::{
        report::{
            AgentCpuEntry, FaultEntry, PageCacheEntry, ReaderStats, Report, RunFigures,
            ScratchEntry, StagingEntry, StagingPartEntry, TierEntry, order_digest,
        },
        total::total,
    },
    run_dir::RunDir,
};

/// A read that hangs in the kernel cannot be cancelled, and the report must not wait for it.
const THREADS_END_WITHIN: Duration = Duration::from_secs(4);

/// How long the digest of the report may take, which permutes orders again.
const DIGEST_WITHIN: Nanoseconds = Nanoseconds(3_000_000_000);

pub(super) async fn conclude(agent: Agent) -> Result<Option<Report>, AgentError> {
    // No event is applied any more.
    let mut report = agent.report();
    let told = agent.progress();
    let Agent { server, clients, plane, manager, mut lending, session, monitor, published, .. } =
        agent;
    // The hand-off thread may be blocked on this queue.
    drop(clients);
    lending.abort_all();
    if let Some(used) = end_threads(server, plane).await {
        report.memory.note(&used.usage, agent.loans.granted());
        let Used { write_modes, counters, placements, .. } = used;
        for (at, tier) in report.tiers.iter_mut().enumerate() {
            let use_of_it = write_modes.tiers.get(at).zip(counters.tiers.get(at));
            use_of_it.into_iter().for_each(|(way, traffic)| tier.note_use(*way, traffic));
        }
        report.staging.note_use(&write_modes);
        report.staging.ranks = agent.sockets.entries(&placements);
    }
    agent.observer.end();
    report.job_scratch = end_scratch(monitor).await;
    drop(agent.ram_disk);
    let published = timeout(THREADS_END_WITHIN, published.end()).await.ok();
    manager.end(&told).await;
    if agent.is_superseded {
        return Ok(None);
    }
    let digest_until = Nanoseconds(agent.clock.now().0 + DIGEST_WITHIN.0);
    let is_in_time = || agent.clock.now() < digest_until;
    let handed = &session.progress().handed;
    let digest = order_digest(&agent.order, handed, &published, is_in_time);
    report.order_digest = digest.map(|digest| format!("{digest:016x}"));
    write(&report, &agent.run_dir)?;
    if let Some(Err(error)) = published.map(|it| it.clear()) {
        tracing::debug!(%error, "published orders are left behind");
    }
    Ok(Some(report))
}

impl Agent {
    /// The report so far. It lacks what takes long to find out: the digest of the order, and how memory is
    /// written.
    pub(super) fn report(&self) -> Report {
        let Self { job, session, layout, .. } = self;
        let kinds: Vec<Kind> = layout.tiers.iter().map(|it| it.settings.kind).collect();
        let span = self.training.span;
        Report::of(RunFigures {
            facts: self.facts(),
            progress: session.progress(),
            kinds: &kinds,
            ranks: self.order.world.ranks_per_node,
            further: job.further.iter().map(|dataset| dataset.name.as_str()).collect(),
            reader_stats: ReaderStats {
                starved: self.starvation.mean(),
                ..self.readers.reader_stats()
            },
            staged_batches: session.depth(),
            look_ahead: job.look_ahead,
            cycle: session.cycle(),
            chunk: layout.chunk,
            cold: job.cold.speed.map_or(BytesPerSecond(0), |speed| speed.bandwidth),
            step_time: job.step_time,
            wall: self.training_time(),
            cold_before: span.map_or(Bytes(0), |span| span.cold_before),
            transformed_before: span.map_or(Nanoseconds(0), |it| it.transformed_before),
            processors: std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64,
        })
    }

    fn facts(&self) -> Report {
        let (job, session, cold) = (&self.job, &self.session, &self.cold);
        let (progress, total) = (session.progress(), total(session.progress()));
        let fault = |&(sample, fault): &(SampleId, Fault)| FaultEntry {
            sample: sample.0,
            object: self.catalog.object_name(sample),
            fault: fault.name(),
            reason: self.plane.reason(sample),
        };
        let is_files = matches!(job.dataset.source, Location::Path(_));
        let page_cache = is_files.then(|| {
            PageCacheEntry::of(job.cold.page_cache.name(), cold.page_cache_figures(), total.cold)
        });
        let schedule = &self.assignment.schedule;
        let (counts, wall) = (self.plane.transform_counts(), self.training_time());
        Report {
            job: job.name.clone(),
            node: self.assignment.node.0,
            generation: self.assignment.generation,
            ranks: self.ranks.entry(),
            policy: self.assignment.policy.name(),
            head_start_s: self.training.span.map_or(0.0, |span| seconds(span.head_start)),
            peers: self.peers.as_ref().map(Peers::entries).unwrap_or_default(),
            wasted_bytes: session.wasted().0,
            generations: self.schedules.entries(&self.applied()),
            faults: progress.faults.iter().map(fault).collect(),
            tiers: self.tiers(),
            staging: self.staging(),
            cold_store_emulated: job.cold.speed.is_some(),
            cold_store: self.layout.cold.clone(),
            cold_engine: cold.engine.clone(),
            cold_reads_at_a_time: session.cold_window() as u64,
            page_cache,
            transform: transforms::entry(job, schedule, counts, &total, wall),
            object_requests: cold.requests.as_ref().map(|counters| counters.figures()),
            lease_copyouts: self.observer.copyouts,
            agent_cpu: AgentCpuEntry::of(self.training_cpu_time(), &total),
            loop_pauses: (&self.pauses).into(),
            memory: self.footprint.clone(),
            ..Report::default()
        }
    }

    fn tiers(&self) -> Vec<TierEntry> {
        let epochs = &self.session.progress().epochs;
        let tiers = self.layout.tiers.iter().zip(self.holdings.ranges()).enumerate();
        let used = tiers.map(|(at, (tier, CacheRange { least, most }))| {
            let written = epochs.iter().filter_map(|epoch| epoch.written.get(at)).max();
            let allowed = layout::writes_per_epoch(&self.job, tier.settings.kind);
            TierEntry {
                cache_least_bytes: least.0,
                cache_most_bytes: most.0,
                epoch_written_max_bytes: written.map_or(0, |bytes| bytes.0),
                writes_per_epoch_bytes: allowed.map(|bytes| bytes.0),
                ..planned(tier)
            }
        });
        used.chain(self.layout.left_out.iter().map(left_out)).collect()
    }

    fn staging(&self) -> StagingEntry {
        let ranks = u64::from(self.order.world.ranks_per_node);
        let part = |part: &StagingPart| StagingPartEntry {
            tier: part.kind.name(),
            bytes: part.len.0.saturating_mul(ranks),
            emulated: part.origin == Origin::Emulated,
            placement: None,
        };
        StagingEntry {
            parts: self.layout.staging.iter().map(part).collect(),
            ranks: self.sockets.entries(&BTreeMap::new()),
            ..StagingEntry::default()
        }
    }

    fn training_time(&self) -> Nanoseconds {
        self.training.span.map_or(Nanoseconds(0), TrainingSpan::len)
    }

    fn training_cpu_time(&self) -> Nanoseconds {
        let since = |span: TrainingSpan| process_cpu_time().0.saturating_sub(span.cpu_before.0);
        Nanoseconds(self.training.span.map_or(0, since))
    }

    /// The progress that the manager gets.
    pub(super) fn progress(&self) -> fleet::Progress {
        let progress = self.session.progress();
        let total = total(progress);
        let rooms: Vec<_> = self.holdings.rooms().collect();
        let kinds = rooms.iter().map(|(kind, _)| *kind);
        fleet::Progress {
            batches: total.batches,
            samples: total.samples,
            handed_over: total.demand,
            cold_read: total.cold,
            page_cache_read: self.cold.page_cache_figures().unwrap_or_default().served,
            tier_read: kinds.zip(total.from_tier).collect(),
            tier_room: rooms,
            stall: total.stall,
            faults: progress.fault_count + progress.tier_faults,
            applied: self.applied(),
            transforms: transforms::progress(self.plane.transform_counts(), self.training.span),
        }
    }

    /// The generations that were applied, each with its first epoch.
    fn applied(&self) -> Vec<Applied> {
        let mut applied = vec![self.began];
        for (epoch, generation) in &self.session.progress().generations {
            if applied.last().is_some_and(|last| last.generation != *generation) {
                applied.push(Applied { generation: *generation, epoch: *epoch });
            }
        }
        applied
    }
}

fn write(report: &Report, run_dir: &RunDir) -> Result<(), AgentError> {
    report.write(&run_dir.report())?;
    if let Err(error) = report.write_page(&run_dir.report_page()) {
        tracing::warn!(%error, "there is no page of the report");
    }
    Ok(())
}

struct Used {
    usage: Usage,
    write_modes: WriteModes,
    counters: Counters,
    placements: BTreeMap<Rank, Placement>,
}

/// Ends the threads of hand-off and data plane; returns what the data plane held, unless the hand-off does not
/// end.
async fn end_threads(server: Server, plane: DataPlane) -> Option<Used> {
    let (tell, mut told) = oneshot::channel();
    let ended = tokio::task::spawn_blocking(move || {
        server.shutdown();
        // Who asked does not wait for ever.
        let _ = tell.send(Used {
            usage: plane.usage(),
            write_modes: plane.write_modes(),
            counters: plane.counters(),
            placements: plane.staging_placements(),
        });
        plane.shutdown();
    });
    match timeout(THREADS_END_WITHIN, ended).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => tracing::warn!(%error, "a thread did not end well"),
        Err(_) => {
            tracing::warn!("threads still wait for storage; the report is written beside them");
        }
    }
    told.try_recv().ok()
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

fn left_out(tier: &LeftOut) -> TierEntry {
    TierEntry {
        name: tier.kind.name(),
        budget_bytes: tier.budget.0,
        emulated: tier.origin == Origin::Emulated,
        ..placed(&tier.standing)
    }
}

fn planned(tier: &TierLayout) -> TierEntry {
    TierEntry {
        name: tier.settings.kind.name(),
        budget_bytes: tier.budget.0,
        cache_bytes: tier.cache.0,
        adapts: tier.share.is_some(),
        emulated: tier.origin == Origin::Emulated,
        copy_threads: tier.settings.copy_threads.get() as u64,
        writers_measured: tier.writers,
        direct: tier.direct.map(Into::into),
        ..placed(&tier.standing)
    }
}

/// A tier at its place among the others.
fn placed(standing: &Standing) -> TierEntry {
    TierEntry {
        figures: standing.figures.clone(),
        role: standing.role.name(),
        decision: standing.decision.clone(),
        ..TierEntry::default()
    }
}
