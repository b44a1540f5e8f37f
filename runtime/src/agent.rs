//! The agent: one process per node that stages batches for the trainers of the node.
//!
//! One loop owns the session: [`Events::select`] waits for one event and decides nothing, [`Agent::apply`]
//! lets the core decide and starts what it decided, and never waits. Bytes are moved by the threads of
//! the data plane, trainers are served by the thread of the hand-off, the manager is talked to by a task
//! of its own; all three come to an end before the agent does.

mod attendance;
mod completions;
mod error;
mod fetcher;
#[cfg(test)]
mod generated_runs;
mod jobs;
mod join;
mod limits;
mod link;
mod loans;
mod looks;
mod memory;
mod observe;
mod outcome;
mod publications;
mod readers;
mod start;
mod starvation;
mod trainers;

pub use error::{AgentError, JoinError};
pub use observe::Settings as ObserveSettings;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use tierfeed_core::{
    fleet::{Assignment, Direction},
    id::ConnectionId,
    session::{Command, Event as SessionEvent, Finished, Session},
    units::Nanoseconds,
};
use tierfeed_dataset::Index;
use tierfeed_handoff::{Briefing, ClientEvent, Server};
use tierfeed_numa_memory::drill;
use tierfeed_prefetcher::{fetcher::ObjectCounters, plane::DataPlane};
use tierfeed_workload_analyzer::Job;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use self::{
    attendance::Attendance,
    completions::{Completion, Completions},
    jobs::Jobs,
    limits::Limits,
    link::{FromManager, Link, ToManager},
    loans::Loans,
    looks::{Looks, Room},
    memory::Lent,
    observe::Observer,
    publications::Publications,
    readers::Readers,
    starvation::Starvation,
};
use crate::{
    client::Address,
    clock::Clock,
    footprint::Footprint,
    metrics::Ask,
    pauses::Pauses,
    places::{Layout, Node},
    report::Report,
    run_dir::{Occupied, RunDir},
    shutdown::Shutdown,
    token::Token,
};

/// How often the agent looks at the memory of the node, and then reports to the manager.
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
    /// What its launcher says of this process, as in the table of [`tierfeed_core::fleet::launch`]: the node.
    pub launch: BTreeMap<String, String>,
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
    Worked(Finished),
    Client(ClientEvent),
    Manager(FromManager),
    Lent(Lent),
    Asked(Ask),
    Looked(Room),
    Written,
    Tick,
    More,
    ShutdownAsked,
    FarewellOver,
}

/// Whether the loop goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Waits for trainers that are about to leave.
    Ending {
        until: Instant,
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
    jobs: Jobs,
    link: Link,
    loans: Loans<memory::Chunks>,
    lending: JoinSet<Lent>,
    limits: Limits,
    looks: Looks,
    published: Publications,
    footprint: Footprint,
    observer: Observer,
    connections: BTreeMap<ConnectionId, Option<trainers::Reading>>,
    readers: Readers,
    starvation: Starvation,
    training: Option<trainers::Span>,
    attendance: Attendance,
    clock: Clock,
    /// When the session was last told how far it may stage ahead.
    staging_told: Nanoseconds,
    next_tick: Instant,
    pauses: Pauses,
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
            let event = next_event(&mut self, Instant::now()).await;
            drill::pass("loop");
            let (name, stopwatch) = (event.name(), self.clock.stopwatch());
            self.apply(event);
            self.pauses.note(name, stopwatch.elapsed());
        }
        outcome::conclude(self).await
    }

    /// Lets the core decide, then starts what it decided. Never waits.
    fn apply(&mut self, event: Event) {
        match event {
            Event::Completed(done) => {
                for Completion { op, outcome, at } in done {
                    self.session.handle(SessionEvent::Completed { op, outcome }, at);
                }
            }
            Event::Worked(finished) => self.session.finish(finished, self.clock.now()),
            Event::Client(event) => self.apply_client(event),
            Event::Manager(FromManager::Direction(direction)) => self.follow(direction),
            Event::Manager(FromManager::Loan(answer)) => self.apply_loan_answer(answer),
            Event::Lent(lent) => self.apply_lent(lent),
            Event::Asked(ask) => self.answer_metrics(ask),
            Event::Looked(room) => self.apply_room(room),
            Event::Tick => self.apply_tick(),
            Event::Written | Event::More => (),
            Event::ShutdownAsked => self.end(),
            Event::FarewellOver => self.phase = Phase::Over,
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
                Command::Start { op, operation } => self.plane.execute(op, operation),
                Command::Free(memory) => self.plane.free(memory),
                Command::Answer(answer) => self.answer_trainer(answer),
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
            self.phase = Phase::Ending { until: Instant::now() + FAREWELL };
        }
    }

    fn apply_tick(&mut self) {
        self.next_tick = Instant::now() + TICK;
        self.footprint.note(&self.plane.usage(), self.loans.granted());
        self.starvation.look();
        if let Some(ranks) = self.attendance.overdue(self.clock.now()) {
            tracing::warn!(
                ?ranks,
                "ranks have not connected while others train; they may read by themselves"
            );
        }
        self.looks.begin();
    }

    /// Fits memory to what the node has left, and tells the manager.
    fn apply_room(&mut self, room: Room) {
        let Room { available, group_limit } = room;
        group_limit.into_iter().for_each(|limit| self.node.follow_limit(limit));
        if let Some(available) = &available {
            self.adapt(available);
        }
        let progress = outcome::summary(self.session.progress(), &self.layout);
        // A line that is busy gets the next report instead.
        let _ = self.link.try_send(ToManager::Report(progress, available.map(Box::new)));
    }
}

