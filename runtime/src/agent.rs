//! The agent: one process per node that stages batches for the trainers of the node.
//!
//! One loop owns the session: [`Events::select`] waits for one event and decides nothing; [`Agent::apply`]
//! passes it to the core, starts what the core decided, and never waits. Threads of the data plane move
//! bytes, the hand-off thread serves trainers, and a task talks to the manager; all three end before the
//! agent does.

pub mod briefing;
mod calibration;
mod completions;
mod error;
mod fetcher;
#[cfg(test)]
mod generated_runs;
mod index_transfer;
mod jobs;
mod join;
mod loans;
mod local_job;
mod manager_connection;
mod memory;
mod monitor;
mod observer;
mod outcome;
mod page_cache;
mod peers;
mod prepared_sizes;
mod publications;
mod published;
mod ram_disk;
mod ranks;
mod readers;
mod revisions;
mod schedules;
pub mod scratch;
mod sockets;
mod start;
mod starvation;
mod tmpfs;
mod trainers;
mod transform_cost;
mod transforms;

pub use calibration::Calibration;
pub use error::{AgentError, ImagesError, JoinError, NoPreparedLengths};
pub use observer::Settings as ObserveSettings;

use std::{
    collections::BTreeMap, future::poll_fn, path::PathBuf, pin::pin, sync::Arc, time::Duration,
};

