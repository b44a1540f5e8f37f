//! The agent's side: admits trainers, reports what they request, and hands batches out.
//!
//! One thread waits for everything that clients do and turns it into [`ClientEvent`]s; it makes no
//! decisions. The agent's own loop answers through the methods of [`Server`], which never block:
//! limits ensure that a ring has room, and a client that does not read its packets is disconnected.
//!
//! A client is never trusted. Its messages are checked here, against the agent's own table of what
//! it requested and what it holds, so that the session only receives events that are possible.
//!
//! Invariants, checked by the tests:
//!
//! 1. Each connection that an event named is reported gone exactly once, and no later event names
//!    it.
//! 2. A connection releases only leases that it holds, each once.
//! 3. No client can make the thread or a method of [`Server`] block, panic or spin.

mod connection;
mod error;
mod event_loop;
mod member;
mod publication;
mod reader;
mod trainer;
mod violation;
mod watch;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
};

use rustix::event::{EventfdFlags, eventfd};
use tierfeed_core::{
    batch::Batch,
    fleet::launch::JobWorld,
    id::{BatchId, ConnectionId, Epoch, LeaseId, Rank, SampleId, TierId},
    retention::in_place::SHARED_TIERS_MAX,
    session::{Refusal, Tally, Wait},
    units::Bytes,
};
use tierfeed_numa_memory::Region;

use self::{connection::Connection, event_loop::EventLoop, watch::Watch};
pub use self::{
    error::{AdmitError, GrantError, LeaseError},
    violation::Violation,
};
use super::{
    briefing::Briefing,
    channel::Channel,
    descriptors::Descriptors,
    endpoint::{BindError, Endpoint},
    entry::ReleaseKind,
    message::{EXPLAINED_MAX, FromAgent, GrantId, Pages, RequestId, Role, SampleReason},
    wake,
};
use crate::SharedTier;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. Each costs the agent six descriptors.
    pub connections_max: u32,
    /// Batches that one connection has requested and that are neither refused nor released; a power
    /// of two from 2 to 1024.
    pub window: u32,
    /// Largest number of samples in one published epoch of one rank.
    pub published_samples_max: u32,
}

impl Limits {
    /// Limits for a node with up to 16 ranks and 16 loader workers each.
    pub const STANDARD: Self =
        Self { connections_max: 512, window: 256, published_samples_max: 1 << 28 };
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("window is {window}; it must be a power of two from 2 to 1024")]
    Window { window: u32 },
    #[error("cannot start to serve trainers")]
    System(#[source] io::Error),
}

/// Actions of clients, in the order in which each client performed them.
#[derive(Debug)]
pub enum ClientEvent {
    /// A client that reads batches connected. Answer with [`Server::admit`] or [`Server::close`].
    Attached {
        connection: ConnectionId,
        /// The rank that it reads for: one of the job and of this node.
        rank: Rank,
        /// Whether it trains or works for a loader, as the client states.
        role: Role,
        /// Process number of the training process that it reads for, in the agent's namespace;
        /// `None` if that process is not visible there.
        trainer: Option<u32>,
        pages: Pages,
    },
    /// A process that is none of the ranks of the job wanted to read; it was told the reason.
    TurnedAway {
        /// Which sources contradict each other, and what to change.
        reason: String,
    },
    /// Answer with [`Server::lease`] or [`Server::refuse`].
    Requested { connection: ConnectionId, batch: BatchId },
    Delivered {
        connection: ConnectionId,
        /// The connection holds it, and each lease is reported at most once.
        lease: LeaseId,
        /// Start and end of the trainer's wait for it, as the client states: any two numbers.
        wait: Wait,
    },
    /// A trainer reports what it did without the agent.
    Tallied {
        connection: ConnectionId,
        rank: Rank,
        /// The figures, as the client states: any numbers.
        tally: Tally,
    },
    Released {
        connection: ConnectionId,
        /// The connection held it.
        lease: LeaseId,
        release_kind: ReleaseKind,
    },
    /// A client handed over what its rank reads in an epoch. Answer with [`Server::took_order`];
    /// until then it publishes nothing else.
    Published {
        connection: ConnectionId,
        request: RequestId,
        rank: Rank,
        epoch: Epoch,
        /// In reading order.
        samples: Vec<SampleId>,
    },
    /// Answer with [`Server::explain`].
    ExplanationWanted {
        connection: ConnectionId,
        request: RequestId,
        /// Any numbers.
        samples: Vec<SampleId>,
    },
    /// Answer with [`Server::grant`] or [`Server::deny`].
    MemoryRequested {
        connection: ConnectionId,
        request: RequestId,
        /// At least one byte.
        bytes: Bytes,
    },
    MemoryFreed {
        connection: ConnectionId,
        /// The connection held it.
        grant: GrantId,
    },
    /// A connection ended, with its requests, leases, grants and published orders.
    Gone { connection: ConnectionId, cause: DisconnectCause },
}

