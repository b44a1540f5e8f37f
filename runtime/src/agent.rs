//! The agent: one process per node that stages batches for the trainers of the node.
//!
//! One loop owns the session: [`Agent::select`] waits for one event and decides nothing, [`Agent::apply`]
//! lets the core decide and starts what it decided, and never waits. Bytes are moved by the threads of
//! the data plane, trainers are served by the thread of the hand-off, the manager is talked to by a task
//! of its own; all three come to an end before the agent does.

mod completions;
mod fetcher;
mod join;
mod limits;
mod link;
mod loans;
mod memory;
mod observe;
mod outcome;
mod start;
mod trainers;

pub use join::JoinError;
pub use observe::Settings as ObserveSettings;
pub use start::AgentError;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use tierfeed_core::{
    fleet::{Assignment, Direction},
    id::{HolderId, NodeId},
    session::{Event as SessionEvent, Session},
    units::Nanoseconds,
};
use tierfeed_prefetcher::{
    fetcher::ObjectCounters,
    handoff::{Briefing, ClientEvent, Server},
    plane::DataPlane,
};
use tierfeed_resource_gatherer::Watch;
use tierfeed_workload_analyzer::{Index, Job};
use tokio::{sync::mpsc, task::JoinSet, time::Interval};

use self::{
    completions::{Completion, Completions},
    limits::Limits,
    link::{FromManager, Link, ToManager},
    loans::Loans,
    memory::Lent,
    observe::Observer,
};
use crate::{
    client::Address,
    clock::Clock,
    footprint::Footprint,
    metrics::Ask,
    places::{Layout, Node},
    published::PublishedOrders,
    report::Report,
    run_dir::{Occupied, RunDir},
    scratch::Scratch,
    shutdown::Shutdown,
    token::Token,
};

/// How often the agent looks at the memory of the node and reports to the manager.
const TICK: Duration = Duration::from_millis(500);

/// Trainers that ended just now are waited for, so that the report counts their last batch.
const FAREWELL: Duration = Duration::from_secs(1);

/// What an agent is started with.
#[derive(Debug)]
pub struct Settings {
    /// Where the manager is.
    pub manager: Address,
    /// What to show it, over a network.
    pub token: Option<Token>,
    /// The number of this node, or `None` for any.
    pub node: Option<NodeId>,
    /// Where sockets and the report go.
    pub run_dir: RunDir,
    /// Where the probe left its report, if anywhere.
    pub tiers_report: Option<PathBuf>,
    /// How it is to be watched.
    pub observe: ObserveSettings,
}

/// What the loop wakes up for.
enum Event {
    Completed(Vec<Completion>),
    Client(ClientEvent),
    Manager(FromManager),
    Lent(Lent),
    Asked(Ask),
    Tick,
    ShutdownAsked,
    FarewellOver,
}

/// Whether the loop goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Waits for trainers that are about to leave.
    Ending {
        until: tokio::time::Instant,
    },
    Over,
}

/// The agent of one node, ready to serve trainers.
#[derive(Debug)]
pub struct Agent {
    job: Job,
    index: Arc<Index>,
    node: Node,
    layout: Layout,
    assignment: Assignment,
    run_dir: RunDir,
    briefing: Briefing,
    session: Session,
    plane: DataPlane,
    cold_engine: String,
    /// What the requests to a bucket come to.
    requests: Option<Arc<ObjectCounters>>,
    server: Server,
    clients: mpsc::Receiver<ClientEvent>,
    completions: Completions,
    link: Link,
    loans: Loans<memory::Chunks>,
    lending: JoinSet<Lent>,
    limits: Limits,
    watch: Watch,
    published: PublishedOrders,
    footprint: Footprint,
    observer: Observer,
    scratch: Option<Scratch>,
    holders: BTreeMap<HolderId, Option<trainers::Reading>>,
    training: Option<trainers::Span>,
    clock: Clock,
    /// When the session was last told how far it may stage ahead.
    staging_told: Nanoseconds,
    ticks: Interval,
    shutdown: Shutdown,
    phase: Phase,
    is_superseded: bool,
    _occupied: Occupied,
}

