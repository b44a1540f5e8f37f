//! Tests that need a second process. The test program starts itself again; the environment says which
//! part the new process plays.

use std::{
    fs::File,
    io::{BufRead, BufReader, Lines, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, setrlimit};
use tierfeed_core::{id::LeaseId, units::Bytes};

use super::stage::{LIMITS, PATIENCE, RANK, Stage, batch, batch_id};
use crate::{
    Client, ClientEvent, ConnectError, Departure, Forked, Hello, NextError, ReleaseError, Reply,
    RequestError, Role,
};

const PART: &str = "TIERFEED_TEST_PART";
const SOCKET: &str = "TIERFEED_TEST_SOCKET";
const READY: &str = "ready";
const SERVED: &str = "served";
const MANY: u32 = 2_000_000;

/// Plays a part when another test starts this program.
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

/// This program, started again in a part.
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

    /// Ends with the process at the latest.
    fn wait_until_it_says(&mut self, word: &str) {
        let heard = self.said.by_ref().map_while(Result::ok).any(|line| line.ends_with(word));
        assert!(heard, "the second process ended before it said {word:?}");
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

/// Until the parent kills this process, or dies itself.
fn wait_for_the_end() {
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).unwrap();
}

fn connect(socket: &Path) -> Client {
    Client::connect(socket, &Hello::of_rank(RANK, Role::Trainer), PATIENCE).unwrap()
}

/// Reads for the process that started this one.
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

/// As a forked loader worker does, the orphan holds a copy of the socket and of nothing else.
fn play_client_with_orphan(socket: &Path) {
    let client = connect(socket);
    let copy = client.link_socket().try_clone_to_owned().unwrap();
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
    let stage = Stage::at(socket);
    say(READY);
    let holder = stage.admit_next();
    for step in 0..3 {
        assert_eq!(stage.requested(), (holder, batch_id(step)));
        stage.arena.write(Bytes(4096), b"last bytes").unwrap();
        let lease = LeaseId(u64::from(step));
        stage.server.lease(holder, lease, Bytes(4096), &batch(step, &[10]), |_| None).unwrap();
    }
    say(SERVED);
    wait_for_the_end();
}

/// Where batch `step` lies: the window has as many places.
fn place_of(step: u32) -> Bytes {
    Bytes(u64::from(step % LIMITS.window) * 8192)
}

fn content_of(step: u32) -> [u8; 64] {
    let word = (u64::from(step) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    std::array::from_fn(|at| word[at % 8])
}

/// Hands over [`MANY`] batches in the order of the requests, each with bytes of its own.
fn play_agent_of_many(socket: &Path) {
    let stage = Stage::at(socket);
    say(READY);
    let holder = stage.admit_next();
    let (mut leased, mut released) = (0, 0);
    while released < MANY {
        match stage.event() {
            ClientEvent::Requested { batch: id, .. } => {
                assert_eq!(id, batch_id(leased));
                stage.arena.write(place_of(leased), &content_of(leased)).unwrap();
                let (lease, batch) = (LeaseId(u64::from(leased)), batch(leased, &[64]));
                stage.server.lease(holder, lease, place_of(leased), &batch, |_| None).unwrap();
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

/// An agent that has used up its descriptors when a client comes, and gets some back later.
fn play_agent_without_descriptors(socket: &Path) {
    let stage = Stage::at(socket);
    let null = || File::open("/dev/null");
    let limit = Rlimit { current: Some(100), maximum: Some(100) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let all: Vec<_> = std::iter::repeat_with(null).map_while(Result::ok).collect();
    say(READY);
    let mut go_on = String::new();
    std::io::stdin().read_line(&mut go_on).unwrap();
    drop(all);
    // The client that came too early is admitted in vain.
    stage.admit_next();
    stage.gone();
    stage.admit_next();
    wait_for_the_end();
}

/// Serves the second process until it holds one batch and waits for another.
fn serve_one_of_two(stage: &Stage) -> tierfeed_core::id::ConnectionId {
    let holder = stage.admit_next();
    assert_eq!(stage.requested(), (holder, batch_id(0)));
    stage.lease(holder, 0);
    assert_eq!(stage.requested(), (holder, batch_id(1)));
    holder
}

#[test]
fn a_killed_client_is_reported_gone_once() {
    let stage = Stage::new();
    let mut second = Second::start("client", &stage.path);
    let holder = serve_one_of_two(&stage);
    second.wait_until_it_says(READY);
    second.kill();
    assert_eq!(stage.gone(), holder);
    let (client, holder) = stage.attach();
    drop(client);
    assert_eq!(stage.gone(), holder);
    stage.assert_quiet();
}

#[test]
fn a_killed_client_is_gone_though_an_orphan_holds_its_socket() {
    let stage = Stage::new();
    let mut second = Second::start("client-with-orphan", &stage.path);
    let holder = serve_one_of_two(&stage);
    second.wait_until_it_says(READY);
    // Kept open, so that the orphan lives on.
    let orphans_input = second.child.stdin.take();
    second.kill();
    let ClientEvent::Gone { holder: gone, cause } = stage.event() else { panic!("not gone") };
    assert_eq!(gone, holder);
    assert!(matches!(cause, Departure::ProcessEnded), "the socket did not say it: {cause}");
    drop(orphans_input);
    let (client, holder) = stage.attach();
    drop(client);
    assert_eq!(stage.gone(), holder);
    stage.assert_quiet();
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
    assert!(Stage::at(&socket).path.exists(), "the socket that was left behind is replaced");
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
        // A training may write over its batch; nobody else sees that afterwards.
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
    let stage = Stage::new();
    let (mut client, holder) = stage.attach();
    client.request(batch_id(0)).unwrap();
    stage.requested();
    stage.lease(holder, 0);
    assert!(matches!(client.next(PATIENCE), Ok(Reply::Batch(_))));

    let current = std::process::id();
    let forked = Forked { creator: current + 1, current };
    client.pretend_to_be_created_by(current + 1);
    assert_eq!(client.request(batch_id(1)), Err(RequestError::Forked(forked)));
    assert_eq!(client.release(LeaseId(0)), Err(ReleaseError::Forked(forked)));
    assert!(matches!(client.next(PATIENCE), Err(NextError::Forked(it)) if it == forked));
    assert!(matches!(client.try_next(), Err(NextError::Forked(it)) if it == forked));
    // What the copy in the child does not do, the parent still can.
    client.pretend_to_be_created_by(current);
    client.release(LeaseId(0)).unwrap();
    assert_eq!(stage.released(), (holder, LeaseId(0)));
}

fn try_to_connect(stage: &Stage, trainer: Option<u32>) -> Result<Client, ConnectError> {
    let hello = Hello::of_rank(RANK, Role::Worker);
    let trainer = trainer.unwrap_or(hello.trainer);
    Client::connect(&stage.path, &Hello { trainer, ..hello }, PATIENCE)
}

#[test]
fn a_rank_that_is_read_is_given_to_no_other_process() {
    let stage = Stage::new();
    let mut second = Second::start("client", &stage.path);
    let first = serve_one_of_two(&stage);
    second.wait_until_it_says(READY);
    match try_to_connect(&stage, None) {
        Err(ConnectError::TurnedAway { reason }) => {
            let processes =
                [second.child.id(), std::process::id()].map(|it| format!("process {it}"));
            assert!(processes.iter().all(|it| reason.contains(it)), "{reason}");
            assert!(reason.contains("rank 2"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    // Nor to one that claims to be a child of the first.
    let claimed = try_to_connect(&stage, Some(second.child.id()));
    assert!(matches!(claimed, Err(ConnectError::TurnedAway { .. })), "{claimed:?}");
    for _ in 0..2 {
        assert!(matches!(stage.event(), ClientEvent::TurnedAway { .. }));
    }
    stage.assert_quiet();
    // The end of the first is known to the kernel before the agent hears of it.
    second.kill();
    let client = std::thread::scope(|scope| {
        let client = scope.spawn(|| try_to_connect(&stage, None).unwrap());
        assert_eq!(stage.gone(), first);
        stage.admit_next();
        client.join().unwrap()
    });
    drop(client);
}

#[test]
fn workers_read_for_the_trainer_that_they_descend_from() {
    let stage = Stage::new();
    let mut worker = Second::start("worker", &stage.path);
    let first = serve_one_of_two(&stage);
    worker.wait_until_it_says(READY);
    // This process is the trainer of the first, so it may read the rank as well, and so may its others.
    let (client, own) = stage.attach();
    let mut other = Second::start("worker", &stage.path);
    let second = serve_one_of_two(&stage);
    other.wait_until_it_says(READY);
    drop(client);
    assert_eq!(stage.gone(), own);
    for (process, holder) in [(&mut worker, first), (&mut other, second)] {
        process.kill();
        assert_eq!(stage.gone(), holder);
    }
    stage.assert_quiet();
}
