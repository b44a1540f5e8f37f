//! An agent for the tests: a server whose events wait in a channel until a test takes them.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use tempfile::TempDir;
use tierfeed_core::{
    batch::Batch,
    fleet::launch::JobWorld,
    id::{BatchId, ConnectionId, Epoch, LeaseId, NodeId, Rank, SampleId, Step},
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    session::Wait,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_numa_memory::{Pages, Region, Request};

use crate::{
    Briefing, Client, ClientEvent, Delivery, Hello, Limits, OnError, Role, Server,
    descriptors::Descriptors,
};

pub(super) const RANK: Rank = Rank(2);

pub(super) fn post() -> JobWorld {
    JobWorld {
        world: World { nodes: 1, ranks_per_node: 4 },
        nodes_at: "job.yaml:4".to_owned(),
        ranks_per_node_at: "job.yaml:5".to_owned(),
        node: Some(NodeId(0)),
    }
}

pub(super) const LIMITS: Limits =
    Limits { connections_max: 8, window: 16, published_samples_max: 100_000 };

/// Far longer than any wait of these tests; a test that reaches it has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A wait that ended a second after the host started.
pub(super) fn wait(len_ns: u64) -> Wait {
    Wait::ending(Nanoseconds(1_000_000_000), Nanoseconds(len_ns))
}

pub(super) struct TestAgent {
    pub(super) server: Server,
    pub(super) path: PathBuf,
    pub(super) arena: Arc<Region>,
    pub(super) briefing: Briefing,
    events: Mutex<Receiver<ClientEvent>>,
    /// Dropped after the server, which removes its socket.
    #[expect(dead_code, reason = "held for its drop")]
    directory: Option<TempDir>,
}

impl TestAgent {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let test_agent = Self::at(&directory.path().join("run/agent.sock"));
        Self { directory: Some(directory), ..test_agent }
    }

    pub(super) fn at(path: &Path) -> Self {
        Self::with(path, Descriptors::Refused)
    }

    /// As on a kernel that lets all processes send descriptors.
    pub(super) fn of_old_kernel() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let test_agent =
            Self::with(&directory.path().join("run/agent.sock"), Descriptors::Possible);
        Self { directory: Some(directory), ..test_agent }
    }

    fn with(path: &Path, descriptors: Descriptors) -> Self {
        let (sender, events) = channel();
        // A test that has ended takes no more events.
        let report = Box::new(move |event| drop(sender.send(event)));
        Self {
            server: Server::bind_with(path, LIMITS, post(), report, descriptors).unwrap(),
            path: path.to_owned(),
            arena: Arc::new(region(Bytes::mib(1))),
            briefing: briefing(),
            events: Mutex::new(events),
            directory: None,
        }
    }

    pub(super) fn attach(&self) -> (Client, ConnectionId) {
        std::thread::scope(|scope| {
            let hello = Hello::of_rank(RANK, Role::Trainer);
            let client =
                scope.spawn(move || Client::connect(&self.path, &hello, PATIENCE).unwrap());
            let connection = self.admit_next();
            (client.join().unwrap(), connection)
        })
    }

    pub(super) fn admit_next(&self) -> ConnectionId {
        let ClientEvent::Attached { connection, rank, .. } = self.event() else {
            panic!("not attached")
        };
        assert_eq!(rank, RANK);
        self.server.admit(connection, &self.briefing, Arc::clone(&self.arena)).unwrap();
        connection
    }

    pub(super) fn event(&self) -> ClientEvent {
        self.events.lock().unwrap().recv_timeout(PATIENCE).expect("an event comes")
    }

    /// Checks that no unexpected event has happened. All earlier causes have had their effect when
    /// this is called: the thread of the server has served a later client to its end.
    pub(super) fn assert_quiet(&self) {
        let event = self.events.lock().unwrap().try_recv();
        assert!(event.is_err(), "{event:?}");
    }

    pub(super) fn requested(&self) -> (ConnectionId, BatchId) {
        match self.event() {
            ClientEvent::Requested { connection, batch } => (connection, batch),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn released(&self) -> (ConnectionId, LeaseId) {
        match self.event() {
            ClientEvent::Released { connection, lease, .. } => (connection, lease),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn published(&self, connection: ConnectionId) -> (Epoch, Vec<SampleId>) {
        let ClientEvent::Published { connection: who, request, rank, epoch, samples } =
            self.event()
        else {
            panic!("not published")
        };
        assert_eq!((who, rank), (connection, RANK));
        assert_eq!(self.server.took_order(connection, request), Delivery::Sent);
        (epoch, samples)
    }

    pub(super) fn gone(&self) -> ConnectionId {
        match self.event() {
            ClientEvent::Gone { connection, .. } => connection,
            other => panic!("{other:?}"),
        }
    }

    /// Hands over a batch of one sample at the start of the arena; the number of its lease is the
    /// step.
    pub(super) fn lease(&self, connection: ConnectionId, step: u32) {
        let batch = batch(step, &[64]);
        let lease = LeaseId(u64::from(step));
        self.server.lease(connection, lease, Bytes(0), &batch, |_| None).unwrap();
    }
}

pub(super) fn region(len: Bytes) -> Region {
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    Region::allocate(&Request { len, locality, name: "test-arena", pages }).unwrap()
}

pub(super) fn batch_id(step: u32) -> BatchId {
    BatchId { epoch: Epoch(0), step: Step(step), rank: RANK }
}

/// Samples `10 * step` and following, with these lengths.
pub(super) fn batch(step: u32, lens: &[u64]) -> Batch {
    let samples = (step * 10..).map(SampleId).zip(lens.iter().map(|len| Bytes(*len)));
    Batch::lay_out(batch_id(step), samples)
}

pub(super) fn briefing() -> Briefing {
    Briefing {
        job: "test".into(),
        rank: RANK,
        order: Spec {
            samples: 1000,
            shuffle: Shuffle::TORCH_DISTRIBUTED,
            seed: 42,
            epochs: 3,
            drop_last: false,
            batch_size: 8,
            world: World { nodes: 1, ranks_per_node: 4 },
            start: Position::START,
            further: FurtherDatasets::NONE,
        },
        index_path: "/run/index.tfx".into(),
        bucket: None,
        on_error: OnError::Fail,
        patience_ns: 0,
        emulation: None,
        batches_ahead: 4,
        fingerprint: 7,
        transform: None,
        further: Vec::new(),
    }
}