/// What the loop gets its events from.
trait Events {
    /// What should have happened by `now`.
    fn overdue(&self, now: Instant) -> Option<Event>;

    /// Waits for whatever comes first and decides nothing.
    async fn select(&mut self) -> Event;
}

/// What the loop does next. What is overdue comes before what others wait for: an agent that is never
/// idle still gives memory back and tells its manager that it lives.
async fn next_event(events: &mut impl Events, now: Instant) -> Event {
    match events.overdue(now) {
        Some(event) => event,
        None => events.select().await,
    }
}

impl Events for Agent {
    fn overdue(&self, now: Instant) -> Option<Event> {
        self.phase.overdue(self.next_tick, now)
    }

    async fn select(&mut self) -> Event {
        let is_serving = self.phase == Phase::Serving;
        let farewell = match self.phase {
            Phase::Ending { until } => Some(until),
            Phase::Serving | Phase::Over => None,
        };
        tokio::select! {
            biased; // What comes seldom first, then what trainers wait for, then what they ask next.
            () = self.shutdown.recv(), if is_serving => Event::ShutdownAsked,
            Some(room) = self.looks.next() => Event::Looked(room),
            Some(finished) = self.jobs.next() => Event::Worked(finished),
            message = self.link.next() => Event::Manager(message),
            Some(Ok(lent)) = self.lending.join_next() => Event::Lent(lent),
            Some(()) = self.published.written() => Event::Written,
            done = self.completions.next() => Event::Completed(done),
            Some(event) = self.clients.recv() => Event::Client(event),
            ask = self.observer.next() => Event::Asked(ask),
            () = reach(farewell) => Event::FarewellOver,
            () = tokio::time::sleep_until(self.next_tick) => Event::Tick,
            () = std::future::ready(()), if self.session.has_more() => Event::More,
        }
    }
}

impl Phase {
    fn overdue(self, next_tick: Instant, now: Instant) -> Option<Event> {
        match self {
            Self::Ending { until } if until <= now => Some(Event::FarewellOver),
            _ => (next_tick <= now).then_some(Event::Tick),
        }
    }
}

impl Event {
    /// What the report calls it.
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
            Self::Asked(_) => "a question for metrics",
            Self::Looked(_) => "a look at free memory",
            Self::Written => "a published order that was written",
            Self::Tick => "a tick",
            Self::More => "staging that was left",
            Self::ShutdownAsked | Self::FarewellOver => "the end",
        }
    }
}

/// Waits for a time, or for ever without one.
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
        let farewell = Some(Event::FarewellOver.name());
        assert_eq!(overdue(Phase::Ending { until: now }, past), farewell);
    }

    /// Trainers who always ask for something.
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
        assert!(matches!(event, Event::FarewellOver), "{}", event.name());
    }
}
