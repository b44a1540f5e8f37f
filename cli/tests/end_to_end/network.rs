//! What strangers on the network can do to a manager, and what hosts that are gone can.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::{
    apart::{Cluster, end_well},
    fixture::{Fixture, Running, assert_complete, assert_ended, eventually},
};

/// What every process promises after a signal that asks it to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

fn said(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    assert_ended(&output, code);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn joined(cluster: &Cluster) -> Running {
    let agent = cluster.agent();
    eventually("the agent joined", || cluster.status()["joined"][0]["state"] == "alive");
    agent
}

#[test]
fn a_silent_connection_does_not_keep_a_manager() {
    let mut cluster = Cluster::start();
    let _silent = TcpStream::connect(cluster.address()).unwrap();
    cluster.status();
    cluster.manager.signal("-TERM");
    cluster.manager.ends_within(ENDS_WITHIN);
    assert_eq!(cluster.manager.code(), Some(0), "it ends by itself");
}

#[test]
fn a_node_that_stopped_with_its_connection_open_does_not_keep_a_manager() {
    let mut cluster = Cluster::start();
    let agent = joined(&cluster);
    agent.signal("-STOP");
    cluster.manager.signal("-TERM");
    cluster.manager.ends_within(ENDS_WITHIN);
    assert_eq!(cluster.manager.code(), Some(0), "it ends by itself");
}

/// Without a signal there is no deadline that ends the process.
#[test]
fn a_drain_ends_a_manager_whatever_is_connected() {
    let mut cluster = Cluster::start();
    let agent = joined(&cluster);
    let _silent = TcpStream::connect(cluster.address()).unwrap();
    agent.signal("-STOP");
    said(&mut cluster.fixture.tierfeed(&["drain", "--run-dir", "manager"]), 0);
    cluster.manager.ends_within(ENDS_WITHIN);
    assert_eq!(cluster.manager.code(), Some(0));
}

#[test]
fn a_manager_that_stopped_does_not_keep_an_agent() {
    let cluster = Cluster::start();
    let mut agent = joined(&cluster);
    cluster.manager.signal("-STOP");
    agent.signal("-TERM");
    agent.ends_within(ENDS_WITHIN);
    assert_eq!(agent.code(), Some(0), "it leaves its report");
}

/// No signal starts the deadline of the agent here: its manager asks it to end.
#[test]
fn a_file_that_hangs_does_not_keep_an_agent_that_is_drained() {
    let mut cluster = Cluster::start();
    // Opening a pipe for writing blocks until it has a reader.
    let pipe = cluster.fixture.path("trace.json");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let mut agent = Running::start(cluster.agent_command().arg("--trace").arg(pipe));
    eventually("the agent joined", || cluster.status()["joined"][0]["state"] == "alive");
    said(&mut cluster.fixture.tierfeed(&["drain", "--run-dir", "manager"]), 0);
    cluster.manager.ends_with(0);
    eventually("the agent ends", || agent.has_ended());
    assert_eq!(agent.code(), None, "it kills itself: {}", agent.errors());
}

#[test]
fn a_training_that_ignores_signals_keeps_a_run_no_longer_than_its_grace() {
    let fixture = Fixture::new();
    let begun = fixture.path("begun");
    let script = format!("trap '' TERM; : > {}; exec sleep 300", begun.display());
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run"]);
    run.args(["--grace", "1 s", "--launch", "once", "--", "sh", "-c", &script]);
    let mut run = Running::start(&mut run);
    eventually("the training is on its way", || begun.exists());
    run.signal("-TERM");
    run.ends_within(ENDS_WITHIN);
    assert!(fixture.run_dir().join("report.json").exists(), "{}", run.errors());
}

#[test]
fn a_command_that_ignores_signals_does_not_keep_a_hog() {
    let fixture = Fixture::new();
    let begun = fixture.path("begun");
    let script = format!("trap '' TERM; : > {}; exec sleep 300", begun.display());
    let mut hog = Running::start(
        &mut fixture.tierfeed(&["hog", "--take", "2MiB", "--", "sh", "-c", &script]),
    );
    eventually("the command is on its way", || begun.exists());
    hog.signal("-TERM");
    hog.ends_within(ENDS_WITHIN);
}

/// More connections than a manager has patience for; none speaks.
#[test]
fn silent_connections_hold_up_none_that_speaks() {
    let mut cluster = Cluster::start();
    let silent: Vec<_> =
        (0..1_000).map(|_| TcpStream::connect(cluster.address()).unwrap()).collect();
    let mut agent = joined(&cluster);
    drop(silent);
    agent.signal("-TERM");
    agent.ends_with(0);
    cluster.manager.signal("-TERM");
    cluster.manager.ends_within(ENDS_WITHIN);
}

/// 64 descriptors are fewer than the connections that are made.
#[test]
fn a_manager_without_descriptors_waits_and_goes_on() {
    let fixture = Fixture::new();
    let limited = ["--nofile=64:64", env!("CARGO_BIN_EXE_tierfeed")];
    let arguments = ["manager", "job.yaml", "--listen", "127.0.0.1:0", "--run-dir", "manager"];
    let mut manager = Command::new("prlimit");
    manager.args(limited).args(arguments).current_dir(fixture.path("."));
    let manager = Running::start(manager.env_remove("TIERFEED_RUN_DIR"));
    let cluster = Cluster::with(fixture, manager);
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(cluster.address())).collect();
    eventually("descriptors are used up", || cluster.manager.descriptors() >= 60);
    let before = cluster.manager.cpu_ticks();
    thread::park_timeout(Duration::from_secs(2));
    let ticks = cluster.manager.cpu_ticks() - before;
    assert!(ticks < 50, "{ticks} ticks of 10 ms in 2 s: it does not spin");
    drop(silent);
    let status = || cluster.fixture.tierfeed(&["status", "--run-dir", "manager"]).output();
    eventually("it answers again", || status().unwrap().status.success());
}