impl Agent {
    /// Joins the job and starts to listen for trainers.
    ///
    /// # Errors
    ///
    /// As [`AgentError`] tells; nothing runs then.
    pub async fn start(settings: Settings, mut shutdown: Shutdown) -> Result<Self, AgentError> {
        let joined = tokio::select! {
            () = shutdown.recv() => return Err(AgentError::Ended),
            joined = join::join(&settings) => joined?,
        };
        start::agent(joined, settings.run_dir, settings.observe, shutdown).await
    }

    /// Serves trainers until the shutdown or until the manager asks for an end. Writes the report
    /// unless another process took this one's place.
    ///
    /// # Errors
    ///
    /// If the report cannot be written.
    pub async fn run(mut self) -> Result<Option<Report>, AgentError> {
        self.carry_out();
        while self.phase != Phase::Over {
            let event = self.select().await;
            self.apply(event);
        }
        outcome::conclude(self).await
    }

    /// Waits for whatever comes first and decides nothing.
    async fn select(&mut self) -> Event {
        let is_serving = self.phase == Phase::Serving;
        let farewell = match self.phase {
            Phase::Ending { until } => Some(until),
            Phase::Serving | Phase::Over => None,
        };
        tokio::select! {
            biased; // Fixed order: what trainers wait for comes before what they ask next.
            () = self.shutdown.recv(), if is_serving => Event::ShutdownAsked,
            done = self.completions.next() => Event::Completed(done),
            Some(event) = self.clients.recv() => Event::Client(event),
            message = self.link.next() => Event::Manager(message),
            Some(Ok(lent)) = self.lending.join_next() => Event::Lent(lent),
            ask = self.observer.next() => Event::Asked(ask),
            () = reach(farewell) => Event::FarewellOver,
            _ = self.ticks.tick() => Event::Tick,
        }
    }

    /// Lets the core decide, then starts what it decided. Never waits.
    fn apply(&mut self, event: Event) {
        match event {
            Event::Completed(done) => {
                for (op, outcome) in done {
                    self.tell(SessionEvent::Completed { op, outcome });
                }
            }
            Event::Client(event) => self.apply_client(event),
            Event::Manager(FromManager::Direction(direction)) => self.follow(direction),
            Event::Manager(FromManager::Loan(answer)) => self.apply_loan_answer(answer),
            Event::Lent(lent) => self.apply_lent(lent),
            Event::Asked(ask) => self.answer_metrics(ask),
            Event::Tick => self.apply_tick(),
            Event::ShutdownAsked => self.end(),
            Event::FarewellOver => self.phase = Phase::Over,
        }
        self.carry_out();
        self.poll_room();
        if matches!(self.phase, Phase::Ending { .. }) && self.holders.is_empty() {
            self.phase = Phase::Over;
        }
    }

    fn tell(&mut self, event: SessionEvent) {
        self.session.handle(event, self.clock.now());
    }

    fn carry_out(&mut self) {
        while let Some(command) = self.session.poll_command() {
            if let Some(command) = self.plane.start_command(command) {
                self.answer_trainer(command);
            }
        }
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
            self.phase = Phase::Ending { until: tokio::time::Instant::now() + FAREWELL };
        }
    }

    fn apply_tick(&mut self) {
        self.footprint.note(&self.plane.usage(), self.loans.granted());
        if let Some(scratch) = &mut self.scratch {
            scratch.look();
        }
        let available = self.look_around();
        if let Some(available) = &available {
            self.adapt(available);
        }
        let progress = outcome::summary(self.session.progress(), &self.layout);
        // A line that is busy gets the next report instead.
        let _ = self.link.try_send(ToManager::Report(progress, available.map(Box::new)));
    }
}

/// Waits for a time, or for ever without one.
async fn reach(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
