use tierfeed_core::{
    fleet::{Direction, Progress, Registration},
    id::Epoch,
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::policy,
    session::{Observed, ObservedLink},
    units::Bytes,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};

use super::*;
use crate::{
    rpc::client::{Address, Client},
    transport::{
        local_socket::{
            tests as local_socket,
            tests::{Hostile, ON_TIME},
        },
        mutual_tls::Credentials,
        token::Token,
    },
};

pub(crate) fn settings(start_marker: PathBuf) -> Settings {
    let order = Spec {
        samples: 100,
        shuffle: Shuffle::Sequential,
        seed: 0,
        epochs: 1,
        drop_last: false,
        batch_size: 10,
        world: World { nodes: 1, ranks_per_node: 1 },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    Settings {
        job: JobText {
            name: "job".into(),
            text: String::new(),
            file: "/job.yaml".into(),
            index_fingerprint: 0,
            further_fingerprints: Vec::new(),
            world: order.world,
        },
        fleet: fleet::Settings {
            order,
            policy: policy::Kind::Gap,
            lost_after: Nanoseconds(u64::MAX),
        },
        inputs: crate::schedule::tests::inputs(),
        meeting_port: 0,
        index: start_marker.with_extension("index"),
        schedule_log: start_marker.with_extension("jsonl"),
        memberships: start_marker.with_extension("json"),
        start_marker,
    }
}

pub(crate) fn agent(incarnation: u64) -> Registration {
    let offer = crate::schedule::tests::offer(None);
    Registration { node: NodeId(0), home: 1, incarnation, offer }
}

fn left(host: u64) -> Available {
    let (cgroup, pressure, load) = (None, None, None);
    let (nodes_free, disks) = (Vec::new(), Vec::new());
    Available { host: Bytes(host), cgroup, nodes_free, pressure, load, disks }
}

/// A manager that serves until its end, and a client of it.
struct Serving {
    client: Client,
    manager: JoinHandle<Result<Summaries, ManagerError>>,
    stop: shutdown::Trigger,
    _directory: tempfile::TempDir,
}

async fn serving(with: impl FnOnce(Manager) -> Manager) -> Serving {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let (stop, shutdown) = shutdown::channel();
    let marker = directory.path().join("begun");
    let manager = Manager::start(settings(marker), Listener::unix(&socket).unwrap(), shutdown);
    let manager = tokio::spawn(with(manager).run());
    let client = Client::connect(&Address::Unix(socket), None).await.unwrap();
    Serving { client, manager, stop, _directory: directory }
}

fn nothing_observed() -> Observed {
    Observed {
        planned: Epoch(0),
        cold: ObservedLink::default(),
        tiers: Vec::new(),
        transforms: Default::default(),
        load: None,
        cycle: None,
        supply: None,
    }
}

fn told(incarnation: u64, host: Option<u64>) -> Report {
    let available = host.map(|host| Box::new(left(host)));
    Report { available, ..Report::of_progress(NodeId(0), incarnation, Progress::default()) }
}

/// The free memory that `status` shows of the only node.
async fn shown(client: &Client) -> Option<u64> {
    let status = client.status().await.unwrap();
    status.joined[0].available.as_ref().map(|it| it.available.host.0)
}

#[tokio::test]
async fn status_shows_what_the_node_told_last_and_nothing_of_a_process_that_is_gone() {
    let Serving { client, manager, stop: _stop, _directory } = serving(|it| it).await;
    let (node, progress) = (NodeId(0), Progress::default());

    client.register(&agent(1)).await.unwrap();
    assert_eq!(shown(&client).await, None, "it told nothing yet");
    for host in [70, 50] {
        client.report(told(1, Some(host))).await.unwrap();
        assert_eq!(shown(&client).await, Some(host));
    }
    client.report(told(1, None)).await.unwrap();
    assert_eq!(shown(&client).await, Some(50), "a report without it changes nothing");

    client.register(&agent(2)).await.unwrap();
    assert_eq!(shown(&client).await, None, "another process told that");
    let direction = client.report(told(1, Some(9))).await.unwrap();
    assert_eq!((direction, shown(&client).await), (Direction::Superseded, None));
    client.report(told(2, Some(40))).await.unwrap();
    client.drained(node, 1, progress.clone()).await.unwrap();
    assert_eq!(shown(&client).await, Some(40), "the first process ends nothing any more");
    client.drained(node, 2, progress).await.unwrap();
    assert_eq!(shown(&client).await, None, "it ended");
    client.drain().await.unwrap();
    manager.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_node_gets_the_secret_before_it_listens_and_each_change_of_the_nodes_once() {
    let Serving { client, manager, stop, _directory } =
        serving(|it| it.with_peer_secret(&Token::generate().unwrap())).await;
    client.register(&agent(1)).await.unwrap();
    let before = PeerReport::before_it_listens();
    let peers = |incarnation, report| client.peers(NodeId(0), incarnation, report);
    let told = peers(1, before.clone()).await.unwrap();
    assert!(matches!(told, PeersAnswer::Same { secret: Some(_) }), "{told:?}");
    assert_eq!(peers(2, before.clone()).await.unwrap(), PeersAnswer::Unknown);
    let listens = PeerReport { address: "h:1".into(), ..before };
    let told = peers(1, listens.clone()).await.unwrap();
    let PeersAnswer::Changed(nodes) = told else { panic!("{told:?}") };
    let knows = PeerReport { generation: nodes.generation, ..listens };
    assert_eq!(peers(1, knows).await.unwrap(), PeersAnswer::Same { secret: None });
    stop.pull();
    client.drained(NodeId(0), 1, Progress::default()).await.unwrap();
    manager.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_caller_of_another_version_is_told_that_of_the_manager() {
    let Serving { client, manager, stop, _directory } = serving(|it| it).await;
    let other = client.call_at::<()>("/tierfeed.Manager/0.0.0", Call::Drain).await.unwrap_err();
    let message = other.to_string();
    assert!(message.contains(env!("CARGO_PKG_VERSION")), "{message}");
    assert_eq!(other.remedy(), crate::rpc::call::Remedy::Reconfigure);
    stop.pull();
    manager.abort();
}

/// As after a restart of the manager, which begins with the first generation again.
#[tokio::test]
async fn a_manager_takes_over_the_schedule_by_which_a_node_works() {
    let Serving { client, manager, stop, _directory } = serving(|it| it).await;
    let first = client.register(&agent(1)).await.unwrap().schedule;
    let depth = first.depth + 1;
    let schedule = Schedule { generation: 3, depth, ..first };
    for revised in [Some(schedule), None] {
        let (observed, schedules) = (Some(Box::new(nothing_observed())), Vec::from_iter(revised));
        client.report(Report { observed, schedules, ..told(1, None) }).await.unwrap();
        let shown = &client.status().await.unwrap().joined[0].schedule;
        assert_eq!((shown.generation, shown.staged_batches), (3, depth));
    }
    stop.pull();
    client.drained(NodeId(0), 1, Progress::default()).await.unwrap();
    manager.await.unwrap().unwrap();
}

/// The start marker exists from the first registration until the job is drained.
#[tokio::test]
async fn a_job_has_begun_when_a_node_joined_and_ended_when_it_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, marker) = (directory.path().join("socket"), directory.path().join("begun"));
    let noted = || StartMarker::indexes_of(&marker, "");
    for (life, is_drained) in [(1, false), (2, true)] {
        let (trigger, shutdown) = shutdown::channel();
        let listener = Listener::unix(&socket).unwrap();
        let manager =
            tokio::spawn(Manager::start(settings(marker.clone()), listener, shutdown).run());
        let client = Client::connect(&Address::Unix(socket.clone()), None).await.unwrap();
        client.status().await.unwrap();
        assert_eq!(noted(), (life == 2).then(|| vec![0]), "only a node makes a beginning");
        client.register(&agent(life)).await.unwrap();
        // The marker is written beside the loop.
        let is_noted = async {
            while noted() != Some(vec![0]) {
                client.status().await.unwrap();
            }
        };
        timeout(ON_TIME, is_noted).await.unwrap();
        if is_drained {
            client.drain().await.unwrap();
        } else {
            trigger.pull();
        }
        client.drained(NodeId(0), life, Progress::default()).await.unwrap();
        manager.await.unwrap().unwrap();
        assert_eq!(
            noted(),
            (!is_drained).then(|| vec![0]),
            "a manager that is stopped may come back"
        );
    }
}

#[tokio::test]
async fn a_manager_that_is_never_idle_ticks() {
    let directory = tempfile::tempdir().unwrap();
    let (_trigger, shutdown) = shutdown::channel();
    let listener = Listener::unix(&directory.path().join("socket")).unwrap();
    let mut manager = Manager::start(settings(directory.path().join("begun")), listener, shutdown);
    let (sender, requests) = mpsc::channel(1);
    manager.requests = requests;
    let ticking = async {
        loop {
            // An error means that a request waits already.
            let _ = sender
                .try_send(Request { call: Call::Status, reply: tokio::sync::oneshot::channel().0 });
            if let Event::Tick = manager.select().await {
                break;
            }
        }
    };
    timeout(ON_TIME, ticking).await.expect("an interval begins with a tick");
}

/// Runs a client in a runtime of its own, which the manager cannot block.
fn in_time(course: impl Future<Output = ()>) {
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    own.block_on(async { timeout(ON_TIME, course).await.unwrap() });
}

#[test]
fn peers_that_send_descriptors_hold_up_no_agent() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), local_socket::runtime());
    let socket = directory.path().join("socket");
    let (_trigger, shutdown) = shutdown::channel();
    runtime.block_on(async {
        let listener = Listener::unix(&socket).unwrap();
        let settings = settings(directory.path().join("begun"));
        drop(tokio::spawn(Manager::start(settings, listener, shutdown).run()));
    });
    let hostile: Vec<_> =
        (0..4).map(|_| Hostile::speak(&socket, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).collect();
    let asking = async {
        let client = Client::connect(&Address::Unix(socket), None).await.unwrap();
        client.register(&agent(1)).await.unwrap();
    };
    in_time(asking);
    drop(hostile);
    runtime.shutdown_background();
}

