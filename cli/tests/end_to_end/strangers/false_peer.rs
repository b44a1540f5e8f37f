//! Listeners at the address of a node: with each connection another one.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use tierfeed_core::{
    id::{NodeId, SampleId},
    units::Bytes,
};
use tierfeed_dataset::read::sample_sum::sum_of;
use tierfeed_numa_memory::Region;
use tierfeed_prefetcher::{
    network::Network,
    peers::{Access, Answer, Event, Held, Server, ServerSettings},
};

use super::{REAL, impostor, relay::Relay};
use crate::{fixture::Fixture, peers::SAMPLES};

const LEN_MAX: Bytes = Bytes(64 << 10);

pub(super) struct FalsePeer {
    address: SocketAddr,
    state: Arc<State>,
    network: Arc<Network>,
}

struct State {
    /// Length and sum of each sample.
    samples: BTreeMap<SampleId, (u64, u64)>,
    zeros: Arc<Region>,
    connections: AtomicUsize,
    heard: Mutex<Vec<Vec<u8>>>,
    strange: OnceLock<Answering>,
    knowing: OnceLock<Answering>,
}

/// A server that answers each request with zeros.
struct Answering {
    _server: Arc<Server>,
    /// In front of the server.
    relay: Relay,
    asked: Arc<AtomicUsize>,
}

impl FalsePeer {
    pub(super) fn start(fixture: &Fixture) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let network = Arc::new(Network::start("false-peer", NonZeroUsize::MIN).unwrap());
        let state = Arc::new(State {
            samples: samples(fixture),
            zeros: impostor::region(LEN_MAX),
            connections: AtomicUsize::new(0),
            heard: Mutex::default(),
            strange: OnceLock::new(),
            knowing: OnceLock::new(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                shared.meet(stream);
            }
        });
        Self { address, state, network }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on some connections meet a process with another secret than that of the job, and some one that
    /// has it.
    pub(super) fn answer_with(
        &self,
        secret: &[u8; 32],
        access: fn(&[u8; 32], NodeId, u64) -> Access,
    ) {
        let start = |secret| {
            Answering::start(
                &self.state,
                &self.network,
                &access(secret, NodeId(REAL), impostor::INCARNATION),
            )
        };
        assert!(self.state.strange.set(start(&[7; 32])).is_ok());
        assert!(self.state.knowing.set(start(secret)).is_ok());
    }

    /// Whether a connection met each of them, and the one that has the secret was asked for samples.
    pub(super) fn was_met(&self) -> bool {
        let asked = self.state.knowing.get().unwrap().asked.load(Ordering::Acquire);
        self.state.connections.load(Ordering::Acquire) >= 4 && asked > 0
    }

    pub(super) fn asked_without_secret(&self) -> usize {
        self.state.strange.get().unwrap().asked.load(Ordering::Acquire)
    }

    /// The bytes that listeners without the secret heard.
    pub(super) fn heard(&self) -> Vec<Vec<u8>> {
        let mut heard = self.state.heard.lock().unwrap().clone();
        heard.push(self.state.strange.get().unwrap().relay.heard_of_clients());
        heard
    }
}

impl State {
    fn meet(self: &Arc<Self>, stream: TcpStream) {
        let (Some(strange), Some(knowing)) = (self.strange.get(), self.knowing.get()) else {
            return;
        };
        match self.connections.fetch_add(1, Ordering::AcqRel) % 4 {
            0 => strange.relay.lead(stream),
            1 => self.answer(stream, |_| vec![0x5a; 4096]),
            2 => self.answer(stream, <[u8]>::to_vec),
            _ => knowing.relay.lead(stream),
        }
    }

    fn answer(self: &Arc<Self>, mut stream: TcpStream, with: fn(&[u8]) -> Vec<u8>) {
        let state = Arc::clone(self);
        thread::spawn(move || {
            let (mut buffer, mut heard) = ([0; 4096], Vec::new());
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                heard.extend(&buffer[..len]);
                if stream.write_all(&with(&buffer[..len])).is_err() {
                    break;
                }
            }
            state.heard.lock().unwrap().push(heard);
        });
    }
}

impl Answering {
    fn start(state: &Arc<State>, network: &Network, access: &Access) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (events, inbox) = mpsc::channel();
        let event = move |event| drop(events.send(event));
        let settings = ServerSettings::default();
        let server = Server::start(network, access.clone(), settings, listener, event).unwrap();
        let server = Arc::new(server);
        let relay = Relay::to(server.address());
        let (state, counted, answering) =
            (Arc::downgrade(state), Arc::clone(&asked), Arc::downgrade(&server));
        thread::spawn(move || {
            for event in inbox {
                let (Some(state), Some(server)) = (state.upgrade(), answering.upgrade()) else {
                    return;
                };
                let Event::Asked(request) = event else { continue };
                counted.fetch_add(1, Ordering::AcqRel);
                let wrong = |sample: &SampleId| {
                    let (len, sum) = *state.samples.get(sample)?;
                    Held::in_region(Arc::clone(&state.zeros), Bytes(0), Bytes(len), sum)
                };
                let held = request.samples.iter().map(wrong).collect();
                server.answer(request.id, Answer::Samples(held));
            }
        });
        Self { _server: server, relay, asked }
    }
}

/// By number: by path, class by class.
fn samples(fixture: &Fixture) -> BTreeMap<SampleId, (u64, u64)> {
    let of_class = SAMPLES / 4;
    let sample = |number: u32| {
        let (class, place) = (number / of_class, number % of_class);
        let path = format!("data/class{class}/{:03}.jpg", place * 4 + class);
        let bytes = fs::read(fixture.path(&path)).unwrap();
        (SampleId(number), (bytes.len() as u64, sum_of(&bytes)))
    };
    (0..SAMPLES).map(sample).collect()
}
