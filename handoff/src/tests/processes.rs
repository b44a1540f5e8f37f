//! Tests that need a second process. The test program starts itself again; an environment variable
//! selects the part of the new process.

use std::{
    fs::File,
    io::{BufRead, BufReader, Lines, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, setrlimit};
use tierfeed_core::{id::LeaseId, units::Bytes};

use super::test_agent::{LIMITS, PATIENCE, RANK, TestAgent, batch, batch_id};
use crate::{
    Client, ClientEvent, ConnectError, DisconnectCause, Forked, Hello, NextError, ReleaseError,
    Reply, RequestError, Role,
};

const PART: &str = "TIERFEED_TEST_PART";
const SOCKET: &str = "TIERFEED_TEST_SOCKET";
const READY: &str = "ready";
const SERVED: &str = "served";
const MANY: u32 = 2_000_000;

/// Runs a part when another test starts this program.
#[test]
#[ignore = "no test of its own: others start it"]
fn second_process() {
    #[expect(clippy::disallowed_methods, reason = "the parent test chooses the part")]
    let (Ok(part), Ok(socket)) = (std::env::var(PART), std::env::var(SOCKET)) else { return };
    let socket = PathBuf::from(socket);
    match part.as_str() {
        "client" => play_client(&connect(&socket)),
        "worker" => play_client(&connect_as_worker(&socket)),
        "client-with-orphan" => play_client_with_orphan(&socket),
        "agent" => play_agent(&socket),
        "agent-of-many" => play_agent_of_many(&socket),
        "agent-without-descriptors" => play_agent_without_descriptors(&socket),
        other => panic!("no part {other}"),
    }
}

/// This program, started again to run a part.
struct Second {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Second {
    fn start(part: &str, socket: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "tests::processes::second_process"])
            .arg("--nocapture")
            .env(PART, part)
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    /// Waits for a line, or panics when the process has ended.
    fn wait_until_it_says(&mut self, word: &str) {
        let received = self.said.by_ref().map_while(Result::ok).any(|line| line.ends_with(word));
        assert!(received, "the second process ended before it said {word:?}");
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // It is dead already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().unwrap();
}

/// Waits until the parent kills this process, or ends itself.
fn wait_for_the_end() {
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).unwrap();
}

fn connect(socket: &Path) -> Client {
    Client::connect(socket, &Hello::of_rank(RANK, Role::Trainer), PATIENCE).unwrap()
}

/// Connects as a worker of the process that started this one.
fn connect_as_worker(socket: &Path) -> Client {
    let trainer = std::os::unix::process::parent_id();
    let hello = Hello { trainer, ..Hello::of_rank(RANK, Role::Worker) };
    Client::connect(socket, &hello, PATIENCE).unwrap()
}

fn play_client(client: &Client) {
    client.request(batch_id(0)).unwrap();
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
    client.request(batch_id(1)).unwrap();
    say(READY);
    wait_for_the_end();
}

/// As a forked loader worker does, the orphan holds a copy of the socket only.
fn play_client_with_orphan(socket: &Path) {
    let client = connect(socket);
    let copy = client.connection_socket().try_clone_to_owned().unwrap();
    // It ends with the test program, whose end of the pipe it reads.
    let orphan = Command::new("cat").stdin(Stdio::inherit()).stdout(copy).spawn().unwrap();
    client.request(batch_id(0)).unwrap();
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));
    client.request(batch_id(1)).unwrap();
    say(READY);
    wait_for_the_end();
    drop(orphan);
}

fn play_agent(socket: &Path) {
    let test_agent = TestAgent::at(socket);
    say(READY);
    let connection = test_agent.admit_next();
    for step in 0..3 {
        assert_eq!(test_agent.requested(), (connection, batch_id(step)));
        test_agent.arena.write(Bytes(4096), b"last bytes").unwrap();
        let lease = LeaseId(u64::from(step));
        test_agent
            .server
            .lease(connection, lease, Bytes(4096), &batch(step, &[10]), |_| None)
            .unwrap();
    }
    say(SERVED);
    wait_for_the_end();
}

/// Offset of batch `step`; the arena has as many slots as the window.
fn place_of(step: u32) -> Bytes {
    Bytes(u64::from(step % LIMITS.window) * 8192)
}

