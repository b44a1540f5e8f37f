//! The manager: one process per job that gives agents their schedule and tracks their progress.
//!
//! One loop owns the fleet: it waits for one event, passes it to the core, and answers. Training does not
//! depend on it: agents continue without a manager, and register again with a restarted one.

mod accept;
mod listener;
mod service;
#[cfg(test)]
pub(crate) mod tests;

pub use listener::Listener;

use std::{collections::BTreeMap, fs, io, path::PathBuf, sync::Arc, time::Duration};

use tierfeed_core::{
    fleet::{
        self, Applied, Assignment, Direction, Fleet, Notice, Refusal, Registration,
        first_schedule::{self, ScheduleInputs},
        members::PeerReport,
        schedule::{Role, Schedule},
        training::{Patience, Stage, Training},
    },
    id::NodeId,
    order::World,
    units::Nanoseconds,
};
use tierfeed_numa_memory::failpoint;
use tierfeed_resource_gatherer::Available;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, transport::Server};

use self::service::{Request, Service};
use crate::{
    clock::Clock,
    descriptors,
    observe::{
        metrics::{self, ManagerCounters},
        observed::ObservedEntry,
        report::NodeSummary,
        schedule::ScheduleEntry,
        status::JobStatus,
    },
    rpc::call::{self, Answer, Call, JobText, Loan, PeersAnswer, Report, Told},
    run_dir::{
        beside::WritesBeside,
        memberships::{self, NotedMemberships},
        schedule_log::{self, ScheduleRecord},
        start_marker::StartMarker,
    },
    shutdown::{self, Shutdown},
    transport::{
        keep_alive::{PINGS, Pings},
        token::Token,
    },
    whole_file,
};

/// Requests that wait for the loop; more wait in their connections.
const REQUESTS_MAX: usize = 256;

/// Connections beside those of the agents: of `status`, `top`, `drain`, and of agents that reconnect before
/// the manager has detected the loss of their earlier connection.
const CONNECTIONS_BESIDE: usize = 64;

/// Concurrent calls on one connection; an agent makes one at a time.
const CALLS_MAX: u32 = 16;

const CALL_WITHIN: Duration = Duration::from_secs(10);

/// The size limit of a call's headers; those of tierfeed take some hundred bytes.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// How long an ending manager waits for connections to close.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// How long an ending manager waits for its files to be written or removed.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

/// What it means if the start marker cannot be written or removed.
const MARKER_LOST: &str = "a restarted manager will index the dataset again";

/// How often the fleet checks for silent nodes.
const TICK: Duration = Duration::from_millis(500);

/// A node whose training has not begun this long after that of the first is not waited for at the end.
const ABSENT_AFTER: Nanoseconds = Nanoseconds(60_000_000_000);

/// How long agents may take to end after a drain.
const DRAIN_GRACE: Nanoseconds = Nanoseconds(6_000_000_000);

/// The summaries of nodes at the end of their training.
pub type Summaries = BTreeMap<NodeId, NodeSummary>;

/// The label by which the secret of peers is derived from the token.
const PEERS: &[u8] = b"peers";

#[derive(Debug)]
pub struct Settings {
    pub job: JobText,
    pub fleet: fleet::Settings,
    pub inputs: ScheduleInputs,
    /// The port of this host at which the ranks of the job meet; 0 if they find each other by themselves.
    pub meeting_port: u16,
    /// The file with the dataset's index, which agents may ask for.
    pub index: PathBuf,
    pub start_marker: PathBuf,
    pub schedule_log: PathBuf,
    pub memberships: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("the manager's server failed")]
    Server(#[source] tonic::transport::Error),
}

enum Event {
    Asked(Request),
    MetricsRequested(metrics::Request),
    Tick,
    ShutdownAsked,
}

