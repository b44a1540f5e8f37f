//! How an agent is observed: metrics on request, the flight recorder, the trace of a run.

use std::{collections::BTreeMap, fs, iter, path::PathBuf, process, sync::Arc};

use serde::Serialize;
use tierfeed_core::{
    id::{BatchId, ConnectionId, LeaseId, NodeId, Rank},
    session::{Taken, assignment::Stages},
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::source::Location;
use tierfeed_handoff::ReleaseKind;
use tierfeed_prefetcher::recorder::{Event, EventKind, Recorder};
use tierfeed_workload_analyzer::Job;

use super::{Agent, AgentError};
use crate::{
    clock::{Clock, process_cpu_time},
    layout::Layout,
    observe::{
        chrome_trace::{self, Process},
        metrics::{self, Network, Page, Request, Server, Target, Text},
        node_figures::NodeFigures,
        total::total,
    },
    run_dir::RunDir,
};

/// Events that are kept for `tierfeed trace`: some 5 MiB, minutes of a usual training.
const EVENTS_KEPT: usize = 1 << 16;

/// Events that are kept for a trace of the whole run: some 40 MiB, and a hundred as text.
const EVENTS_OF_RUN: usize = 1 << 19;

#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where metrics are served beside the socket in the run directory.
    pub metrics: Option<Network>,
    /// The file for a trace of the run, written at its end.
    pub trace: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Observer {
    pub(super) recorder: Arc<Recorder>,
    server: Server,
    process: Process,
    targets: PathBuf,
    trace: Option<PathBuf>,
    /// Batches that trainers use, each with the time since which they do.
    held: BTreeMap<LeaseId, (ConnectionId, BatchId, Nanoseconds)>,
    /// When the last wait of each rank ended. Waits are reported late, and two waits of one rank do not
    /// overlap.
    waited_until: BTreeMap<Rank, Nanoseconds>,
    /// How threads were divided last, by rank of the node.
    divided: Vec<(u32, u32)>,
    pub(super) copyouts: u64,
}

impl Observer {
    pub(super) async fn start(
        settings: Settings,
        run_dir: &RunDir,
        job: &str,
        node: NodeId,
        layout: &Layout,
        clock: Clock,
    ) -> Result<Self, AgentError> {
        let capacity = if settings.trace.is_some() { EVENTS_OF_RUN } else { EVENTS_KEPT };
        let recorder = Arc::new(Recorder::new(clock.origin(), capacity));
        let kinds = layout.tiers.iter().map(|place| place.settings.kind.name()).collect();
        let process = Process { pid: process::id(), node: node.0, kinds };
        let socket = run_dir.agent_metrics_socket();
        let server = Server::start(&socket, settings.metrics).await?;
        let targets = run_dir.prometheus_targets();
        if let Some(address) = server.address() {
            tracing::info!(%address, "metrics");
            if let Err(error) = Target::new(job, node.0, address).write(&targets) {
                tracing::warn!(%error, "Prometheus is not told where the metrics are");
            }
        }
        Ok(Self {
            recorder,
            server,
            process,
            targets,
            trace: settings.trace,
            held: BTreeMap::new(),
            waited_until: BTreeMap::new(),
            divided: Vec::new(),
            copyouts: 0,
        })
    }

    /// The next request for metrics; waits for ever if the server has ended.
    pub(super) async fn next(&mut self) -> Request {
        match self.server.next().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    pub(super) fn note(&self, kind: EventKind) {
        self.recorder.record_ended(Nanoseconds(0), kind);
    }

    pub(super) fn taken(&mut self, connection: ConnectionId, lease: LeaseId, taken: &Taken) {
        let note = |at, lasted, kind| self.recorder.record(Event { at, lasted, kind });
        let (batch, since) = (taken.batch, Nanoseconds(taken.at.0.saturating_sub(taken.waited.0)));
        let staged = Nanoseconds(taken.ready.0.saturating_sub(taken.placed.0));
        note(taken.placed, staged, EventKind::Staged(batch));
        if taken.waited.0 > 0 {
            let before = self.waited_until.insert(batch.rank, taken.at).unwrap_or_default();
            let within = |from: Nanoseconds, to: Nanoseconds, kind| {
                let from = from.max(before).min(taken.at);
                note(from, Nanoseconds(to.0.saturating_sub(from.0)), kind);
            };
            within(since, taken.at, EventKind::Waited(batch));
            let mut at = since;
            for (cause, part) in taken.causes.parts().filter(|(_, part)| part.0 > 0) {
                let from = at;
                at.0 += part.0;
                within(from, at.min(taken.at), EventKind::WaitPart(batch, cause));
            }
        }
        self.held.insert(lease, (connection, batch, taken.at));
    }

    /// Records how threads are divided over the ranks from `first` on, if the division has changed.
    pub(super) fn divided(&mut self, first: Rank, threads: &Stages) {
        let transforming = threads.transforming.iter().copied().chain(iter::repeat(0));
        for (at, parts) in threads.loading.iter().copied().zip(transforming).enumerate() {
            if self.divided.get(at) == Some(&parts) {
                continue;
            }
            match self.divided.get_mut(at) {
                Some(before) => *before = parts,
                None => self.divided.push(parts),
            }
            let rank = Rank(first.0 + u32::try_from(at).unwrap_or(u32::MAX));
            let (loading, transforming) = parts;
            self.note(EventKind::Divided { rank, loading, transforming });
        }
    }

    pub(super) fn released(&mut self, lease: LeaseId, kind: ReleaseKind) {
        self.copyouts += u64::from(kind == ReleaseKind::Copied);
        if let Some((_, batch, since)) = self.held.remove(&lease) {
            let lasted = Nanoseconds(self.recorder.now().0.saturating_sub(since.0));
            self.recorder.record(Event { at: since, lasted, kind: EventKind::Held(batch) });
        }
    }

    pub(super) fn gone(&mut self, connection: ConnectionId, rank: Rank) {
        self.held.retain(|_, (of, ..)| *of != connection);
        self.note(EventKind::Disconnected(rank));
    }

    /// Writes the trace of the run, if one was asked for, and stops serving metrics.
    pub(super) fn end(self) {
        if let Some(path) = &self.trace {
            let text = chrome_trace::write(&self.recorder.recording(), &self.process);
            match fs::write(path, text) {
                Ok(()) => tracing::info!(path = %path.display(), "trace written"),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "the trace is not written");
                }
            }
        }
        if self.server.address().is_some() {
            // An error means that it was not written or is gone.
            let _ = fs::remove_file(&self.targets);
        }
    }
}

