//! Asks other nodes for samples, over a few connections to each.

mod connection;
mod link;
mod peer;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tierfeed_core::id::NodeId;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};

use crate::{
    network::{Network, Spawner},
    peers::{Access, Failure, LinkFigures, Outcome, Read},
};

use connection::Connection;
use peer::Peer;

const CONNECTIONS_MAX: usize = 4;

/// The interval at which reads that wait for a connection are checked for their deadline.
const TICK: Duration = Duration::from_millis(5);

const CONNECT_WITHIN: Duration = Duration::from_secs(2);

const SILENT_AFTER: Duration = Duration::from_secs(3);

const IDLE_FOR: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientSettings {
    /// The most connections to one peer.
    pub connections_max: usize,
    /// The time from a connection attempt to the proofs of both ends.
    pub connect_within: Duration,
    /// A peer of which something is expected loses its connection if it sends nothing for so long.
    pub silent_after: Duration,
    /// A connection is closed after this time without a request.
    pub idle_for: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            connect_within: CONNECT_WITHIN,
            silent_after: SILENT_AFTER,
            idle_for: IDLE_FOR,
        }
    }
}

/// What a client did since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCounts {
    pub connected: u64,
    pub requests: u64,
    /// Bytes of samples that were received, those of failed reads too.
    pub received_bytes: u64,
}

#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    /// Peers with reads since the last flush.
    unflushed: Mutex<BTreeSet<NodeId>>,
    stop: watch::Sender<bool>,
    /// Held by no task, so that none of its own threads drops it.
    _network: Arc<Network>,
}

pub(crate) struct Shared {
    access: Access,
    settings: ClientSettings,
    spawner: Spawner,
    peers: RwLock<BTreeMap<NodeId, Arc<Peer>>>,
    counts: Mutex<ClientCounts>,
    /// Signalled when a request begins to wait for a connection.
    waiting: Notify,
    stopped: watch::Receiver<bool>,
}

impl Client {
    #[must_use]
    pub fn start(network: Arc<Network>, access: Access, settings: ClientSettings) -> Self {
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            access,
            settings,
            spawner: network.spawner(),
            peers: RwLock::default(),
            counts: Mutex::default(),
            waiting: Notify::new(),
            stopped,
        });
        let watched = Arc::clone(&shared);
        shared.spawn(async move { watched.expire_waiting().await });
        Self { shared, unflushed: Mutex::default(), stop, _network: network }
    }

    /// Sets where `peer` listens, as the process `incarnation`. If either differs from before, its
    /// connections are closed.
    pub fn set_peer(&self, peer: NodeId, address: SocketAddr, incarnation: u64) {
        let mut peers = self.shared.peers.write();
        let known = peers.entry(peer).or_insert_with(|| Arc::new(Peer::new(peer)));
        known.move_to(address, incarnation);
    }

    /// Forgets a peer: its reads fail, and its connections are closed.
    pub fn remove_peer(&self, peer: NodeId) {
        let removed = self.shared.peers.write().remove(&peer);
        if let Some(removed) = removed {
            fail(removed.remove(), Failure::Unknown);
        }
    }

    /// Adds a read to the request for `peer`, by this generation of the plan.
    ///
    /// It is sent with the next [`Self::flush`]. If it cannot be sent, it is answered from within this call.
    pub fn read(&self, peer: NodeId, generation: u64, read: Read) {
        let Some(known) = self.shared.peer(peer) else {
            return read.end(Outcome::Failed(Failure::Unknown));
        };
        match known.gather(generation, read) {
            Ok(()) => {
                self.unflushed.lock().insert(peer);
            }
            Err(read) => read.end(Outcome::Failed(Failure::Full)),
        }
    }

    /// Sends the reads since the last call.
    pub fn flush(&self) {
        let unflushed = std::mem::take(&mut *self.unflushed.lock());
        for peer in unflushed {
            if let Some(peer) = self.shared.peer(peer) {
                peer.flush();
                self.shared.launch(&peer);
            }
        }
    }

    /// Ordered by the number of the peer.
    #[must_use]
    pub fn links(&self) -> Vec<LinkFigures> {
        let peers = self.shared.peers.read();
        peers.values().map(|peer| peer.figures()).collect()
    }

    /// Measures the rate of a peer anew; the old rate holds until then.
    pub fn measure_anew(&self, node: NodeId) {
        let peers = self.shared.peers.read();
        peers.get(&node).into_iter().for_each(|peer| peer.measure_anew());
    }

    #[must_use]
    pub fn counts(&self) -> ClientCounts {
        *self.shared.counts.lock()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let peers = std::mem::take(&mut *self.shared.peers.write());
        for peer in peers.into_values() {
            fail(peer.remove(), Failure::Stopped);
        }
    }
}

impl Shared {
    fn peer(&self, peer: NodeId) -> Option<Arc<Peer>> {
        self.peers.read().get(&peer).cloned()
    }

    /// Runs a task until the client is dropped.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stopped = self.stopped.clone();
        self.spawner.spawn(async move {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
                () = task => {}
            }
        });
    }

    fn launch(self: &Arc<Self>, peer: &Arc<Peer>) {
        match peer.may_connect(self.settings.connections_max, Instant::now()) {
            peer::Connect::Now => {
                let connection = Connection::new(Arc::clone(self), Arc::clone(peer));
                self.spawn(connection.run());
            }
            peer::Connect::Not => {}
            peer::Connect::Later(refused) => fail(refused, Failure::Refused),
        }
        if peer.has_waiting() {
            self.waiting.notify_one();
        }
    }

    /// Ends reads whose deadline comes while they wait for a connection.
    async fn expire_waiting(&self) {
        loop {
            self.waiting.notified().await;
            loop {
                sleep(TICK).await;
                let peers: Vec<Arc<Peer>> = self.peers.read().values().cloned().collect();
                let now = Instant::now();
                peers.iter().for_each(|peer| fail(peer.expire(now), Failure::Timeout));
                if !peers.iter().any(|peer| peer.has_waiting()) {
                    break;
                }
            }
        }
    }
}

fn fail(reads: impl IntoIterator<Item = Read>, failure: Failure) {
    for read in reads {
        read.end(Outcome::Failed(failure));
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}
