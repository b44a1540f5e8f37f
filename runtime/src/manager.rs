//! The manager: one process per job that tells agents their schedule and knows how far they are.
//!
//! One loop owns the fleet: it waits for one event, lets the core decide, answers. Training does not
//! need it: agents go on when it is gone, and register again when it is back.

mod accept;
mod door;
mod service;
#[cfg(test)]
mod tests;

pub use door::Door;

use std::{collections::BTreeMap, fs, io, path::PathBuf, sync::Arc, time::Duration};

use tierfeed_core::{
    fleet::{self, Direction, Fleet, Notice},
    id::NodeId,
    order::World,
    units::Nanoseconds,
};
use tierfeed_numa_memory::drill;
use tierfeed_resource_gatherer::Available;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use self::service::{Request, Service};
use crate::{
    clock::Clock,
    descriptors,
    observe::metrics::{self, Tally},
    rpc::{JobText, wire},
    run_dir::begun::{Begun, Note},
    shutdown::{self, Shutdown},
    transport::keep_alive::{PINGS, Pings},
};

/// Requests that wait for the loop; more wait in their connections.
const REQUESTS_MAX: usize = 256;

/// Connections beside those of the agents: of `status`, `top`, `drain`, and of agents whose earlier
/// connection is not known to be lost yet.
const CONNECTIONS_BESIDE: usize = 64;

/// Calls of one connection at a time; an agent makes one after the other.
const CALLS_MAX: u32 = 16;

/// A call takes no longer.
const CALL_WITHIN: Duration = Duration::from_secs(10);

/// Headers of a call; those of tierfeed take some hundred bytes.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// How long connections have to close once the manager ends; what is open then is left.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// How long the note of the job has to be written once the manager ends.
const NOTED_WITHIN: Duration = Duration::from_secs(2);

/// How often the fleet looks for silent nodes.
const TICK: Duration = Duration::from_millis(500);

/// How long agents have to end after a drain.
const DRAIN_GRACE: Nanoseconds = Nanoseconds(6_000_000_000);

/// What a manager is started with.
#[derive(Debug)]
pub struct Settings {
    /// The job as agents get it.
    pub job: JobText,
    /// What the fleet decides by.
    pub fleet: fleet::Settings,
    /// Where it is noted that the job has begun ([`crate::run_dir::begun`]).
    pub begun: PathBuf,
}

/// Why a manager stopped before its time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// As given.
        address: String,
        /// As the system says.
        source: io::Error,
    },
    /// The server failed.
    #[error("the manager's server failed")]
    Server(#[source] tonic::transport::Error),
}

enum Event {
    Asked(Request),
    AskedFigures(metrics::Ask),
    Noted,
    Tick,
    ShutdownAsked,
}

/// A manager that listens.
#[derive(Debug)]
pub struct Manager {
    job: String,
    note: Note,
    fleet: Fleet,
    available: BTreeMap<NodeId, (Box<Available>, Nanoseconds)>,
    clock: Clock,
    requests: mpsc::Receiver<Request>,
    shutdown: Shutdown,
    ticks: Interval,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    stop_server: shutdown::Trigger,
    drain_until: Option<Nanoseconds>,
    is_over: bool,
    tally: Tally,
    metrics: Option<metrics::Server>,
}