#[derive(Debug)]
pub struct Manager {
    job: String,
    writes: WritesBeside,
    marker: (PathBuf, StartMarker),
    /// Whether the marker was created, once in all: nodes that come late begin no job.
    is_marked: bool,
    schedule_log: PathBuf,
    memberships: NotedMemberships,
    /// The latest generation of its schedule that each node applied.
    applied: BTreeMap<NodeId, Option<u32>>,
    /// The bytes that each cache of a node might hold at the node's last report.
    rooms: BTreeMap<NodeId, Vec<u64>>,
    fleet: Fleet,
    inputs: ScheduleInputs,
    /// The secret by which nodes prove to each other that they belong to the job.
    peer_secret: Option<[u8; 32]>,
    available: BTreeMap<NodeId, (Box<Available>, Nanoseconds)>,
    clock: Clock,
    requests: mpsc::Receiver<Request>,
    shutdown: Shutdown,
    ticks: Interval,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    stop_server: shutdown::Trigger,
    drain_until: Option<Nanoseconds>,
    is_over: bool,
    meeting_port: u16,
    counters: ManagerCounters,
    training: Training,
    summaries: Summaries,
    metrics: Option<metrics::Server>,
}

impl Manager {
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn start(settings: Settings, listener: Listener, shutdown: Shutdown) -> Self {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let (stop_server, stopped) = shutdown::channel();
        let service = Service::new(settings.job.clone(), &settings.index, sender);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        descriptors::raise_limit();
        let World { nodes, .. } = settings.fleet.order.world;
        let connections_max = 3 * nodes as usize + CONNECTIONS_BESIDE;
        let patience =
            Patience { lost_after: settings.fleet.lost_after, absent_after: ABSENT_AFTER };
        let begun = StartMarker::new(&settings.job.text, settings.job.fingerprints());
        let mut inputs = settings.inputs;
        let known = match StartMarker::indexes_of(&settings.start_marker, &settings.job.text) {
            Some(indexes) if indexes == settings.job.fingerprints() => {
                let form = schedule_log::held_form(&settings.schedule_log);
                inputs.transform.iter_mut().zip(form).for_each(|(it, form)| it.resume(form));
                memberships::read(&settings.memberships, &begun)
            }
            _ => Vec::new(),
        };
        Self {
            job: settings.job.name,
            writes: WritesBeside::start(),
            marker: (settings.start_marker, begun.clone()),
            is_marked: false,
            schedule_log: settings.schedule_log,
            memberships: NotedMemberships::new(settings.memberships, begun, &known),
            applied: BTreeMap::new(),
            rooms: BTreeMap::new(),
            fleet: Fleet::new(settings.fleet).resume(known),
            inputs,
            peer_secret: None,
            available: BTreeMap::new(),
            clock: Clock::start(),
            requests,
            shutdown,
            ticks,
            server: tokio::spawn(listen(service, listener, connections_max, PINGS, stopped)),
            stop_server,
            drain_until: None,
            is_over: false,
            meeting_port: settings.meeting_port,
            counters: ManagerCounters::default(),
            training: Training::new(nodes, patience),
            summaries: BTreeMap::new(),
            metrics: None,
        }
    }

    #[must_use]
    pub fn with_metrics(self, metrics: metrics::Server) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Makes nodes that share what they hold prove themselves to each other by a secret that is derived from
    /// `token`.
    #[must_use]
    pub fn with_peer_secret(self, token: &Token) -> Self {
        Self { peer_secret: Some(*token.derive(PEERS).as_bytes()), ..self }
    }