fn content_of(step: u32) -> [u8; 64] {
    let word = (u64::from(step) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    std::array::from_fn(|at| word[at % 8])
}

/// Hands over [`MANY`] batches in the order of the requests, each with its own bytes.
fn play_agent_of_many(socket: &Path) {
    let test_agent = TestAgent::at(socket);
    say(READY);
    let connection = test_agent.admit_next();
    let (mut leased, mut released) = (0, 0);
    while released < MANY {
        match test_agent.event() {
            ClientEvent::Requested { batch: id, .. } => {
                assert_eq!(id, batch_id(leased));
                test_agent.arena.write(place_of(leased), &content_of(leased)).unwrap();
                let (lease, batch) = (LeaseId(u64::from(leased)), batch(leased, &[64]));
                test_agent
                    .server
                    .lease(connection, lease, place_of(leased), &batch, |_| None)
                    .unwrap();
                leased += 1;
            }
            ClientEvent::Released { lease, .. } => {
                assert_eq!(lease, LeaseId(u64::from(released)));
                released += 1;
            }
            ClientEvent::Delivered { .. } => (),
            other => panic!("{other:?}"),
        }
    }
    say(SERVED);
    wait_for_the_end();
}

/// An agent that has no descriptors left when a client connects, and gets some back later.
fn play_agent_without_descriptors(socket: &Path) {
    let test_agent = TestAgent::at(socket);
    let null = || File::open("/dev/null");
    let limit = Rlimit { current: Some(100), maximum: Some(100) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let all: Vec<_> = std::iter::repeat_with(null).map_while(Result::ok).collect();
    say(READY);
    let mut go_on = String::new();
    std::io::stdin().read_line(&mut go_on).unwrap();
    drop(all);
    // The client that came too early has timed out already.
    test_agent.admit_next();
    test_agent.gone();
    test_agent.admit_next();
    wait_for_the_end();
}

/// Serves the second process until it holds one batch and waits for another.
fn serve_one_of_two(test_agent: &TestAgent) -> tierfeed_core::id::ConnectionId {
    let connection = test_agent.admit_next();
    assert_eq!(test_agent.requested(), (connection, batch_id(0)));
    test_agent.lease(connection, 0);
    assert_eq!(test_agent.requested(), (connection, batch_id(1)));
    connection
}

#[test]
fn a_killed_client_is_reported_gone_once() {
    let test_agent = TestAgent::new();
    let mut second = Second::start("client", &test_agent.path);
    let connection = serve_one_of_two(&test_agent);
    second.wait_until_it_says(READY);
    second.kill();
    assert_eq!(test_agent.gone(), connection);
    let (client, connection) = test_agent.attach();
    drop(client);
    assert_eq!(test_agent.gone(), connection);
    test_agent.assert_quiet();
}

#[test]
fn a_killed_client_is_gone_though_an_orphan_holds_its_socket() {
    let test_agent = TestAgent::new();
    let mut second = Second::start("client-with-orphan", &test_agent.path);
    let connection = serve_one_of_two(&test_agent);
    second.wait_until_it_says(READY);
    // Kept open, so that the orphan lives on.
    let orphans_input = second.child.stdin.take();
    second.kill();
    let ClientEvent::Gone { connection: gone, cause } = test_agent.event() else {
        panic!("not gone")
    };
    assert_eq!(gone, connection);
    assert!(matches!(cause, DisconnectCause::ProcessEnded), "the socket did not say it: {cause}");
    drop(orphans_input);
    let (client, connection) = test_agent.attach();
    drop(client);
    assert_eq!(test_agent.gone(), connection);
    test_agent.assert_quiet();
}

#[test]
fn what_a_killed_agent_had_handed_over_is_still_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("run/agent.sock");
    let mut agent = Second::start("agent", &socket);
    agent.wait_until_it_says(READY);
    let client = connect(&socket);
    for step in 0..4 {
        client.request(batch_id(step)).unwrap();
    }
    agent.wait_until_it_says(SERVED);
    agent.kill();

    let mut held = Vec::new();
    for step in 0..3 {
        let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
        assert_eq!(leased.id, batch_id(step));
        held.push(leased);
    }
    let end = client.next(PATIENCE);
    assert!(matches!(end, Err(NextError::Disconnected(_))), "{end:?}");
    let mut bytes = [0; 10];
    held[0].arena.read(held[0].offset, &mut bytes).unwrap();
    assert_eq!(&bytes, b"last bytes");
    for leased in held {
        client.release(leased.lease).unwrap();
    }
    assert!(TestAgent::at(&socket).path.exists(), "the socket that was left behind is replaced");
}

#[test]
#[ignore = "two million requests take a minute; scripts/model.sh runs it"]
fn two_million_requests_between_two_processes_are_answered_in_order_with_their_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("run/agent.sock");
    let mut agent = Second::start("agent-of-many", &socket);
    agent.wait_until_it_says(READY);
    let client = connect(&socket);
    let mut asked = 0;
    for step in 0..MANY {
        while asked < MANY && asked < step + LIMITS.window {
            client.request(batch_id(asked)).unwrap();
            asked += 1;
        }
        let Reply::Batch(leased) = client.next(PATIENCE).unwrap() else { panic!("refused") };
        assert_eq!((leased.id, leased.offset), (batch_id(step), place_of(step)));
        let mut bytes = [0; 64];
        leased.arena.read(leased.offset, &mut bytes).unwrap();
        assert_eq!(bytes, content_of(step));
        // A training may write over its batch; no other process may see that afterwards.
        leased.arena.write(leased.offset, &[0xff; 64]).unwrap();
        client.release(leased.lease).unwrap();
    }
    agent.wait_until_it_says(SERVED);
}