use tierfeed_core::{
    budget::Holdings,
    fleet::{Applied, Assignment, Direction, members::PeerReport, schedule::Schedule},
    id::ConnectionId,
    order::Spec,
    session::{Command, Event as SessionEvent, Finished, Operation, Session},
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::Catalog;
use tierfeed_handoff::{Briefing, ClientEvent, Server};
use tierfeed_numa_memory::failpoint;
use tierfeed_prefetcher::{peers::Event as PeerEvent, plane::DataPlane};
use tierfeed_transform::worker_process::Program;
use tierfeed_workload_analyzer::Job;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use self::{
    completions::{Completion, Completions},
    fetcher::Cold,
    jobs::Jobs,
    loans::Loans,
    manager_connection::{FromManager, ManagerHandle, ToManager},
    memory::Lent,
    monitor::{Availability, Monitor},
    observer::Observer,
    peers::{PeerSetup, Peers},
    publications::Publications,
    ram_disk::RamDisk,
    ranks::Ranks,
    readers::Readers,
    schedules::Schedules,
    sockets::Sockets,
    starvation::Starvation,
};
use crate::{
    clock::Clock,
    dataset::{image_sizes::ImageSizeCache, measured_transforms::MeasuredTransforms},
    layout::{Layout, Node},
    observe::{
        footprint::Footprint,
        metrics::Request,
        pauses::{Arrival, Pauses, TakenEvent},
        report::Report,
    },
    rpc::{call::JobText, client::Address},
    run_dir::{RunDir, RunDirLock},
    shutdown::Shutdown,
    transport::token::Token,
};

/// The time that a call to register has when the shutdown comes: the manager waits for a node that has registered.
const REGISTERS_WITHIN: Duration = Duration::from_millis(250);

/// How often the agent measures the memory of the node and reports to the manager.
const TICK: Duration = Duration::from_millis(500);

/// How long an ending agent waits for trainers to disconnect, so that the report counts their last batch.
const DISCONNECT_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Settings {
    pub manager: Address,
    /// Needed on a network.
    pub token: Option<Token>,
    /// The launcher's variables, which number the node (see [`tierfeed_core::fleet::launch`]).
    pub launch: BTreeMap<String, String>,
    /// The job, if the process that starts the agent has read it; else the manager sends its text.
    pub job: Option<LoadedJob>,
    pub run_dir: RunDir,
    /// The path of the last probe report, if known.
    pub tiers_report: Option<PathBuf>,
    /// The calibration of this host, if the process that starts the agent has begun it.
    pub calibration: Option<Calibration>,
    pub observe: ObserveSettings,
    /// The memory of this host that a batch system gave the job.
    pub memory: Option<Bytes>,
    /// The program that makes rows of samples, if the job has a transform.
    pub transform_worker: Program,
    pub image_sizes: ImageSizeCache,
    pub measured_transforms: MeasuredTransforms,
}

/// A job that was read, parsed and indexed in this process.
#[derive(Debug, Clone)]
pub struct LoadedJob {
    pub text: JobText,
    pub job: Arc<Job>,
    pub catalog: Catalog,
}

enum Event {
    Completed(Vec<Completion>),
    Worked(Finished),
    Client(ClientEvent),
    Manager(FromManager),
    Lent(Lent),
    MetricsRequested(Request),
    Peer(PeerEvent),
    Measured(Availability),
    Tick,
    Look,
    StagingLeft,
    ShutdownAsked,
    EndingTimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Waits for trainers to disconnect, at most until `until`.
    Ending {
        until: Instant,
    },
    Over,
}

#[derive(Debug)]
pub struct Agent {
    job: Arc<Job>,
    catalog: Catalog,
    node: Node,
    layout: Layout,
    assignment: Assignment,
    order: Spec,
    /// The schedule with which it began.
    began: Applied,
    schedules: Schedules,
    run_dir: RunDir,
    briefing: Briefing,
    session: Session,
    plane: DataPlane,
    cold: Cold,
    server: Server,
    clients: mpsc::Receiver<ClientEvent>,
    completions: Completions,
    jobs: Jobs,
    manager: ManagerHandle,
    loans: Loans<memory::Chunks>,
    lending: JoinSet<Lent>,
    holdings: Holdings,
    monitor: Monitor,
    published: Publications,
    footprint: Footprint,
    observer: Observer,
    connections: BTreeMap<ConnectionId, Option<trainers::BatchReader>>,
    readers: Readers,
    sockets: Sockets,
    ram_disk: Option<RamDisk>,
    /// `Some` while this node is to share what it holds and waits for the secret of the job.
    applicant: Option<PeerSetup>,
    /// The other nodes, if nodes share what they hold.
    peers: Option<Peers>,
    starvation: Starvation,
    training: trainers::Training,
    ranks: Ranks,
    clock: Clock,
    /// When the session last got its staging limit.
    staging_told: Nanoseconds,
    next_tick: Instant,
    /// The time of an additional look at free memory before the next tick, if memory may run short.
    next_look: Option<Instant>,
    /// Whether the manager is told at the next look.
    is_report_due: bool,
    pauses: Pauses,
    shutdown: Shutdown,
    phase: Phase,
    is_superseded: bool,
    _run_dir_lock: RunDirLock,
}

impl Agent {
    /// Joins the job and starts to listen for trainers. On an error nothing runs.
    pub async fn start(mut settings: Settings, mut shutdown: Shutdown) -> Result<Self, AgentError> {
        let calibration = settings.calibration.take();
        let joined = tokio::select! {
            joined = join::join(&settings, calibration, shutdown.clone()) => joined?,
            () = async {
                shutdown.recv().await;
                tokio::time::sleep(REGISTERS_WITHIN).await;
            } => return Err(AgentError::Ended),
        };
        start::warn_of_few_samples(&joined);
        start::agent(joined, settings, shutdown).await
    }

    /// Serves trainers, then ends and reports: [`Self::serve`] and [`Self::conclude`] without a deadline between them.
    ///
    /// # Errors
    ///
    /// If the report cannot be written.
    pub async fn run(mut self) -> Result<Option<Report>, AgentError> {
        self.serve().await;
        Box::pin(self.conclude()).await
    }

    /// Serves trainers until the shutdown or until the manager asks for an end.
    pub async fn serve(&mut self) {
        self.carry_out();
        while self.phase != Phase::Over {
            let (event, arrival) = observed(next_event(self, Instant::now())).await;
            failpoint::pass("loop");
            let (name, stopwatch) = (event.name(), self.clock.stopwatch());
            // Before the event is applied: batches that it delivers waited until now.
            let load = self.pauses.take(TakenEvent { name, at: stopwatch.begun(), arrival });
            load.into_iter().for_each(|load| self.session.note_load(load));
            self.apply(event);
            self.pauses.note(stopwatch.elapsed());
        }
    }

    /// Ends all threads and tasks. Writes the report unless another process has registered as this node. Does
    /// not return while the run directory does not answer: that takes a deadline of the process.
    ///
    /// # Errors
    ///
    /// If the report cannot be written.
    pub async fn conclude(self) -> Result<Option<Report>, AgentError> {
        Box::pin(outcome::conclude(self)).await
    }

    /// Passes the event to the core, then starts what the core decided. Never waits.
    fn apply(&mut self, event: Event) {
        match event {
            Event::Completed(done) => {
                for Completion { event, at } in done {
                    self.session.handle(event, at);
                }
            }
            Event::Worked(finished) => self.session.finish(finished, self.clock.now()),
            Event::Client(event) => self.apply_client(event),
            Event::Manager(FromManager::Direction(direction)) => self.follow(direction),
            Event::Manager(FromManager::Schedule(schedule)) => self.reschedule(*schedule),
            Event::Manager(FromManager::Loan(answer)) => self.apply_loan_answer(answer),
            Event::Manager(FromManager::Peers(peers)) => self.follow_peers(*peers),
            Event::Manager(FromManager::Secret(secret)) => self.join_peers(&secret),
            Event::Peer(event) => self.apply_peer(event),
            Event::Lent(lent) => self.apply_lent(lent),
            Event::MetricsRequested(request) => self.answer_metrics(request),
            Event::Measured(availability) => self.apply_availability(availability),
            Event::Tick => self.apply_tick(),
            Event::Look => {
                self.next_look = None;
                self.monitor.measure_memory();
            }
            Event::StagingLeft => (),
            Event::ShutdownAsked => self.end(),
            Event::EndingTimedOut => {
                self.hear_out();
                self.phase = Phase::Over;
            }
        }
        if self.session.has_more() {
            self.session.go_on(self.clock.now());
        }
        self.carry_out();
        self.poll_room();
        if matches!(self.phase, Phase::Ending { .. }) && self.connections.is_empty() {
            self.phase = Phase::Over;
        }
    }

    fn tell(&mut self, event: SessionEvent) {
        self.session.handle(event, self.clock.now());
    }

    fn carry_out(&mut self) {
        while let Some(job) = self.session.poll_job() {
            self.jobs.start(job);
        }
        while let Some(command) = self.session.poll_command() {
            match command {
                Command::Start { op, operation: Operation::Receive { sample, from, to } } => {
                    self.receive(op, sample, from, self.plane.receive(to));
                }
                Command::Start { op, operation } => self.plane.execute(op, operation),
                Command::Free(memory) => self.plane.free(memory),
                Command::Answer(answer) => self.answer_trainer(answer),
            }
        }
        self.flush_peers();
    }

    /// Works by another schedule from its first epoch on.
    fn reschedule(&mut self, schedule: Schedule) {
        let Schedule { generation, first_epoch: from, ref reason, .. } = schedule;
        let points = schedule.points();
        tracing::info!(generation, epoch = from.0, ?points, reason, "next schedule");
        self.tell(SessionEvent::Scheduled { generation, from, points });
        self.schedules.push(&schedule);
        self.assignment.schedule = schedule;
    }

    fn follow(&mut self, direction: Direction) {
        match direction {
            Direction::Continue | Direction::Unknown => (),
            Direction::Drain => self.end(),
            Direction::Superseded => {
                tracing::warn!("another process works as this node now; this one ends");
                self.is_superseded = true;
                self.end();
            }
        }
    }

    fn end(&mut self) {
        if self.phase == Phase::Serving {
            self.phase = Phase::Ending { until: Instant::now() + DISCONNECT_WITHIN };
        }
    }

    fn apply_tick(&mut self) {
        self.next_tick = Instant::now() + TICK;
        self.is_report_due = true;
        self.footprint.note(&self.plane.usage(), self.loans.granted());
        self.starvation.update();
        if let Some(ranks) = self.ranks.overdue(self.clock.now()) {
            tracing::warn!(
                ?ranks,
                "ranks have not connected while others train; they may read by themselves"
            );
        }
        self.monitor.measure();
    }

    /// Adapts memory limits to what is free, and reports to the manager.
    fn apply_availability(&mut self, availability: Availability) {
        let Availability { available, group_limit } = availability;
        group_limit.into_iter().for_each(|limit| self.node.follow_limit(limit));
        if let Some(available) = &available {
            self.adapt(available);
        }
        if !std::mem::take(&mut self.is_report_due) {
            return;
        }
        let progress = self.progress();
        let observed = Box::new(self.session.observed());
        self.measure_peers(observed.cold.rate());
        // If the queue is full, the next report replaces this one.
        let _ = self.manager.try_send(ToManager::Report(
            Box::new(progress),
            available.map(Box::new),
            observed,
        ));
        if let Some(peers) = &self.peers {
            let report = Box::new(peers.report(self.session.divided()));
            let _ = self.manager.try_send(ToManager::Peers(report));
        } else if self.applicant.is_some() {
            // It did not get the secret of the job when it joined.
            let report = Box::new(PeerReport::before_it_listens());
            let _ = self.manager.try_send(ToManager::Peers(report));
        }
    }
}

trait Events {
    /// An event that was due at `now` or before.
    fn overdue(&self, now: Instant) -> Option<Event>;

    /// Waits for the next event and decides nothing.
    async fn select(&mut self) -> Event;
}

/// The next event. Overdue ones come first: an agent that is never idle still returns memory and sends
/// heartbeats to its manager.
async fn next_event(events: &mut impl Events, now: Instant) -> Event {
    match events.overdue(now) {
        Some(event) => event,
        None => events.select().await,
    }
}

/// An event, and whether it was waited for.
async fn observed<T>(event: impl Future<Output = T>) -> (T, Arrival) {
    let mut event = pin!(event);
    let mut arrival = Arrival::Waiting;
    let event = poll_fn(|context| {
        let polled = event.as_mut().poll(context);
        if polled.is_pending() {
            arrival = Arrival::Awaited;
        }
        polled
    })
    .await;
    (event, arrival)
}

impl Events for Agent {
    fn overdue(&self, now: Instant) -> Option<Event> {
        self.phase.overdue(self.next_tick, now)
    }

    async fn select(&mut self) -> Event {
        let is_serving = self.phase == Phase::Serving;
        let timed_out = match self.phase {
            Phase::Ending { until } => Some(until),
            Phase::Serving | Phase::Over => None,
        };
        tokio::select! {
            biased; // Rare events first, then what trainers wait for, then their next requests.
            () = self.shutdown.recv(), if is_serving => Event::ShutdownAsked,
            Some(availability) = self.monitor.next() => Event::Measured(availability),
            () = reach(self.next_look) => Event::Look,
            Some(finished) = self.jobs.next() => Event::Worked(finished),
            message = self.manager.next() => Event::Manager(message),
            Some(Ok(lent)) = self.lending.join_next() => Event::Lent(lent),
            done = self.completions.next() => Event::Completed(done),
            Some(event) = self.clients.recv() => Event::Client(event),
            event = peers::next_event(self.peers.as_ref()) => Event::Peer(event),
            request = self.observer.next() => Event::MetricsRequested(request),
            () = reach(timed_out) => Event::EndingTimedOut,
            () = tokio::time::sleep_until(self.next_tick) => Event::Tick,
            () = std::future::ready(()), if self.session.has_more() => Event::StagingLeft,
        }
    }
}

impl Phase {
    fn overdue(self, next_tick: Instant, now: Instant) -> Option<Event> {
        match self {
            Self::Ending { until } if until <= now => Some(Event::EndingTimedOut),
            _ => (next_tick <= now).then_some(Event::Tick),
        }
    }
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completions",
            Self::Worked(Finished::Expanded(_)) => "the order of an epoch",
            Self::Worked(_) => "the plan of an epoch",
            Self::Client(ClientEvent::Attached { .. }) => "a trainer that came",
            Self::Client(ClientEvent::Requested { .. }) => "a request",
            Self::Client(ClientEvent::Published { .. }) => "a published order",
            Self::Client(ClientEvent::Gone { .. }) => "a trainer that went",
            Self::Client(_) => "a message of a trainer",
            Self::Manager(_) => "a message of the manager",
            Self::Lent(_) => "memory to be lent",
            Self::MetricsRequested(_) => "a question for metrics",
            Self::Peer(_) => "a message of another node",
            Self::Measured(_) => "a look at free memory",
            Self::Tick => "a tick",
            Self::Look => "a look at free memory that may run short",
            Self::StagingLeft => "staging that was left",
            Self::ShutdownAsked | Self::EndingTimedOut => "the end",
        }
    }
}

