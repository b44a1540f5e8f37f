//! The agent's side of reads between nodes.
//!
//! The manager says which nodes there are; the session computes who holds what; a [`Judgement`] says which nodes
//! are asked. A read that does not end in time fails, and the session reads the sample cold.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tierfeed_core::{
    fleet::{
        members::{PeerLink, PeerReport, Peers as KnownPeers, Standing},
        standing::{Change, FAILURES_AT_RETRY, Judgement, Link},
    },
    id::{Epoch, NodeId, OpId, SampleId},
    retention::partition::Membership,
    session::{Event as SessionEvent, Fault, Session},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_prefetcher::{
    fetcher::Target,
    network::{NETWORK_THREADS, Network},
    peers::{
        Access, Answer, AskId, Asked, Client, ClientSettings, Event, Held, LinkFigures, Outcome,
        Read, Server, ServerSettings,
    },
    plane::DataPlane,
};
use tierfeed_workload_analyzer::job::Network as JobNetwork;
use tokio::sync::Notify;

use super::{Agent, completions::Completions};
use crate::{observe::report::PeerEntry, rpc::client::Address};

/// Requests of other nodes that the loop has not taken; further ones are dropped, and time out there.
const ASKED_MAX: usize = 4096;

/// The secret by which nodes prove to each other that they belong to the job.
pub(super) struct Secret(pub(super) [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// All that the agent needs to take part, beside the secret.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerSetup {
    pub(super) incarnation: u64,
    /// The address of this host at which other nodes reach it.
    pub(super) host: IpAddr,
    pub(super) network: JobNetwork,
}

/// The events of the server that the loop has not taken.
#[derive(Debug, Default)]
struct Inbox {
    events: Mutex<VecDeque<Event>>,
    arrived: Notify,
}

impl Inbox {
    /// Keeps an event. A request beyond [`ASKED_MAX`] is dropped; the end of an answer, of which there is one
    /// for each request that was taken, never is.
    fn push(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(event, Event::Asked(_)) && events.len() >= ASKED_MAX {
            return;
        }
        events.push_back(event);
        drop(events);
        self.arrived.notify_one();
    }

    fn pop(&self) -> Option<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// The outcomes of reads from a node, written by the threads of the network.
#[derive(Debug, Default)]
struct Record {
    /// Reads that failed since the last one that did not.
    failures: AtomicU32,
    /// Bytes that are on their way.
    awaited: AtomicU64,
    received: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
struct Peer {
    process: u64,
    record: Arc<Record>,
    judgement: Judgement,
    sent: Bytes,
    link: Link,
}

impl Peer {
    fn new(process: u64) -> Self {
        Self {
            process,
            record: Arc::default(),
            judgement: Judgement::default(),
            sent: Bytes(0),
            link: Link::default(),
        }
    }

    /// Another process works as the node; what was counted of it goes on.
    fn restart(&mut self, process: u64) {
        self.record.failures.store(0, Ordering::Relaxed);
        (self.process, self.link) = (process, Link::default());
        self.judgement.restart();
    }
}

#[derive(Debug)]
pub(super) struct Peers {
    node: NodeId,
    client: Client,
    server: Server,
    inbox: Arc<Inbox>,
    room: Bytes,
    /// The generation that the manager told last.
    generation: u32,
    nodes: BTreeMap<NodeId, Peer>,
    /// The loans for each answer that has not left.
    lent: BTreeMap<AskId, Vec<OpId>>,
    completions: Completions,
    has_reads: bool,
    _network: Arc<Network>,
}

/// The address of this host at which others reach it: that by which it reaches the manager.
pub(super) fn host(manager: &Address) -> io::Result<IpAddr> {
    match manager {
        Address::Unix(_) => Ok(Ipv4Addr::LOCALHOST.into()),
        Address::Tcp(address) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect(address.as_str())?;
            Ok(socket.local_addr()?.ip())
        }
    }
}

impl Peers {
    /// `room` is the number of bytes that the tiers of this node retain.
    pub(super) fn start(
        applicant: PeerSetup,
        secret: &Secret,
        node: NodeId,
        room: Bytes,
        completions: Completions,
    ) -> io::Result<Self> {
        let PeerSetup { incarnation, host, network } = applicant;
        let access = match network {
            JobNetwork::Open => Access::encrypted,
            JobNetwork::Private => Access::private,
        };
        let own = access(&secret.0, node, incarnation);
        let listener = TcpListener::bind((host, 0))?;
        let network = Arc::new(Network::start("tierfeed-peers", NETWORK_THREADS)?);
        let inbox = Arc::new(Inbox::default());
        let events = Arc::clone(&inbox);
        let push = move |event| events.push(event);
        let server =
            Server::start(&network, own.clone(), ServerSettings::default(), listener, push)?;
        let client = Client::start(Arc::clone(&network), own, ClientSettings::default());
        tracing::info!(address = %server.address(), %room, "other nodes read from here");
        Ok(Self {
            node,
            client,
            server,
            inbox,
            room,
            generation: 0,
            nodes: BTreeMap::new(),
            lent: BTreeMap::new(),
            completions,
            has_reads: false,
            _network: network,
        })
    }

    pub(super) fn report(&self, divided: Epoch) -> PeerReport {
        PeerReport {
            address: self.server.address().to_string(),
            room: self.room,
            generation: self.generation,
            divided,
            links: PeerLink::told(self.links()),
        }
    }

    fn links(&self) -> Vec<PeerLink> {
        let links = self.nodes.iter().map(|(node, peer)| PeerLink {
            peer: *node,
            received: Bytes(peer.record.received.load(Ordering::Relaxed)),
            sent: peer.sent,
            in_flight: Bytes(peer.record.awaited.load(Ordering::Relaxed)),
            failures: peer.record.failed.load(Ordering::Relaxed),
            rate: peer.link.rate,
            round_trip: peer.link.round_trip,
            standing: peer.judgement.standing(),
        });
        links.collect()
    }

    /// Takes over the nodes that the manager named. Returns events for the session.
    fn follow(&mut self, known: KnownPeers) -> Vec<SessionEvent> {
        let mut events = Vec::new();
        let before = self.generation;
        self.generation = known.generation;
        for (number, told) in (0..).zip(known.addresses) {
            let node = NodeId(number);
            if node == self.node {
                continue;
            }
            let there = self.nodes.get_mut(&node);
            match (told.address.parse::<SocketAddr>(), there) {
                (Ok(address), there) => {
                    self.client.set_peer(node, address, told.process);
                    match there {
                        Some(peer)
                            if peer.process == told.process
                                && peer.judgement.standing() != Standing::Gone =>
                        {
                            continue;
                        }
                        Some(peer) => peer.restart(told.process),
                        None => drop(self.nodes.insert(node, Peer::new(told.process))),
                    }
                    events.push(SessionEvent::PeerFound { node });
                }
                // A manager that was restarted has not heard of it yet.
                (Err(_), _) if told.process == 0 => {}
                (Err(_), Some(peer)) if peer.judgement.standing() != Standing::Gone => {
                    peer.judgement.leave();
                    self.client.remove_peer(node);
                    events.push(SessionEvent::PeerLost { node });
                    tracing::info!(peer = node.0, "a node is gone; what it holds is read cold");
                }
                (Err(_), _) => {}
            }
        }
        let is_new = |it: &Membership| it.generation > before;
        let memberships = known.memberships.into_iter().filter(is_new);
        events.extend(memberships.map(SessionEvent::Membership));
        events
    }

    pub(super) fn entries(&self) -> Vec<PeerEntry> {
        let links = self.client.links();
        let entry = |(node, peer): (&NodeId, &Peer)| {
            let link = links.iter().find(|link| link.peer == *node).map(|link| link.measured);
            PeerEntry {
                node: node.0,
                received_bytes: peer.record.received.load(Ordering::Relaxed),
                sent_bytes: peer.sent.0,
                failures: peer.record.failed.load(Ordering::Relaxed),
                pauses: peer.judgement.pauses(),
                rate_bytes_per_s: link.and_then(|link| link.rate).map(|rate| rate.0),
                round_trip_ns: link.and_then(|link| link.round_trip).map(|time| time.0),
            }
        };
        self.nodes.iter().map(entry).collect()
    }

    /// Asks a node for a sample, with the next [`Self::flush`].
    fn read(&mut self, op: OpId, sample: SampleId, from: NodeId, target: Target) {
        let Some(peer) =
            self.nodes.get(&from).filter(|peer| peer.judgement.standing() != Standing::Gone)
        else {
            return self
                .completions
                .push(SessionEvent::Completed { op, outcome: Err(Fault::Vanished) });
        };
        let len = target.len();
        let (record, completions) = (Arc::clone(&peer.record), self.completions.clone());
        record.awaited.fetch_add(len.0, Ordering::Relaxed);
        let awaited = Bytes(record.awaited.load(Ordering::Relaxed));
        let patience = Duration::from_nanos(peer.link.late_after(awaited).0);
        let ended = move |outcome| {
            record.awaited.fetch_sub(len.0, Ordering::Relaxed);
            let outcome = match outcome {
                Outcome::Held { .. } => {
                    record.failures.store(0, Ordering::Relaxed);
                    record.received.fetch_add(len.0, Ordering::Relaxed);
                    Ok(())
                }
                Outcome::Absent => Err(Fault::Vanished),
                Outcome::Failed(_) => {
                    record.failures.fetch_add(1, Ordering::Relaxed);
                    record.failed.fetch_add(1, Ordering::Relaxed);
                    Err(Fault::Io)
                }
            };
            completions.push(SessionEvent::Completed { op, outcome });
        };
        self.client.read(from, 0, Read::new(sample, target, patience, ended));
        self.has_reads = true;
    }

    /// Sends what was asked for since the last call, one request to each node.
    fn flush(&mut self) {
        if std::mem::take(&mut self.has_reads) {
            self.client.flush();
        }
    }

    /// The nodes that failed too often in a row and are not asked from now on.
    fn failed(&mut self, now: Nanoseconds) -> Vec<SessionEvent> {
        let mut events = Vec::new();
        for (node, peer) in &mut self.nodes {
            let failures = peer.record.failures.load(Ordering::Relaxed);
            if peer.judgement.fail(failures, now).is_some() {
                tracing::warn!(peer = node.0, failures, "a node does not answer; it is read cold");
                events.push(SessionEvent::PeerLost { node: *node });
            }
        }
        events
    }

    /// Looks at the links: a node that is slower than the cold store is not asked for a while, and one that was
    /// not asked is tried again.
    fn measure(&mut self, cold: Option<BytesPerSecond>, now: Nanoseconds) -> Vec<SessionEvent> {
        let mut events = Vec::new();
        for LinkFigures { peer: node, measured: link, .. } in self.client.links() {
            let Some(peer) = self.nodes.get_mut(&node) else { continue };
            peer.link = link;
            let failures = &peer.record.failures;
            let so_far = failures.load(Ordering::Relaxed);
            match peer.judgement.measure(&link, cold, so_far, now) {
                Some(Change::Lost) => {
                    tracing::info!(peer = node.0, rate = ?link.rate, ?cold, "slower than the cold store");
                    events.push(SessionEvent::PeerLost { node });
                }
                Some(Change::Found) => {
                    failures.fetch_min(FAILURES_AT_RETRY, Ordering::Relaxed);
                    self.client.measure_anew(node);
                    events.push(SessionEvent::PeerFound { node });
                }
                None => {}
            }
        }
        events
    }

    fn answer(
        &mut self,
        asked: &Asked,
        session: &mut Session,
        plane: &DataPlane,
        now: Nanoseconds,
    ) {
        let mut lent = Vec::new();
        let held = asked.samples.iter().map(|sample| {
            let loan = session.lend(*sample)?;
            let view = plane.view(*sample, &loan.place, loan.len);
            if view.is_some() {
                lent.push(loan.op);
            } else {
                session.end_loan(loan.op, now);
            }
            view
        });
        let held: Vec<Option<Held>> = held.collect();
        let sent = held.iter().flatten().map(|held| held.len().0).sum::<u64>();
        self.nodes.get_mut(&asked.peer).into_iter().for_each(|peer| peer.sent.0 += sent);
        self.lent.insert(asked.id, lent);
        self.server.answer(asked.id, Answer::Samples(held));
    }
}

/// The next event of the peers; waits for ever without peers.
pub(super) async fn next_event(peers: Option<&Peers>) -> Event {
    let Some(peers) = peers else { return std::future::pending().await };
    loop {
        tokio::task::coop::consume_budget().await;
        if let Some(event) = peers.inbox.pop() {
            return event;
        }
        peers.inbox.arrived.notified().await;
    }
}

impl Agent {
    /// As [`Self::join_peers`], if the secret is known already.
    pub(super) fn with_peers(mut self, secret: Option<Secret>) -> Self {
        secret.into_iter().for_each(|secret| self.join_peers(&secret));
        self
    }

    /// Starts to read from other nodes and for them; without that, this node reads alone.
    pub(super) fn join_peers(&mut self, secret: &Secret) {
        let Some(applicant) = self.applicant.take() else { return };
        let node = self.assignment.node;
        let levels = self.session.levels();
        let room = levels.fold(0_u64, |sum, level| sum.saturating_add(level.capacity.0));
        match Peers::start(applicant, secret, node, Bytes(room), self.completions.clone()) {
            Ok(peers) => self.peers = Some(peers),
            Err(error) => tracing::warn!(%error, "this node does not read from others"),
        }
    }

    /// Answers another node, or takes back what was lent to it.
    pub(super) fn apply_peer(&mut self, event: Event) {
        let now = self.clock.now();
        let Some(peers) = &mut self.peers else { return };
        match event {
            Event::Asked(asked) => peers.answer(&asked, &mut self.session, &self.plane, now),
            Event::Sent(id) => {
                let lent = peers.lent.remove(&id).unwrap_or_default();
                lent.into_iter().for_each(|loan| self.session.end_loan(loan, now));
            }
        }
    }

    pub(super) fn follow_peers(&mut self, known: KnownPeers) {
        let Some(peers) = &mut self.peers else { return };
        let events = peers.follow(known);
        events.into_iter().for_each(|event| self.tell(event));
    }

    pub(super) fn receive(
        &mut self,
        op: OpId,
        sample: SampleId,
        from: NodeId,
        target: Option<Target>,
    ) {
        if let (Some(peers), Some(target)) = (&mut self.peers, target) {
            peers.read(op, sample, from, target);
        } else {
            let outcome = Err(Fault::Vanished);
            self.completions.push(SessionEvent::Completed { op, outcome });
        }
    }

    /// Sends what was asked for, and stops asking nodes that fail.
    pub(super) fn flush_peers(&mut self) {
        let now = self.clock.now();
        let Some(peers) = &mut self.peers else { return };
        peers.flush();
        let events = peers.failed(now);
        events.into_iter().for_each(|event| self.tell(event));
    }

    pub(super) fn measure_peers(&mut self, cold: Option<BytesPerSecond>) {
        let now = self.clock.now();
        let Some(peers) = &mut self.peers else { return };
        let events = peers.measure(cold, now);
        events.into_iter().for_each(|event| self.tell(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beyond_the_bound_are_dropped_and_ends_of_answers_are_not() {
        let inbox = Inbox::default();
        let asked = |id| {
            Event::Asked(Asked {
                id: AskId(id),
                peer: NodeId(1),
                generation: 0,
                within: Duration::from_secs(1),
                samples: Vec::new(),
            })
        };
        (0..ASKED_MAX as u64 + 5).for_each(|id| inbox.push(asked(id)));
        inbox.push(Event::Sent(AskId(3)));
        let taken: Vec<Event> = std::iter::from_fn(|| inbox.pop()).collect();
        assert_eq!(taken.len(), ASKED_MAX + 1);
        assert!(matches!(taken[ASKED_MAX], Event::Sent(AskId(3))));
    }
}