#[test]
fn a_run_directory_that_does_not_answer_delays_neither_agents_nor_the_end() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), local_socket::runtime());
    let (socket, marker) = (directory.path().join("socket"), directory.path().join("begun"));
    // Opening a pipe for writing blocks until it has a reader.
    nix::unistd::mkfifo(&marker.with_extension("part"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (_trigger, shutdown) = shutdown::channel();
    let inside = runtime.enter();
    let listener = Listener::unix(&socket).unwrap();
    let manager = tokio::spawn(Manager::start(settings(marker), listener, shutdown).run());
    drop(inside);
    let course = async {
        let client = Client::connect(&Address::Unix(socket), None).await.unwrap();
        client.register(&agent(1)).await.unwrap();
        client.status().await.unwrap();
        client.drain().await.unwrap();
        client.drained(NodeId(0), 1, Progress::default()).await.unwrap();
        manager.await.unwrap().unwrap();
    };
    in_time(course);
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_peer_that_proved_the_token_and_answers_no_ping_is_closed() {
    let token = Token::generate().unwrap();
    let listener = Listener::tcp("127.0.0.1:0", &token).await.unwrap();
    let address = listener.tcp_address().unwrap().unwrap();
    let (sender, _requests) = mpsc::channel(1);
    let service =
        Service::new(settings(PathBuf::new()).job, std::path::Path::new("/missing"), sender);
    let (_trigger, stopped) = shutdown::channel();
    let every = Duration::from_millis(200);
    let pings = Pings { every, answered_within: every };
    let mut server = JoinSet::new();
    server.spawn(listen(service, listener, 1, pings, stopped));
    let stream = TcpStream::connect(address).await.unwrap();
    let mut peer = Credentials::of(&token).connect(stream).await.unwrap();
    let begun = Instant::now();
    // The preface of HTTP/2, and settings without an entry.
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut heard = Vec::new();
    // The end may come as an error, because it is not announced.
    drop(timeout(ON_TIME, peer.read_to_end(&mut heard)).await.expect("it is closed"));
    assert!(begun.elapsed() >= pings.every + pings.answered_within, "{:?}", begun.elapsed());
}
