//! The agent's side: lets trainers in, tells the agent what they want, and hands batches out.
//!
//! One thread waits on everything that a client can do and turns it into [`ClientEvent`]s; it decides
//! nothing. The agent's own loop answers through the methods of [`Server`], which never wait: limits
//! make sure that a ring has room, and a client that does not read its packets is let go.
//!
//! A client is never trusted. What it sends is checked here, against the agent's own table of what it
//! asked for and what it holds, so that the session hears only of things that are possible.
//!
//! Invariants, checked by the tests:
//!
//! 1. Each holder that was named in an event is reported gone exactly once, and never named after.
//! 2. A holder releases only leases that it holds, each once.
//! 3. No client can make the thread or a method of [`Server`] wait, panic or spin.

mod connection;
mod error;
mod member;
mod publication;
mod reader;
mod reception;
mod trainer;
mod violation;
mod watch;

use std::{
    collections::BTreeMap,
    fmt, io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
};

use rustix::event::{EventfdFlags, eventfd};
use tierfeed_core::{
    batch::Batch,
    fleet::launch::Post,
    id::{BatchId, ConnectionId, Epoch, LeaseId, Rank, SampleId, TierId},
    session::{Refusal, Tally, Wait},
    units::Bytes,
};
use tierfeed_numa_memory::Region;

use self::{connection::Connection, reception::Reception, watch::Watch};
pub use self::{
    error::{AdmitError, GrantError, LeaseError},
    violation::Violation,
};
use super::{
    briefing::Briefing,
    channel::Channel,
    descriptors::Descriptors,
    endpoint::{BindError, Endpoint},
    entry::Parting,
    message::{GrantId, RequestId, Role, SHELVES_MAX},
    wake,
};
use crate::Shelved;

/// What the clients of one agent may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. Each costs the agent six descriptors.
    pub connections_max: u32,
    /// Batches that one connection has asked for and neither got refused nor given back; a power of
    /// two from 2 to 1024.
    pub window: u32,
    /// Samples in one published epoch of one rank.
    pub published_samples_max: u32,
}

impl Limits {
    /// For a node with up to 16 ranks and 16 loader workers each.
    pub const STANDARD: Self =
        Self { connections_max: 512, window: 256, published_samples_max: 1 << 28 };
}

/// Why the agent cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The socket cannot be made.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The limit is not one that rings can have.
    #[error("window is {window}; it must be a power of two from 2 to 1024")]
    Window {
        /// As given.
        window: u32,
    },
    /// The system refused a descriptor or a thread.
    #[error("cannot start to serve trainers")]
    System(#[source] io::Error),
}

/// What clients did, in the order in which each did it.
#[derive(Debug)]
pub enum ClientEvent {
    /// A reader of batches connected. Answer with [`Server::admit`] or [`Server::close`].
    Attached {
        /// The connection.
        holder: ConnectionId,
        /// The rank that it reads for: one of the job and of this node.
        rank: Rank,
        /// Whether it trains or works for a loader, as it says.
        role: Role,
        /// Process number of the training that it reads for, in the agent's namespace; `None` where that
        /// process is out of sight.
        trainer: Option<u32>,
    },
    /// A process that is none of the ranks of the job wanted to read; it was told why.
    TurnedAway {
        /// Which sources contradict each other, and what to change.
        reason: String,
    },
    /// It wants a batch. Answer with [`Server::lease`] or [`Server::refuse`].
    Requested {
        /// Who.
        holder: ConnectionId,
        /// What.
        batch: BatchId,
    },
    /// Its trainer starts to use a batch.
    Delivered {
        /// Who.
        holder: ConnectionId,
        /// What; never one that it does not hold, and each at most once.
        lease: LeaseId,
        /// From when until when the trainer waited for it, as it says: any two numbers.
        wait: Wait,
    },
    /// Its trainer tells what it did itself.
    Tallied {
        /// Who.
        holder: ConnectionId,
        /// The rank of the connection.
        rank: Rank,
        /// What, as it says: any numbers.
        tally: Tally,
    },
    /// It gave a batch back.
    Released {
        /// Who.
        holder: ConnectionId,
        /// What; never one that it does not hold.
        lease: LeaseId,
        /// Whether it goes on with a copy.
        parting: Parting,
    },
    /// It handed over what its rank reads in an epoch. Answer with [`Server::took_order`]; until then it
    /// publishes nothing else.
    Published {
        /// Who.
        holder: ConnectionId,
        /// Names the publication in the answer.
        request: RequestId,
        /// The rank of the connection.
        rank: Rank,
        /// Of which epoch.
        epoch: Epoch,
        /// The samples in reading order.
        samples: Vec<SampleId>,
    },
    /// It wants memory. Answer with [`Server::grant`] or [`Server::deny`].
    MemoryRequested {
        /// Who.
        holder: ConnectionId,
        /// Names the request in the answer.
        request: RequestId,
        /// How much, at least one byte.
        bytes: Bytes,
    },
    /// It gave memory back.
    MemoryFreed {
        /// Who.
        holder: ConnectionId,
        /// What; never one that it does not have.
        grant: GrantId,
    },
    /// It is gone, with its requests, leases, grants and published orders.
    Gone {
        /// Which connection.
        holder: ConnectionId,
        /// Why, for the log.
        cause: Departure,
    },
}