    /// Serves until all agents have drained, or until the grace time after the shutdown is over. Returns the
    /// summaries of nodes at the end of their training.
    ///
    /// # Errors
    ///
    /// [`ManagerError::Server`] if the server failed.
    pub async fn run(mut self) -> Result<Summaries, ManagerError> {
        while !self.is_over {
            let event = self.select().await;
            failpoint::pass("manager");
            self.apply(event);
        }
        self.stop_server.pull();
        // The closed channel rejects later requests.
        drop(self.requests);
        let closing = timeout(CLOSED_WITHIN, &mut self.server);
        let (closed, written) = tokio::join!(closing, timeout(WRITTEN_WITHIN, self.writes.end()));
        if written.is_err() {
            tracing::warn!(
                "the run directory does not answer; the log of schedules and the memberships may lack their end, and \
                 the start marker is left as it is"
            );
        }
        match closed {
            Ok(Ok(outcome)) => outcome.map_err(ManagerError::Server).map(|()| self.summaries),
            Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => {
                tracing::debug!("some connections are left open");
                self.server.abort();
                Ok(self.summaries)
            }
        }
    }

    /// Waits for the next event and decides nothing.
    async fn select(&mut self) -> Event {
        let is_draining = self.drain_until.is_some();
        tokio::select! {
            biased; // Rare events first: however many requests there are, lost nodes are detected.
            () = self.shutdown.recv(), if !is_draining => Event::ShutdownAsked,
            _ = self.ticks.tick() => Event::Tick,
            Some(request) = self.requests.recv() => Event::Asked(request),
            request = next_metrics_request(&mut self.metrics) => Event::MetricsRequested(request),
        }
    }