/// Waits until `time`; for ever without one.
async fn reach(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overdue_comes_before_what_there_always_is() {
        let now = Instant::now();
        let (past, future) = (now - TICK, now + TICK);
        let overdue = |phase: Phase, next_tick| phase.overdue(next_tick, now).map(|it| it.name());
        assert_eq!(overdue(Phase::Serving, future), None);
        assert_eq!(overdue(Phase::Serving, now), Some(Event::Tick.name()));
        assert_eq!(overdue(Phase::Ending { until: future }, past), Some(Event::Tick.name()));
        let timed_out = Some(Event::EndingTimedOut.name());
        assert_eq!(overdue(Phase::Ending { until: now }, past), timed_out);
    }

    /// Trainers that always request something.
    struct Busy {
        phase: Phase,
        next_tick: Instant,
    }

    impl Events for Busy {
        fn overdue(&self, now: Instant) -> Option<Event> {
            self.phase.overdue(self.next_tick, now)
        }

        async fn select(&mut self) -> Event {
            Event::Completed(Vec::new())
        }
    }

    #[tokio::test]
    async fn a_loop_that_is_never_idle_ticks_and_ends() {
        let begun = Instant::now();
        let mut busy = Busy { phase: Phase::Serving, next_tick: begun + TICK };
        let mut ticks = 0;
        for turn in 0..100 {
            // Ten turns of the loop in each tick.
            let now = begun + TICK * turn / 10;
            if let Event::Tick = next_event(&mut busy, now).await {
                ticks += 1;
                busy.next_tick = now + TICK;
            }
        }
        assert_eq!(ticks, 9, "one for each time that passed, the first after {TICK:?}");
        busy.phase = Phase::Ending { until: begun };
        let event = next_event(&mut busy, begun).await;
        assert!(matches!(event, Event::EndingTimedOut), "{}", event.name());
    }
}