/// A listener that keeps what it hears, and passes it on if there is a real manager.
struct Wiretap {
    address: String,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Wiretap {
    fn start(manager: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let client = stream.unwrap();
                match &manager {
                    Some(manager) => {
                        let manager = TcpStream::connect(manager).unwrap();
                        pass_on(client.try_clone().unwrap(), manager.try_clone().unwrap(), &keep);
                        pass_on(manager, client, &keep);
                    }
                    None => pass_on(client, io::sink(), &keep),
                }
            }
        });
        Self { address, heard }
    }

    fn has_heard(&self, text: &[u8]) -> bool {
        self.heard.lock().unwrap().windows(text.len()).any(|part| part == text)
    }
}

trait Sink: Write + Send + 'static {
    fn close(&self) {}
}

impl Sink for io::Sink {}

impl Sink for TcpStream {
    fn close(&self) {
        // An error means that it is closed.
        drop(self.shutdown(Shutdown::Write));
    }
}

fn pass_on(mut from: TcpStream, mut to: impl Sink, heard: &Arc<Mutex<Vec<u8>>>) {
    let heard = Arc::clone(heard);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            heard.lock().unwrap().extend(&bytes[..len]);
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        to.close();
    });
}

#[test]
fn who_listens_between_manager_and_agent_learns_nothing() {
    let mut cluster = Cluster::start();
    let tap = Wiretap::start(Some(cluster.address().to_owned()));
    let token = fs::read_to_string(cluster.fixture.path("manager/token")).unwrap();
    let trainers = cluster.trainers(0);
    cluster.look_at(&tap.address);
    let mut agent = cluster.agent();
    end_well(trainers);
    agent.signal("-TERM");
    agent.ends_with(0);
    assert_eq!(assert_complete(&cluster.fixture.log()), cluster.fixture.lines());
    assert!(tap.heard.lock().unwrap().len() > 1_000, "it went that way");
    let raw: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&token[2 * at..2 * at + 2], 16).unwrap()).collect();
    for secret in
        [token.trim().as_bytes(), &raw, b"shuffle", b"tierfeed.Manager", b"PRI * HTTP/2.0"]
    {
        assert!(!tap.has_heard(secret), "{}", String::from_utf8_lossy(secret));
    }
}

