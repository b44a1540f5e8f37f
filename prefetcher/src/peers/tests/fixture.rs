//! A node that serves samples from a region, and staging memory that they are read to.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    num::NonZeroUsize,
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tierfeed_core::{
    id::{NodeId, SampleId},
    tier::Locality,
    units::Bytes,
};
use tierfeed_dataset::read::{Target, sample_sum::sum_of};
use tierfeed_numa_memory::{Pages, Region, Request};
use tokio::time::Instant;

use crate::peers::{
    Access, Answer, Asked, Client, ClientSettings, Event, Held, Network, Outcome, Read, Server,
    ServerSettings,
};

pub(super) const OURS: NodeId = NodeId(0);
pub(super) const THEIRS: NodeId = NodeId(1);
pub(super) const SECRET: [u8; 32] = [5; 32];

pub(super) type Protection = fn(&[u8; 32], NodeId, u64) -> Access;
pub(super) const PROTECTIONS: [Protection; 2] = [Access::private, Access::encrypted];

pub(super) const GENERATION: u64 = 7;

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn network() -> Arc<Network> {
    static NETWORK: OnceLock<Arc<Network>> = OnceLock::new();
    let start = || Arc::new(Network::start("peers", NonZeroUsize::new(2).unwrap()).unwrap());
    Arc::clone(NETWORK.get_or_init(start))
}

/// The bytes of a sample, which differ by sample and place.
pub(super) fn sample_bytes(sample: u32, len: u64) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(31) ^ (at >> 8) ^ u64::from(sample)).to_le_bytes()[0] | 1;
    (0..len).map(byte).collect()
}

fn region(len: u64) -> Arc<Region> {
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    let len = Bytes(len.max(1));
    Arc::new(Region::allocate(&Request { len, locality, name: "peers", pages }).unwrap())
}

/// The offsets of adjacent samples.
fn offsets(lens: &[u64]) -> Vec<u64> {
    lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect()
}

/// A node that holds samples, with a thread that answers as an agent does.
pub(super) struct Node {
    pub(super) state: Arc<Owner>,
    protection: Protection,
    thread: Option<JoinHandle<()>>,
}

pub(super) struct Owner {
    region: Arc<Region>,
    places: BTreeMap<SampleId, (u64, u64, u64)>,
    forgotten: Mutex<BTreeSet<SampleId>>,
    server: OnceLock<Server>,
    pub(super) asked: AtomicU64,
    pub(super) sent: AtomicU64,
    /// Requests that are not answered yet, if it keeps them.
    kept: Mutex<Option<Vec<Asked>>>,
}

impl std::ops::Deref for Node {
    type Target = Owner;

    fn deref(&self) -> &Owner {
        &self.state
    }
}

impl Node {
    pub(super) fn holding(lens: &[u64]) -> Self {
        Self::protected(lens, Access::private)
    }

    pub(super) fn protected(lens: &[u64], protection: Protection) -> Self {
        Self::start(lens, None, protection, 1, ServerSettings::default())
    }

    /// A node that does not answer before [`Owner::answer_kept`].
    pub(super) fn silent(lens: &[u64], protection: Protection) -> Self {
        Self::start(lens, Some(Vec::new()), protection, 1, ServerSettings::default())
    }

    pub(super) fn restarted(lens: &[u64], incarnation: u64) -> Self {
        Self::start(lens, None, Access::private, incarnation, ServerSettings::default())
    }

    pub(super) fn with_room_for(connections_max: usize, protection: Protection) -> Self {
        let settings = ServerSettings { connections_max, ..ServerSettings::default() };
        Self::start(&[1000], None, protection, 1, settings)
    }

    fn start(
        lens: &[u64],
        kept: Option<Vec<Asked>>,
        protection: Protection,
        incarnation: u64,
        settings: ServerSettings,
    ) -> Self {
        let access = protection(&SECRET, THEIRS, incarnation);
        let region = region(lens.iter().sum());
        let mut places = BTreeMap::new();
        for ((sample, len), offset) in (0..).zip(lens).zip(offsets(lens)) {
            let bytes = sample_bytes(sample, *len);
            region.write(Bytes(offset), &bytes).unwrap();
            places.insert(SampleId(sample), (offset, *len, sum_of(&bytes)));
        }
        let state = Arc::new(Owner {
            region,
            places,
            forgotten: Mutex::default(),
            server: OnceLock::new(),
            asked: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            kept: Mutex::new(kept),
        });
        let (events, inbox) = mpsc::channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let event = move |event| drop(events.send(event));
        let server = Server::start(&network(), access, settings, listener, event).unwrap();
        assert!(state.server.set(server).is_ok());
        let owner = Arc::downgrade(&state);
        let thread = thread::spawn(move || {
            for event in inbox {
                let Some(owner) = owner.upgrade() else { return };
                owner.on(event);
            }
        });
        Self { state, protection, thread: Some(thread) }
    }

    pub(super) fn client(&self) -> Client {
        let access = (self.protection)(&SECRET, OURS, 1);
        let client = Client::start(network(), access, ClientSettings::default());
        client.set_peer(THEIRS, self.server().address(), 1);
        client
    }
}

impl Owner {
    pub(super) fn server(&self) -> &Server {
        self.server.get().unwrap()
    }