impl Manager {
    /// Starts to answer at `door`. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(settings: Settings, door: Door, shutdown: Shutdown) -> Self {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let (stop_server, stopped) = shutdown::channel();
        let service = Service::new(settings.job.clone(), sender);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        descriptors::raise_limit();
        let World { nodes, .. } = settings.fleet.order.world;
        let connections_max = 2 * nodes as usize + CONNECTIONS_BESIDE;
        let begun = Begun::new(&settings.job.text, settings.job.index_fingerprint);
        Self {
            job: settings.job.name,
            note: Note::new(settings.begun, begun),
            fleet: Fleet::new(settings.fleet),
            available: BTreeMap::new(),
            clock: Clock::start(),
            requests,
            shutdown,
            ticks,
            server: tokio::spawn(listen(service, door, connections_max, PINGS, stopped)),
            stop_server,
            drain_until: None,
            is_over: false,
            tally: Tally::default(),
            metrics: None,
        }
    }

    /// Answers whoever asks `metrics` as long as it runs.
    #[must_use]
    pub fn watched_at(self, metrics: metrics::Server) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Serves until all agents drained, or until the grace time after the shutdown is over.
    ///
    /// # Errors
    ///
    /// [`ManagerError::Server`] if the server failed.
    pub async fn run(mut self) -> Result<(), ManagerError> {
        while !self.is_over {
            let event = self.select().await;
            drill::pass("manager");
            self.apply(event);
        }
        self.stop_server.pull();
        // Requests that came too late are told so by the closed channel.
        drop(self.requests);
        let closing = timeout(CLOSED_WITHIN, &mut self.server);
        let noting = timeout(NOTED_WITHIN, self.note.end());
        let (closed, noted) = tokio::join!(closing, noting);
        if noted.is_err() {
            tracing::warn!("the run directory does not answer; the note of the job is as it is");
        }
        match closed {
            Ok(Ok(outcome)) => outcome.map_err(ManagerError::Server),
            Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => {
                tracing::debug!("some connections are left open");
                self.server.abort();
                Ok(())
            }
        }
    }

    /// Waits for whatever comes first and decides nothing.
    async fn select(&mut self) -> Event {
        let is_draining = self.drain_until.is_some();
        tokio::select! {
            biased; // Fixed order: many requests must not delay the shutdown.
            () = self.shutdown.recv(), if !is_draining => Event::ShutdownAsked,
            Some(request) = self.requests.recv() => Event::Asked(request),
            ask = next_ask(&mut self.metrics) => Event::AskedFigures(ask),
            Some(()) = self.note.written() => Event::Noted,
            _ = self.ticks.tick() => Event::Tick,
        }
    }

    fn apply(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Asked(request) => {
                self.tally.heard(request.message());
                self.serve(request);
            }
            // An error means that whoever asked hung up.
            Event::AskedFigures(ask) => drop(ask.send(self.tally.families(&self.job, &self.fleet))),
            Event::ShutdownAsked => self.drain(now),
            Event::Noted => (),
            Event::Tick => {
                self.fleet.handle_tick(now);
                if self.drain_until.is_some_and(|end| now >= end) {
                    tracing::warn!("some agents did not end within {DRAIN_GRACE}");
                    self.is_over = true;
                }
            }
        }
        while let Some(notice) = self.fleet.poll_notice() {
            self.tally.announced(&notice);
            self.announce(notice);
        }
    }

    fn serve(&mut self, request: Request) {
        let now = self.clock.now();
        match request {
            Request::Register(registration, reply) => {
                let assigned = self.fleet.handle_registration(registration, now);
                self.tally.registered(&assigned);
                match &assigned {
                    Ok(it) => {
                        self.note.make();
                        self.available.remove(&it.node);
                        tracing::info!(node = it.node.0, generation = it.generation, "node joined");
                    }
                    Err(refusal) => tracing::warn!(%refusal, "node refused"),
                }
                answer(reply, assigned);
            }
            Request::Report { node, incarnation, progress, available, reply } => {
                let direction = self.fleet.handle_progress(node, incarnation, progress, now);
                if let (Direction::Continue | Direction::Drain, Some(it)) = (direction, available) {
                    self.available.insert(node, (it, now));
                }
                answer(reply, direction);
            }
            Request::Drained { node, incarnation, progress, reply } => {
                self.fleet.handle_drained(node, incarnation, progress);
                self.forget_ended(node);
                answer(reply, fleet::Direction::Drain);
            }
            Request::AskMemory { node, incarnation, chunks, reply } => {
                answer(reply, self.fleet.handle_memory_asked(node, incarnation, chunks, now));
            }
            Request::ReturnMemory { node, incarnation, chunks, reply } => {
                answer(reply, self.fleet.handle_memory_returned(node, incarnation, chunks, now));
            }
            Request::Drain(reply) => {
                self.note.strike();
                self.drain(now);
                answer(reply, ());
            }
            Request::Status(reply) => {
                let told = |node| {
                    let (available, at) = self.available.get(&node)?;
                    Some((available.as_ref(), Nanoseconds(now.0.saturating_sub(at.0))))
                };
                answer(reply, wire::status_reply(&self.job, &self.fleet, told));
            }
        }
    }

    /// What an ended node had left says nothing. A message of a process that was replaced ends none.
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
            Notice::Over => self.is_over = true,
        }
    }
}

/// The next who wants the figures; waits for ever if nobody can.
async fn next_ask(metrics: &mut Option<metrics::Server>) -> metrics::Ask {
    let asked = match metrics {
        Some(metrics) => metrics.next().await,
        None => None,
    };
    match asked {
        Some(ask) => ask,
        None => std::future::pending().await,
    }
}

fn answer<T>(reply: oneshot::Sender<T>, answer: T) {
    // An error means that the caller hung up: nobody waits for the answer.
    let _ = reply.send(answer);
}

async fn listen(
    service: Service,
    door: Door,
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
    let door = Arc::new(door);
    let (accepted, incoming) = mpsc::channel(connections_max);
    let accepting = accept::accept(Arc::clone(&door), connections_max, accepted);
    let stopped = async move { stopped.recv().await };
    let serving = server
        .add_service(service.gated())
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), stopped);
    let (outcome, ()) = tokio::join!(serving, accepting);
    if let Door::Unix(_, path) = &*door {
        // A peer that comes later finds no socket, or a new manager's.
        drop(fs::remove_file(path));
    }
    outcome
}