#[test]
fn a_false_manager_is_told_nothing_and_not_believed() {
    let mut cluster = Cluster::start();
    let tap = Wiretap::start(None);
    let manager = cluster.address().to_owned();
    // One that only listens: no token comes before it has proved its own.
    cluster.look_at(&tap.address);
    let mut agent = cluster.agent();
    eventually("the agent tried", || !tap.heard.lock().unwrap().is_empty());
    assert!(!tap.has_heard(b"PRI * HTTP/2.0"), "nothing goes in the clear");
    agent.kill();
    // One of another job.
    let arguments = ["manager", "job.yaml", "--listen", "127.0.0.1:0", "--run-dir", "false"];
    let mut other = Running::start(&mut cluster.fixture.tierfeed(&arguments));
    let file = cluster.fixture.path("false/manager.address");
    eventually("the other manager listens", || file.exists());
    let other_address = fs::read_to_string(file).unwrap().trim().to_owned();
    cluster.look_at(&other_address);
    let errors = said(&mut cluster.agent_command(), 2);
    assert!(errors.contains("cannot prove this token"), "{errors}");
    assert!(errors.contains(&other_address), "{errors}");
    eventually("the other manager says it", || other.errors().contains("a peer was turned away"));
    assert!(other.errors().contains("give agents and commands the token file"));
    cluster.look_at(&manager);
    joined(&cluster);
}

#[test]
fn an_agent_goes_on_without_a_manager_that_was_replaced_by_a_false_one() {
    let mut cluster = Cluster::start();
    let mut agent = joined(&cluster);
    let address = cluster.address().to_owned();
    cluster.manager.kill();
    let arguments = ["manager", "job.yaml", "--listen", &address, "--run-dir", "false"];
    let _other = Running::start(&mut cluster.fixture.tierfeed(&arguments));
    eventually("the agent says so", || {
        agent.errors().contains("the manager is lost") && agent.errors().contains("cannot prove")
    });
    end_well(cluster.trainers(0));
    let log = cluster.fixture.log();
    assert_eq!(assert_complete(&log), log.len());
    agent.signal("-TERM");
    agent.ends_with(0);
}

#[test]
fn what_is_no_manager_is_told_from_one_with_another_token() {
    let fixture = Fixture::new();
    fs::write(fixture.path("token"), "0".repeat(64)).unwrap();
    assert!(
        Command::new("chmod").arg("600").arg(fixture.path("token")).status().unwrap().success()
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            // Until the other end has read it and gives up.
            let _ = stream.read(&mut [0; 1024]).and_then(|_| stream.read(&mut [0; 1024]));
        }
    });
    let status = ["status", "--manager", &address];
    let errors = said(fixture.tierfeed(&status).args(["--token-file", "token"]), 2);
    assert!(errors.contains("is no manager of this version"), "{errors}");
    let errors = said(&mut fixture.tierfeed(&status), 2);
    assert!(errors.contains("wants a token: give its token file"), "{errors}");
}

#[test]
fn a_peer_that_speaks_no_tls_is_turned_away() {
    let mut cluster = Cluster::start();
    let mut stream = TcpStream::connect(cluster.address()).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The end of the connection may come as a reset.
    drop(stream.read_to_end(&mut answer));
    assert!(!answer.starts_with(&[0, 0]), "no frame of HTTP/2: {answer:?}");
    eventually("it is said", || cluster.manager_said().contains("does not speak TLS"));
}
