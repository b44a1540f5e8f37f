//! The manager: one process per job that tells agents their schedule and knows how far they are.
//!
//! One loop owns the fleet: it waits for one event, lets the core decide, answers. Training does not
//! need it: agents go on when it is gone, and register again when it is back.

mod door;
mod service;
#[cfg(test)]
mod tests;

pub use door::Door;

use std::{collections::BTreeMap, fs, io, path::PathBuf, time::Duration};

use tierfeed_core::{
    fleet::{self, Direction, Fleet, Notice},
    id::NodeId,
    units::Nanoseconds,
};
use tierfeed_resource_gatherer::Available;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Interval, MissedTickBehavior},
};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::Server;

use self::service::{Gate, Request, Service};
use crate::{
    clock::Clock,
    metrics::{self, Tally},
    shutdown::{self, Shutdown},
    wire,
};

/// Requests that wait for the loop; more wait in their connections.
const REQUESTS_MAX: usize = 256;

/// How often the fleet looks for silent nodes.
const TICK: Duration = Duration::from_millis(500);

/// How long agents have to end after a drain.
const DRAIN_GRACE: Nanoseconds = Nanoseconds(20_000_000_000);

/// What a manager is started with.
#[derive(Debug)]
pub struct Settings {
    /// The job as agents get it.
    pub job: JobText,
    /// What the fleet decides by.
    pub fleet: fleet::Settings,
}

/// A job as text, so that agents need no file of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobText {
    /// The name of the job.
    pub name: String,
    /// The content of the job file.
    pub text: String,
    /// Where the file is; relative paths in it start at its directory. Absolute.
    pub file: PathBuf,
    /// Of the dataset's index.
    pub index_fingerprint: u64,
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
    Tick,
    ShutdownAsked,
}

/// A manager that listens.
#[derive(Debug)]
pub struct Manager {
    job: String,
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
        Self {
            job: settings.job.name,
            fleet: Fleet::new(settings.fleet),
            available: BTreeMap::new(),
            clock: Clock::start(),
            requests,
            shutdown,
            ticks,
            server: tokio::spawn(listen(service, door, stopped)),
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
            self.apply(event);
        }
        self.stop_server.pull();
        // Requests that came too late are told so by the closed channel.
        drop(self.requests);
        match self.server.await {
            Ok(outcome) => outcome.map_err(ManagerError::Server),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
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
    mut stopped: Shutdown,
) -> Result<(), tonic::transport::Error> {
    let mut server = Server::builder().timeout(Duration::from_secs(10));
    let stopped = async move { stopped.recv().await };
    match door {
        Door::Unix(listener, path) => {
            let router = server.add_service(service.behind(Gate::SameUser));
            let incoming = UnixListenerStream::new(listener);
            let outcome = router.serve_with_incoming_shutdown(incoming, stopped).await;
            // Whoever comes later finds no socket, or a new manager's.
            drop(fs::remove_file(path));
            outcome
        }
        Door::Tcp(listener, token) => {
            let router = server.add_service(service.behind(Gate::Token(token)));
            let incoming = TcpListenerStream::new(listener);
            router.serve_with_incoming_shutdown(incoming, stopped).await
        }
    }
}