    fn on(&self, event: Event) {
        match event {
            Event::Asked(asked) => {
                if let Some(kept) = &mut *self.kept.lock().unwrap() {
                    kept.push(asked);
                } else {
                    self.answer(&asked);
                }
                self.asked.fetch_add(1, Ordering::Release);
            }
            Event::Sent(_) => {
                self.sent.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn answer(&self, asked: &Asked) {
        if asked.generation != GENERATION {
            return self.server().answer(asked.id, Answer::OtherGeneration);
        }
        let forgotten = self.forgotten.lock().unwrap();
        let held = |sample: &SampleId| {
            let (offset, len, xxh3) =
                *self.places.get(sample).filter(|_| !forgotten.contains(sample))?;
            Held::in_region(Arc::clone(&self.region), Bytes(offset), Bytes(len), xxh3)
        };
        let samples = asked.samples.iter().map(held).collect();
        self.server().answer(asked.id, Answer::Samples(samples));
    }

    pub(super) fn forget(&self, sample: SampleId) {
        self.forgotten.lock().unwrap().insert(sample);
    }

    /// Changes a byte of a sample, but not its sum.
    pub(super) fn tamper(&self, sample: SampleId) {
        self.region.write(Bytes(self.places[&sample].0), &[0]).unwrap();
    }

    /// Answers what was kept, and keeps nothing from now on.
    pub(super) fn answer_kept(&self) {
        let kept = self.kept.lock().unwrap().take();
        kept.unwrap_or_default().iter().for_each(|asked| self.answer(asked));
    }

    /// Waits until `holds` is true.
    pub(super) fn wait_for(&self, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.server().counts());
            thread::yield_now();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The listener closes a moment after the server: nothing connects any more when this returns.
        let address = self.server().address();
        self.state = Arc::new(Owner {
            region: Arc::clone(&self.region),
            places: BTreeMap::new(),
            forgotten: Mutex::default(),
            server: OnceLock::new(),
            asked: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            kept: Mutex::default(),
        });
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        let start = Instant::now();
        while std::net::TcpStream::connect(address).is_ok() {
            assert!(start.elapsed() < PATIENCE);
        }
    }
}

/// Memory that samples are read to, one behind the other.
pub(super) struct Staging {
    region: Arc<Region>,
    lens: Vec<u64>,
}

#[derive(Default)]
pub(super) struct Reads {
    outcomes: Arc<(Mutex<Vec<Vec<Outcome>>>, Condvar)>,
}

impl Reads {
    /// The outcome of each read, once each has one.
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        let (outcomes, ended) = &*self.outcomes;
        let outcomes = outcomes.lock().unwrap();
        let is_open = |all: &mut Vec<Vec<Outcome>>| all.iter().any(Vec::is_empty);
        let (outcomes, waited) = ended.wait_timeout_while(outcomes, PATIENCE, is_open).unwrap();
        assert!(!waited.timed_out(), "{outcomes:?}");
        let each = outcomes.iter().map(|each| {
            assert_eq!(each.len(), 1, "a read is answered once");
            each[0]
        });
        each.collect()
    }
}

impl Staging {
    pub(super) fn of(lens: &[u64]) -> Self {
        Self { region: region(lens.iter().sum()), lens: lens.to_vec() }
    }

    pub(super) fn bytes(&self, sample: u32) -> Vec<u8> {
        let (at, len) = (offsets(&self.lens)[sample as usize], self.lens[sample as usize]);
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        self.region.read(Bytes(at), &mut bytes).unwrap();
        bytes
    }

    pub(super) fn target(&self, sample: usize) -> Target {
        let (offset, len) = (offsets(&self.lens)[sample], self.lens[sample]);
        Target::new(Arc::clone(&self.region), Bytes(offset), Bytes(len))
    }

    pub(super) fn start(&self, client: &Client, generation: u64, within: Duration) -> Reads {
        self.start_of(client, THEIRS, generation, within, usize::MAX)
    }

    fn start_of(
        &self,
        client: &Client,
        peer: NodeId,
        generation: u64,
        within: Duration,
        flush_every: usize,
    ) -> Reads {
        let reads = Reads::default();
        reads.outcomes.0.lock().unwrap().resize(self.lens.len(), Vec::new());
        for sample in 0..self.lens.len() {
            let to = self.target(sample);
            let outcomes = Arc::clone(&reads.outcomes);
            let done = move |outcome| {
                outcomes.0.lock().unwrap()[sample].push(outcome);
                outcomes.1.notify_all();
            };
            let id = SampleId(u32::try_from(sample).unwrap());
            client.read(peer, generation, Read::new(id, to, within, done));
            if (sample + 1) % flush_every == 0 {
                client.flush();
            }
        }
        client.flush();
        reads
    }

    pub(super) fn read_all(
        &self,
        client: &Client,
        generation: u64,
        within: Duration,
    ) -> Vec<Outcome> {
        self.start(client, generation, within).outcomes()
    }

    pub(super) fn read_all_of(
        &self,
        client: &Client,
        peer: NodeId,
        generation: u64,
        within: Duration,
    ) -> Vec<Outcome> {
        self.start_of(client, peer, generation, within, usize::MAX).outcomes()
    }

    pub(super) fn read_in_batches(
        &self,
        client: &Client,
        generation: u64,
        within: Duration,
        flush_every: usize,
    ) -> Vec<Outcome> {
        self.start_of(client, THEIRS, generation, within, flush_every).outcomes()
    }
}