#[derive(Debug)]
pub enum DisconnectCause {
    Left,
    ProcessEnded,
    Closed,
    Violation(Violation),
}

impl fmt::Display for DisconnectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("it left"),
            Self::ProcessEnded => f.write_str("its process ended"),
            Self::Closed => f.write_str("the agent closed it"),
            Self::Violation(violation) => write!(f, "it broke a rule: {violation}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Sent,
    /// The client has disconnected; its [`ClientEvent::Gone`] was reported or follows.
    Gone,
}

/// Receives the events, on the thread of the server. It must not panic. It may wait for room in a
/// queue, which delays all clients; the consumer of that queue must then drop it before it ends the
/// server.
pub type Events = Box<dyn Fn(ClientEvent) + Send>;

#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    channel: Channel,
    watch: Watch,
    tiers: OnceLock<Vec<SharedTier>>,
    connections: Mutex<BTreeMap<ConnectionId, Connection>>,
}

impl Shared {
    /// Never held while an event is reported, so the receiver may call the server.
    fn connections(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Listens at `path` and reports what clients do to `events`. Admits the ranks of `post` only,
    /// and one training process for each.
    ///
    /// # Errors
    ///
    /// Nothing runs then, and no file is left.
    pub fn bind(
        path: &Path,
        limits: Limits,
        post: JobWorld,
        events: Events,
    ) -> Result<Self, StartError> {
        Self::bind_with(path, limits, post, events, Descriptors::Refused)
    }

    pub(super) fn bind_with(
        path: &Path,
        limits: Limits,
        post: JobWorld,
        events: Events,
        descriptors: Descriptors,
    ) -> Result<Self, StartError> {
        let window = limits.window;
        let channel = Channel::new(window).ok_or(StartError::Window { window })?;
        let system = |errno: rustix::io::Errno| StartError::System(errno.into());
        let endpoint = Endpoint::bind(path, descriptors)?;
        let watch = Watch::new().map_err(system)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let stop = Arc::new(stop);
        let connections = Mutex::default();
        let tiers = OnceLock::new();
        let shared = Arc::new(Shared { limits, channel, watch, tiers, connections });
        let thread = EventLoop::new(Arc::clone(&shared), post, endpoint, Arc::clone(&stop), events)
            .map_err(system)?;
        let thread = thread::Builder::new()
            .name("tierfeed-handoff".into())
            .spawn(move || thread.run())
            .map_err(StartError::System)?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    /// Shares these tiers with every client that is admitted from now on, so that a batch may name
    /// samples in them; call it once, with at most [`SHARED_TIERS_MAX`] tiers.
    ///
    /// # Errors
    ///
    /// The tiers beyond the limit, which are not shared.
    pub fn share_tiers(&self, mut shared_tiers: Vec<SharedTier>) -> Result<(), Vec<TierId>> {
        let beyond = shared_tiers.split_off(shared_tiers.len().min(SHARED_TIERS_MAX));
        self.shared.tiers.get_or_init(|| shared_tiers);
        if beyond.is_empty() { Ok(()) } else { Err(beyond.iter().map(SharedTier::tier).collect()) }
    }

    /// Admits a client: sends it its briefing, its rings, the staging memory of its rank, and the
    /// memory of [shared](Self::share_tiers) tiers.
    ///
    /// The connection keeps `arena` alive until the client is gone.
    ///
    /// # Errors
    ///
    /// If the rings cannot be created or the briefing is too long for a packet. The client still
    /// waits then; close the connection.
    pub fn admit(
        &self,
        id: ConnectionId,
        briefing: &Briefing,
        arena: Arc<Region>,
    ) -> Result<Delivery, AdmitError> {
        self.answer(id, |connection| connection.admit(id, briefing, arena, &self.shared))
    }

    /// Hands a batch over: writes its table behind its samples, then notifies the client.
    ///
    /// `label` returns the label of a sample, 0 or more; without one the table says so.
    ///
    /// # Errors
    ///
    /// If the client has no open request, was not admitted, or the batch does not lie in its arena.
    /// Nothing is handed over then.
    pub fn lease(
        &self,
        id: ConnectionId,
        lease: LeaseId,
        offset: Bytes,
        batch: &Batch,
        label: impl Fn(SampleId) -> Option<i64>,
    ) -> Result<Delivery, LeaseError> {
        self.answer(id, |connection| connection.lease(lease, offset, batch, label))
    }

    /// Tells a client that a batch is refused.
    ///
    /// # Errors
    ///
    /// If the client has no open request or was not admitted.
    pub fn refuse(
        &self,
        id: ConnectionId,
        batch: BatchId,
        refusal: Refusal,
    ) -> Result<Delivery, LeaseError> {
        self.answer(id, |connection| connection.refuse(batch, refusal))
    }

    /// Tells a client that the order which it published is in effect, so that it may request
    /// batches of it.
    pub fn took_order(&self, id: ConnectionId, request: RequestId) -> Delivery {
        let Ok(delivery) =
            self.answer(id, |connection| Ok::<_, Infallible>(connection.took_order(request)));
        delivery
    }

    /// The entries that clients put into their rings without waking the thread of the server.
    #[must_use]
    pub fn unread(&self) -> Vec<ClientEvent> {
        let mut events = Vec::new();
        for (id, connection) in self.shared.connections().iter_mut() {
            // One that breaks a rule is met by the thread.
            let _ = connection.drain(*id, &mut events);
        }
        events
    }

    pub fn explain(
        &self,
        id: ConnectionId,
        request: RequestId,
        reasons: impl IntoIterator<Item = (SampleId, String)>,
    ) -> Delivery {
        let reasons = reasons.into_iter().take(EXPLAINED_MAX);
        let reasons =
            reasons.map(|(sample, reason)| SampleReason::new(sample.0, &reason)).collect();
        let explained = FromAgent::Explained { request, reasons };
        let Ok(delivery) =
            self.answer(id, |connection| Ok::<_, Infallible>(connection.send(&explained)));
        delivery
    }

    /// Gives memory to a client that requested it. A client's mapping stays until it unmaps it or
    /// ends, independent of the agent.
    ///
    /// # Errors
    ///
    /// If the request is not open, or takes more than [`GRANT_CHUNKS_MAX`](super::GRANT_CHUNKS_MAX)
    /// chunks.
    pub fn grant(
        &self,
        id: ConnectionId,
        request: RequestId,
        grant: GrantId,
        chunks: &[&Region],
    ) -> Result<Delivery, GrantError> {
        self.answer(id, |connection| connection.grant(request, grant, chunks))
    }

    /// Tells a client why it gets no memory.
    ///
    /// # Errors
    ///
    /// If the request is not open.
    pub fn deny(
        &self,
        id: ConnectionId,
        request: RequestId,
        reason: impl fmt::Display,
    ) -> Result<Delivery, GrantError> {
        self.answer(id, |connection| connection.deny(request, &reason))
    }

    /// Ends a connection and tells its client why. [`ClientEvent::Gone`] follows.
    pub fn close(&self, id: ConnectionId, reason: impl fmt::Display) {
        if let Some(connection) = self.shared.connections().get_mut(&id) {
            connection.end_with_reason(&reason);
        }
    }

    /// Stops the thread from handling packets until the returned value is dropped.
    #[cfg(test)]
    pub(super) fn paused(&self) -> impl Sized + '_ {
        self.shared.connections()
    }

    /// Ends all connections, removes the socket and joins the thread. No event is reported
    /// afterwards.
    pub fn shutdown(mut self) {
        self.stop_and_join();
    }

    /// Answers a client that is still connected.
    fn answer<E>(
        &self,
        id: ConnectionId,
        answer: impl FnOnce(&mut Connection) -> Result<Delivery, E>,
    ) -> Result<Delivery, E> {
        let mut connections = self.shared.connections();
        let connection = connections.get_mut(&id).filter(|connection| !connection.has_ended);
        connection.map_or(Ok(Delivery::Gone), answer)
    }

    fn stop_and_join(&mut self) {
        wake::wake_agent(&*self.stop);
        if let Some(thread) = self.thread.take() {
            // The panic of a thread has already been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}