/// Why a connection ended.
#[derive(Debug)]
pub enum Departure {
    /// The client closed it.
    Left,
    /// The process ended.
    ProcessEnded,
    /// The agent closed it.
    Closed,
    /// The client broke a rule.
    Violation(Violation),
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("it left"),
            Self::ProcessEnded => f.write_str("its process ended"),
            Self::Closed => f.write_str("the agent closed it"),
            Self::Violation(violation) => write!(f, "it broke a rule: {violation}"),
        }
    }
}

/// Whether an answer reached its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It was sent.
    Sent,
    /// The client is gone; its [`ClientEvent::Gone`] was reported or is on its way.
    Gone,
}

/// Takes the events, on the thread of the server. It must not panic. It may wait for room in a queue,
/// which holds up all clients; then whoever empties that queue must drop it before it ends the server.
pub type Events = Box<dyn Fn(ClientEvent) + Send>;

/// The agent's side of all connections.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the methods of the server both touch.
#[derive(Debug)]
struct Shared {
    limits: Limits,
    channel: Channel,
    watch: Watch,
    shelves: OnceLock<Vec<Shelved>>,
    connections: Mutex<BTreeMap<ConnectionId, Connection>>,
}

impl Shared {
    /// Never held while an event is reported, so the receiver may call the server.
    fn connections(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Listens at `path` and reports what clients do to `events`. Lets in the ranks of `post` only, and
    /// one training process for each.
    ///
    /// # Errors
    ///
    /// As [`StartError`] tells; nothing runs and no file is left then.
    pub fn bind(
        path: &Path,
        limits: Limits,
        post: Post,
        events: Events,
    ) -> Result<Self, StartError> {
        Self::bind_with(path, limits, post, events, Descriptors::Refused)
    }

    pub(super) fn bind_with(
        path: &Path,
        limits: Limits,
        post: Post,
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
        let shelves = OnceLock::new();
        let shared = Arc::new(Shared { limits, channel, watch, shelves, connections });
        let reception =
            Reception::new(Arc::clone(&shared), post, endpoint, Arc::clone(&stop), events)
                .map_err(system)?;
        let thread = thread::Builder::new()
            .name("tierfeed-handoff".into())
            .spawn(move || reception.run())
            .map_err(StartError::System)?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    /// Shows these tiers to every reader that is let in from now on, so that a batch may name samples
    /// there; once, and at most [`SHELVES_MAX`] of them.
    ///
    /// # Errors
    ///
    /// The tiers beyond.
    pub fn show(&self, mut shelves: Vec<Shelved>) -> Result<(), Vec<TierId>> {
        let beyond = shelves.split_off(shelves.len().min(SHELVES_MAX));
        self.shared.shelves.get_or_init(|| shelves);
        if beyond.is_empty() { Ok(()) } else { Err(beyond.iter().map(Shelved::tier).collect()) }
    }

    /// Lets a reader in: sends it its briefing, its rings, the staging memory of its rank, and the memory
    /// of tiers that is [shown](Self::show).
    ///
    /// The connection keeps `arena` alive until the holder is gone.
    ///
    /// # Errors
    ///
    /// If the rings cannot be made or the briefing is too long for a packet. The holder still waits
    /// then; close it.
    pub fn admit(
        &self,
        holder: ConnectionId,
        briefing: &Briefing,
        arena: Arc<Region>,
    ) -> Result<Delivery, AdmitError> {
        let mut connections = self.shared.connections();
        let Some(connection) = living(&mut connections, holder) else { return Ok(Delivery::Gone) };
        connection.admit(holder, briefing, arena, &self.shared)
    }

    /// Hands a batch over: writes its table behind its samples, then tells the client.
    ///
    /// `label` names the label of a sample, 0 or more; without one the table says so.
    ///
    /// # Errors
    ///
    /// If the holder did not ask, was not admitted, or the batch does not lie in its arena. Nothing is
    /// handed over then.
    pub fn lease(
        &self,
        holder: ConnectionId,
        lease: LeaseId,
        offset: Bytes,
        batch: &Batch,
        label: impl Fn(SampleId) -> Option<i64>,
    ) -> Result<Delivery, LeaseError> {
        let mut connections = self.shared.connections();
        let Some(connection) = living(&mut connections, holder) else { return Ok(Delivery::Gone) };
        connection.lease(lease, offset, batch, label)
    }

    /// Tells a client that it will not get a batch.
    ///
    /// # Errors
    ///
    /// If the holder did not ask or was not admitted.
    pub fn refuse(
        &self,
        holder: ConnectionId,
        batch: BatchId,
        refusal: Refusal,
    ) -> Result<Delivery, LeaseError> {
        let mut connections = self.shared.connections();
        let Some(connection) = living(&mut connections, holder) else { return Ok(Delivery::Gone) };
        connection.refuse(batch, refusal)
    }

    /// Tells a client that the order which it published holds from now on, so that it may ask for batches
    /// of it.
    pub fn took_order(&self, holder: ConnectionId, request: RequestId) -> Delivery {
        let mut connections = self.shared.connections();
        let Some(connection) = living(&mut connections, holder) else { return Delivery::Gone };
        connection.took_order(request)
    }

    /// Gives memory to a client that asked for it. What the client has mapped stays until it unmaps
    /// it or ends, whatever the agent does.
    ///
    /// # Errors
    ///
    /// If the request is not open, or takes more than [`GRANT_CHUNKS_MAX`](super::GRANT_CHUNKS_MAX)
    /// chunks.
    pub fn grant(
        &self,
        holder: ConnectionId,
        request: RequestId,
        grant: GrantId,
        chunks: &[&Region],
    ) -> Result<Delivery, GrantError> {
        let mut connections = self.shared.connections();
        let Some(connection) = living(&mut connections, holder) else { return Ok(Delivery::Gone) };
        connection.grant(request, grant, chunks)
    }

    /// Tells a client why it gets no memory.
    ///
    /// # Errors
    ///
    /// If the request is not open.
    pub fn deny(
        &self,
        holder: ConnectionId,
        request: RequestId,
        reason: impl fmt::Display,
    ) -> Result<Delivery, GrantError> {
        let mut connections = self.shared.connections();
        let Some(connection) = living(&mut connections, holder) else { return Ok(Delivery::Gone) };
        connection.deny(request, &reason)
    }

    /// Ends a connection and tells its client why. [`ClientEvent::Gone`] follows.
    pub fn close(&self, holder: ConnectionId, reason: impl fmt::Display) {
        if let Some(connection) = self.shared.connections().get_mut(&holder) {
            connection.dismiss(&reason);
        }
    }

    /// Keeps the thread from looking at any packet until this is dropped.
    #[cfg(test)]
    pub(super) fn paused(&self) -> impl Sized + '_ {
        self.shared.connections()
    }

    /// Ends all connections, removes the socket and joins the thread. No event is reported after.
    pub fn shutdown(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        wake::ring_agent(&*self.stop);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been reported by the panic itself.
            let _ = thread.join();
        }
    }
}

/// A connection that is not over.
fn living(
    connections: &mut BTreeMap<ConnectionId, Connection>,
    holder: ConnectionId,
) -> Option<&mut Connection> {
    connections.get_mut(&holder).filter(|connection| !connection.is_dismissed())
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}