    fn apply(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Asked(Request { call, reply }) => {
                self.counters.count_message(call.kind());
                // An error means that the caller disconnected.
                let _ = reply.send(self.answer(call));
            }
            // An error means that the client disconnected.
            Event::MetricsRequested(metrics::Request { page: metrics::Page::Metrics, reply }) => {
                let families = self.counters.families(&self.job, &self.fleet);
                drop(reply.send(Box::new(|| families.text())));
            }
            Event::ShutdownAsked => self.drain(now),
            // It has no report: agents have.
            Event::MetricsRequested(_) => (),
            Event::Tick => {
                self.fleet.handle_tick(now);
                // Nothing reaches it any more; why is said at its end.
                self.is_over |= self.server.is_finished();
                if self.drain_until.is_some_and(|end| now >= end) {
                    tracing::warn!("some agents did not end within {DRAIN_GRACE}");
                    self.is_over = true;
                }
            }
        }
        self.memberships.note(self.fleet.memberships(), &self.writes);
        self.announce_all();
    }

    fn announce_all(&mut self) {
        while let Some(notice) = self.fleet.poll_notice() {
            self.counters.count_notice(&notice);
            self.announce(notice);
        }
    }

    fn answer(&mut self, call: Call) -> Result<Answer, Status> {
        let now = self.clock.now();
        match call {
            Call::Register(registration) => self
                .register(*registration, now)
                .map(|it| Answer::Assignment(Box::new(it)))
                .map_err(call::refused),
            Call::Report(report) => Ok(self.report(*report, now)),
            Call::Drained { node, incarnation, progress } => {
                self.fleet.handle_drained(node, incarnation, progress.clone());
                self.note_told(node, &progress);
                self.forget_ended(node);
                Ok(Answer::Done)
            }
            Call::Memory { node, incarnation, loan } => match loan {
                Loan::Ask(chunks) => self.fleet.handle_memory_asked(node, incarnation, chunks, now),
                Loan::Return(chunks) => {
                    self.fleet.handle_memory_returned(node, incarnation, chunks, now)
                }
            }
            .map(|()| Answer::Done)
            .map_err(call::denied),
            Call::Peers { node, incarnation, report } => {
                Ok(Answer::Peers(self.peers(node, incarnation, report, now)))
            }
            Call::Drain => {
                self.writes.give(self.marker.0.clone(), MARKER_LOST, whole_file::remove);
                self.drain(now);
                Ok(Answer::Done)
            }
            Call::Status => {
                let told = |node| {
                    let (available, at) = self.available.get(&node)?;
                    Some((available.as_ref(), Nanoseconds(now.0.saturating_sub(at.0))))
                };
                Ok(Answer::Status(Box::new(JobStatus::of(&self.job, &self.fleet, told))))
            }
            Call::Training { node, stage, summary } => {
                let outlook = self.training.handle_stage(node, stage, now);
                let is_node = node.0 < self.fleet.settings().order.world.nodes;
                if let Some(summary) = summary.filter(|_| is_node && stage != Stage::Running) {
                    self.summaries.insert(node, *summary);
                }
                Ok(Answer::Told(Told { outlook, meeting_port: self.meeting_port }))
            }
            // The service answers them.
            Call::Job | Call::Index { .. } => Err(Status::internal("no call for the loop")),
        }
    }

    fn report(&mut self, report: Report, now: Nanoseconds) -> Answer {
        let Report { node, incarnation, progress, available, observed, schedules } = report;
        let direction = self.fleet.handle_progress(node, incarnation, progress.clone(), now);
        if let (Direction::Continue, Some(observed)) = (direction, observed) {
            self.fleet.handle_observed(node, *observed);
            for schedule in schedules {
                self.fleet.handle_schedule(node, schedule);
                self.announce_all();
            }
            self.note_told(node, &progress);
        }
        if let (Direction::Continue | Direction::Drain, Some(it)) = (direction, available) {
            self.available.insert(node, (it, now));
        }
        Answer::Direction(direction)
    }

    /// The answer to a node that reports the generation it knows: all nodes if there is a later generation,
    /// or the secret if the node does not listen yet.
    fn peers(
        &mut self,
        node: NodeId,
        incarnation: u64,
        report: PeerReport,
        now: Nanoseconds,
    ) -> PeersAnswer {
        let (generation, listens) = (report.generation, !report.address.is_empty());
        let secret = self.peer_secret;
        match self.fleet.handle_peer_report(node, incarnation, report, now) {
            None => PeersAnswer::Unknown,
            Some(_) if !listens => PeersAnswer::Same { secret },
            Some(peers) if peers.generation == generation => PeersAnswer::Same { secret: None },
            Some(peers) => PeersAnswer::Changed(peers.clone()),
        }
    }

    fn register(
        &mut self,
        registration: Registration,
        now: Nanoseconds,
    ) -> Result<Assignment, Refusal> {
        let assigned = first_schedule::of(&self.inputs, &registration.offer)
            .map_err(Refusal::from)
            .and_then(|it| self.fleet.handle_registration(registration, it, now));
        self.counters.count_registration(&assigned);
        match &assigned {
            Ok(it) => {
                let inputs = self.inputs.transform.as_mut().zip(it.schedule.transform.as_ref());
                inputs.into_iter().for_each(|(inputs, scheduled)| inputs.settle(scheduled));
                if !std::mem::replace(&mut self.is_marked, true) {
                    let (path, marker) = self.marker.clone();
                    self.writes.give(path, MARKER_LOST, move |path| marker.write(path));
                }
                self.available.remove(&it.node);
                tracing::info!(node = it.node.0, generation = it.generation, "node joined");
                self.announce_schedule(it.node);
            }
            Err(refusal) => tracing::warn!(%refusal, "node refused"),
        }
        assigned
    }

    /// Records the generations of its schedule that a node has applied since its last report, and the bytes
    /// that its caches may hold if these have changed.
    fn note_told(&mut self, id: NodeId, told: &fleet::Progress) {
        let rooms: Vec<u64> = told.tier_room.iter().map(|(_, room)| room.0).collect();
        if self.rooms.get(&id).is_some_and(|noted| *noted != rooms) {
            let (batches, cache_bytes) = (told.batches, rooms.clone());
            self.log(ScheduleRecord::Resized { node: id.0, batches, cache_bytes });
        }
        self.rooms.insert(id, rooms);
        let applied = &told.applied;
        let noted = self.applied.get(&id).copied().flatten();
        for it in applied.iter().filter(|it| noted.is_none_or(|noted| it.generation > noted)) {
            let Applied { generation, epoch } = *it;
            self.log(ScheduleRecord::Applied { node: id.0, generation, epoch: epoch.0 });
        }
        self.applied.insert(id, applied.last().map(|it| it.generation).max(noted));
    }

    fn announce_schedule(&mut self, id: NodeId) {
        let Some((_, node)) = self.fleet.nodes().find(|(known, _)| *known == id) else { return };
        for (tier, found) in node.schedule.with(&node.offer) {
            let (kind, place) = (found.kind.name(), &tier.reason);
            tracing::debug!(node = id.0, tier = kind, "use" = tier.role.name(), place, "scheduled");
        }
        let observed = node.observed.as_ref();
        if observed.is_none() {
            let used = node.schedule.tiers.iter().filter(|tier| tier.role != Role::LeftOut);
            self.rooms.insert(id, used.map(|tier| tier.cache.0).collect());
        }
        self.log(ScheduleRecord::Scheduled {
            node: id.0,
            process: node.generation,
            schedule: Box::new(ScheduleEntry::of(&node.schedule, &node.offer)),
            observed: observed.map(|it| ObservedEntry::of(it, &node.schedule, &node.offer)),
        });
    }

    fn log(&self, record: ScheduleRecord) {
        let lost = "the run cannot be replayed: a line is missing";
        self.writes.give(self.schedule_log.clone(), lost, move |path| record.append(path));
    }

    /// Forgets the free resources of a node that has ended. A message of a replaced process ends no node.
    fn forget_ended(&mut self, node: NodeId) {
        let state = self.fleet.nodes().find(|(id, _)| *id == node).map(|(_, node)| node.state);
        if state == Some(fleet::State::Drained) {
            self.available.remove(&node);
        }
    }

    fn drain(&mut self, now: Nanoseconds) {
        self.drain_until.get_or_insert(Nanoseconds(now.0 + DRAIN_GRACE.0));
        self.fleet.handle_drain();
    }

    fn announce(&mut self, notice: Notice) {
        match notice {
            Notice::NodeLost { node, silent } => {
                tracing::warn!(node = node.0, %silent, "node lost; its trainers read on alone");
            }
            Notice::NodeBack { node } => tracing::info!(node = node.0, "node is back"),
            Notice::Revised { node } => {
                let revised = self.fleet.nodes().find(|(id, _)| *id == node);
                if let Some((_, fleet::Node { schedule, .. })) = revised {
                    let Schedule { generation, first_epoch, reason, .. } = schedule;
                    let epoch = first_epoch.0;
                    tracing::info!(node = node.0, generation, epoch, reason, "next schedule");
                }
                self.announce_schedule(node);
            }
            Notice::Over => self.is_over = true,
        }
    }
}

/// The next request for metrics; waits for ever without a server.
async fn next_metrics_request(metrics: &mut Option<metrics::Server>) -> metrics::Request {
    let asked = match metrics {
        Some(metrics) => metrics.next().await,
        None => None,
    };
    match asked {
        Some(request) => request,
        None => std::future::pending().await,
    }
}

async fn listen(
    service: Service,
    listener: Listener,
    connections_max: usize,
    pings: Pings,
    mut stopped: Shutdown,
) -> Result<(), tonic::transport::Error> {
    let mut server = Server::builder()
        .timeout(CALL_WITHIN)
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .http2_keepalive_interval(Some(pings.every))
        .http2_keepalive_timeout(Some(pings.answered_within));
    let listener = Arc::new(listener);
    let (accepted, incoming) = mpsc::channel(connections_max);
    let accepting = accept::accept(Arc::clone(&listener), connections_max, accepted);
    let stopped = async move { stopped.recv().await };
    let serving = server
        .add_service(service)
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), stopped);
    let (outcome, ()) = tokio::join!(serving, accepting);
    if let Listener::Unix(_, path) = &*listener {
        // Later peers find no socket, or that of a new manager.
        drop(fs::remove_file(path));
    }
    outcome
}