impl Agent {
    pub(super) fn answer_metrics(&self, Request { page, reply }: Request) {
        let text: Text = match page {
            Page::Metrics => {
                let figures = self.figures();
                Box::new(move || metrics::of_agent(&figures).text())
            }
            Page::Figures => {
                let figures = self.figures();
                Box::new(move || json(&figures))
            }
            Page::Trace => {
                let recorder = Arc::clone(&self.observer.recorder);
                let process = self.observer.process.clone();
                Box::new(move || chrome_trace::write(&recorder.recording(), &process))
            }
            Page::Report => {
                let report = self.report();
                Box::new(move || json(&report))
            }
            Page::ReportPage => {
                let report = self.report();
                Box::new(move || report.page())
            }
        };
        // An error means that the client disconnected.
        let _ = reply.send(text);
    }

    fn figures(&self) -> NodeFigures {
        let (session, progress) = (&self.session, self.session.progress());
        let first = self.assignment.node.0 * self.order.world.ranks_per_node;
        let of_node = |rank: Rank| rank.0.saturating_sub(first);
        let by_rank = |(rank, count): (Rank, usize)| (of_node(rank), count as u64);
        let waits = progress.waits_by_rank.iter();
        let (counters, usage) = (self.plane.counters(), self.plane.usage());
        NodeFigures {
            job: self.job.name.clone(),
            policy: self.assignment.policy.name().to_owned(),
            source: source(&self.job),
            backend: self.plane.backend().to_owned(),
            total: total(progress),
            fault_count: progress.fault_count,
            tier_faults: progress.tier_faults,
            refusals: progress.refusals,
            wasted: session.wasted(),
            copyouts: self.observer.copyouts,
            waits: waits.map(|(rank, waits)| (of_node(*rank), waits.clone())).collect(),
            leads: progress.leads.clone(),
            holds: progress.holds.clone(),
            leases: session.leases().map(by_rank).collect(),
            ready: session.ready().map(by_rank).collect(),
            batches_max: self.holdings.batches(),
            kinds: self.layout.tiers.iter().map(|it| it.settings.kind).collect(),
            levels: session.levels().map(|level| (level.capacity, level.used)).collect(),
            evictions: progress.evictions.clone(),
            tiers_busy: progress.tiers_busy.clone(),
            cold_busy: progress.cold_busy,
            cold_window: session.cold_window() as u64,
            moves: counters.moves,
            transform_durations: counters.transform_durations,
            held: usage.tiers.iter().map(|tier| (tier.kind, tier.bytes)).collect(),
            staging_held: usage.arenas,
            job_memory: Bytes(self.footprint.job_bytes),
            own_memory: Bytes(self.footprint.own_bytes),
            own_cpu: process_cpu_time(),
            memory_budget: Bytes(self.footprint.budget_bytes),
            requests: self.cold.requests.as_ref().map(|counters| counters.figures()),
            page_cache: self.cold.page_cache_figures(),
            transforms: self.plane.transform_counts(),
            pauses: self.pauses.durations().clone(),
            ran_max: self.pauses.cpu_max().1,
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("its keys are names and numbers")
}

/// The scheme of the source's URL.
fn source(job: &Job) -> String {
    match &job.dataset.source {
        Location::Path(_) => "file".to_owned(),
        Location::Bucket(bucket) => {
            bucket.url.split_once("://").map_or("bucket", |(scheme, _)| scheme).to_owned()
        }
    }
}
