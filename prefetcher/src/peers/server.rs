//! Answers other nodes from the memory of this one.

mod connection;
mod outgoing;

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    network::Network,
    peers::{
        Access, Answer, AskId, Event,
        handshake::{self, HandshakeError, Proved},
    },
};

use outgoing::Outgoing;

const CONNECTIONS_MAX: usize = 8192;

const UNPROVED_MAX: usize = 256;

/// Connections that wait to be accepted: with a short queue, idle ones that come in thousands would make a
/// peer wait for the next attempt of its kernel, which is a second later.
const BACKLOG: i32 = 4096;

/// The pause after a connection could not be accepted, as when descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const PROVED_WITHIN: Duration = Duration::from_secs(2);

const STUCK_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSettings {
    /// The most connections whose other end has proved itself.
    pub connections_max: usize,
    /// The most connections whose other end has not proved itself; a further one closes the oldest.
    pub unproved_max: usize,
    /// The time from a connection to the proof of its other end.
    pub proved_within: Duration,
    /// A connection that takes no byte for so long, while some are to be sent, is closed.
    pub stuck_after: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            unproved_max: UNPROVED_MAX,
            proved_within: PROVED_WITHIN,
            stuck_after: STUCK_AFTER,
        }
    }
}

/// What a server did since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Connections whose other end proved itself.
    pub accepted: u64,
    /// Other connections: without a proof in time, or without room for them.
    pub refused: u64,
    /// Connections that ended with an error after their other end proved itself.
    pub lost: u64,
    /// Bytes of samples that were sent.
    pub sent_bytes: u64,
}

#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

pub(crate) struct Shared {
    access: Access,
    settings: ServerSettings,
    /// For connections whose other end has proved itself.
    slots: Arc<Semaphore>,
    event: Box<dyn Fn(Event) + Send + Sync>,
    next: AtomicU64,
    asked: Mutex<BTreeMap<AskId, Waiting>>,
    counts: Mutex<ServerCounts>,
}

struct Waiting {
    request: outgoing::Request,
    answers: mpsc::Sender<Outgoing>,
}

impl Server {
    /// Accepts connections of `listener` until the server is dropped. `event` is called from many threads; it
    /// must neither block nor panic.
    ///
    /// # Errors
    ///
    /// If the listener cannot be used.
    pub fn start(
        network: &Network,
        access: Access,
        settings: ServerSettings,
        listener: StdListener,
        event: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // A second call changes the length of the queue.
        rustix::net::listen(&listener, BACKLOG)?;
        let address = listener.local_addr()?;
        let listener = network.enter(|| TcpListener::from_std(listener))?;
        let shared = Arc::new(Shared {
            access,
            settings,
            slots: Arc::new(Semaphore::new(settings.connections_max)),
            event: Box::new(event),
            next: AtomicU64::new(0),
            asked: Mutex::default(),
            counts: Mutex::default(),
        });
        let (stop, mut stopped) = watch::channel(false);
        let accepting = Arc::clone(&shared).accept(listener);
        network.spawn(async move {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
                () = accepting => {}
            }
        });
        Ok(Self { shared, address, stop })
    }

    /// With the port that the system gave it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers a request. [`Event::Sent`] follows, from within this call if the connection is lost.
    pub fn answer(&self, id: AskId, answer: Answer) {
        let waiting = self.shared.asked.lock().remove(&id);
        let sent = outgoing::Sent::new(id, &self.shared);
        match waiting {
            // As many fit as a connection has requests; if it is lost, the answer is dropped, which says so.
            Some(Waiting { request, answers }) => {
                drop(answers.try_send(Outgoing::new(request, answer, sent)));
            }
            // The views end before `sent` says so.
            None => drop(answer),
        }
    }

    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        *self.shared.counts.lock()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl Shared {
    fn next_id(&self) -> AskId {
        AskId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    async fn prove(&self, stream: TcpStream) -> Result<Accepted, HandshakeError> {
        let proved = handshake::prove(stream, &self.access).await?;
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return Err(proved.turn_away().await);
        };
        Ok((proved.accept().await?, slot))
    }

    /// All connections end with this task.
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut unproved = Unproved::new(self.settings.unproved_max);
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => unproved.prove(&self, stream),
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
                Some(proved) = unproved.next() => match proved {
                    Some((proved, slot)) => {
                        self.counts.lock().accepted += 1;
                        let shared = Arc::clone(&self);
                        serving.spawn(async move {
                            connection::serve(shared, proved).await;
                            drop(slot);
                        });
                    }
                    None => self.counts.lock().refused += 1,
                },
                Some(_) = serving.join_next() => {}
            }
        }
    }
}

type Accepted = (Proved, OwnedSemaphorePermit);

/// Connections whose other end has not proved itself, oldest first.
struct Unproved {
    tasks: JoinSet<Option<Accepted>>,
    oldest_first: std::collections::VecDeque<tokio::task::AbortHandle>,
    max: usize,
}

impl Unproved {
    fn new(max: usize) -> Self {
        Self { tasks: JoinSet::new(), oldest_first: std::collections::VecDeque::new(), max }
    }

    fn prove(&mut self, shared: &Arc<Shared>, stream: TcpStream) {
        self.oldest_first.retain(|task| !task.is_finished());
        if self.oldest_first.len() >= self.max.max(1)
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            oldest.abort();
        }
        let shared = Arc::clone(shared);
        let task = self.tasks.spawn(async move {
            let accepted =
                timeout(shared.settings.proved_within, shared.prove(stream)).await.ok()?;
            accepted.inspect_err(|error| tracing::debug!(%error, "a process is no peer")).ok()
        });
        self.oldest_first.push_back(task);
    }

    /// `None` without any.
    async fn next(&mut self) -> Option<Option<Accepted>> {
        // One that was aborted has not proved itself either.
        Some(self.tasks.join_next().await?.ok().flatten())
    }
}

impl Network {
    fn enter<T>(&self, within: impl FnOnce() -> T) -> T {
        let _context = Handle::enter(self.handle());
        within()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}
