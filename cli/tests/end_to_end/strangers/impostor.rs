//! A node that has the token, and no tiers: it says that it answers at an address where others listen.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use tierfeed_core::{
    fleet::{
        Origin, Progress, Registration,
        members::{PeerReport, Peers},
        schedule::{Device, Figures, FoundTier, Location, Offer},
    },
    id::{Epoch, NodeId, SampleId},
    retention::in_place::SpeedOrigin,
    tier::{Kind, Locality},
    units::Bytes,
};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_prefetcher::{
    fetcher::Target,
    network::Network,
    peers::{Access, Client, ClientSettings, Outcome, Read},
};
use tierfeed_runtime::{
    rpc::{
        call::{PeersAnswer, Report},
        client::{Address, Client as Manager},
    },
    transport::token::Token,
};

use super::{NODES, REAL};

const NODE: NodeId = NodeId(REAL);

pub(super) const INCARNATION: u64 = 4711;

/// The bytes that it claims to hold.
const ROOM: Bytes = Bytes::mib(3);

const REPORT_EVERY: Duration = Duration::from_millis(500);

pub(super) struct Impostor {
    /// The secret by which nodes of the job prove themselves to each other.
    pub(super) secret: [u8; 32],
    peers: Peers,
    stop: tokio::sync::oneshot::Sender<()>,
    reporting: JoinHandle<()>,
}

impl Impostor {
    pub(super) fn join(manager: &str, token: &str, listens_at: SocketAddr) -> Self {
        let manager: Address = manager.parse().unwrap();
        let token: Token = token.parse().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (joined, told) = mpsc::channel();
        let reporting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let mut manager = Manager::connect(&manager, Some(&token)).await.unwrap();
                joined.send(join(&mut manager, listens_at).await).unwrap();
                tokio::select! {
                    _ = stopped => {}
                    () = report(&mut manager) => {}
                }
                manager.drained(NODE, INCARNATION, Progress::default()).await.unwrap();
            });
        });
        let (secret, peers) = told.recv().unwrap();
        Self { secret, peers, stop, reporting }
    }

    pub(super) fn leave(self) {
        self.stop.send(()).unwrap();
        self.reporting.join().unwrap();
    }

    /// Asks a node for a sample, over an address that may not be its own.
    pub(super) fn ask(
        &self,
        node: NodeId,
        address: SocketAddr,
        secret: &[u8; 32],
        access: fn(&[u8; 32], NodeId, u64) -> Access,
    ) -> Outcome {
        let network = Arc::new(Network::start("impostor", NonZeroUsize::MIN).unwrap());
        let own = access(secret, NODE, INCARNATION);
        let client = Client::start(network, own, ClientSettings::default());
        client.set_peer(node, address, self.peers.addresses[node.0 as usize].process);
        let (outcomes, outcome) = mpsc::channel();
        let to = Target::new(region(Bytes(1)), Bytes(0), Bytes(1));
        let done = move |outcome| outcomes.send(outcome).unwrap();
        client.read(node, 0, Read::new(SampleId(u32::MAX), to, Duration::from_secs(20), done));
        client.flush();
        outcome.recv().unwrap()
    }
}

pub(super) fn region(len: Bytes) -> Arc<Region> {
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    Arc::new(Region::allocate(&Request { len, locality, name: "strangers", pages }).unwrap())
}

async fn join(manager: &mut Manager, listens_at: SocketAddr) -> ([u8; 32], Peers) {
    let agent = Registration { node: NODE, home: 1, incarnation: INCARNATION, offer: offer() };
    manager.register(&agent).await.unwrap();
    let mut report = PeerReport {
        address: String::new(),
        room: ROOM,
        generation: 0,
        divided: Epoch(0),
        links: Vec::new(),
    };
    let told = manager.peers(NODE, INCARNATION, report.clone()).await.unwrap();
    let PeersAnswer::Same { secret: Some(secret) } = told else { panic!("{told:?}") };
    report.address = listens_at.to_string();
    loop {
        let told = manager.peers(NODE, INCARNATION, report.clone()).await.unwrap();
        let PeersAnswer::Changed(peers) = told else { panic!("{told:?}") };
        if peers.addresses.iter().filter(|it| !it.address.is_empty()).count() == NODES as usize {
            return (secret, peers);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn report(manager: &mut Manager) {
    loop {
        let told = Report::of_progress(NODE, INCARNATION, Progress::default());
        manager.report(told).await.unwrap();
        tokio::time::sleep(REPORT_EVERY).await;
    }
}

fn offer() -> Offer {
    let figures = || Figures { from: "none".into(), ..Figures::default() };
    let memory = FoundTier {
        kind: Kind::MainMemory,
        origin: Origin::Real,
        location: Location::Memory,
        device: Device::Own,
        budget: Bytes::mib(64),
        beside: Bytes(0),
        figures: figures(),
        pace: SpeedOrigin::Own,
        reads: None,
        writes: None,
    };
    Offer { tiers: vec![memory], cold: figures(), transform: None }
}