#[test]
fn a_client_gets_in_once_the_agent_has_descriptors_again() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("run/agent.sock");
    let mut agent = Second::start("agent-without-descriptors", &socket);
    agent.wait_until_it_says(READY);
    let hello = Hello::of_rank(RANK, Role::Trainer);
    let early = Client::connect(&socket, &hello, Duration::from_millis(1));
    assert!(matches!(early, Err(ConnectError::TimedOut)), "{early:?}");
    agent.child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    connect(&socket);
}

#[test]
fn a_client_in_a_forked_process_does_nothing() {
    let test_agent = TestAgent::new();
    let (mut client, connection) = test_agent.attach();
    client.request(batch_id(0)).unwrap();
    test_agent.requested();
    test_agent.lease(connection, 0);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));

    let current = std::process::id();
    let forked = Forked { creator: current + 1, current };
    client.pretend_to_be_created_by(current + 1);
    assert_eq!(client.request(batch_id(1)), Err(RequestError::Forked(forked)));
    assert_eq!(client.release(LeaseId(0)), Err(ReleaseError::Forked(forked)));
    assert!(matches!(client.next(PATIENCE), Err(NextError::Forked(it)) if it == forked));
    assert!(matches!(client.try_next(), Err(NextError::Forked(it)) if it == forked));
    // The parent can still do what the copy in the child refused.
    client.pretend_to_be_created_by(current);
    client.release(LeaseId(0)).unwrap();
    assert_eq!(test_agent.released(), (connection, LeaseId(0)));
}

fn try_to_connect(test_agent: &TestAgent, trainer: Option<u32>) -> Result<Client, ConnectError> {
    let hello = Hello::of_rank(RANK, Role::Worker);
    let trainer = trainer.unwrap_or(hello.trainer);
    Client::connect(&test_agent.path, &Hello { trainer, ..hello }, PATIENCE)
}

#[test]
fn a_rank_that_is_read_is_given_to_no_other_process() {
    let test_agent = TestAgent::new();
    let mut second = Second::start("client", &test_agent.path);
    let first = serve_one_of_two(&test_agent);
    second.wait_until_it_says(READY);
    match try_to_connect(&test_agent, None) {
        Err(ConnectError::TurnedAway { reason }) => {
            let processes =
                [second.child.id(), std::process::id()].map(|it| format!("process {it}"));
            assert!(processes.iter().all(|it| reason.contains(it)), "{reason}");
            assert!(reason.contains("rank 2"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // A process that claims to be a child of the first is refused too.
    let claimed = try_to_connect(&test_agent, Some(second.child.id()));
    assert!(matches!(claimed, Err(ConnectError::TurnedAway { .. })), "{claimed:?}");
    for _ in 0..2 {
        assert!(matches!(test_agent.event(), ClientEvent::TurnedAway { .. }));
    }
    test_agent.assert_quiet();
    // The kernel knows about the end of the first before the agent does.
    second.kill();
    let client = std::thread::scope(|scope| {
        let client = scope.spawn(|| try_to_connect(&test_agent, None).unwrap());
        assert_eq!(test_agent.gone(), first);
        test_agent.admit_next();
        client.join().unwrap()
    });
    drop(client);
}

#[test]
fn workers_read_for_the_trainer_that_they_descend_from() {
    let test_agent = TestAgent::new();
    let mut worker = Second::start("worker", &test_agent.path);
    let first = serve_one_of_two(&test_agent);
    worker.wait_until_it_says(READY);
    // This process is the trainer of the first, so it and its other children may read the rank as
    // well.
    let (client, own) = test_agent.attach();
    let mut other = Second::start("worker", &test_agent.path);
    let second = serve_one_of_two(&test_agent);
    other.wait_until_it_says(READY);
    drop(client);
    assert_eq!(test_agent.gone(), own);
    for (process, connection) in [(&mut worker, first), (&mut other, second)] {
        process.kill();
        assert_eq!(test_agent.gone(), connection);
    }
    test_agent.assert_quiet();
}
