//! A panic on any thread ends its process, and trainers go on with the same samples in the same order; the
//! stand-in compares their bytes.
//!
//! Which thread panics, and when, is said to a build with debug assertions (`numa_memory::failpoint`).

#![cfg(debug_assertions)]

use std::{fs, io::Write, os::unix::net::UnixStream, time::Duration};

use crate::{
    apart::{Cluster, end_well},
    fixture::{Fixture, Running, SAMPLES, assert_complete, assert_ended, eventually},
};

/// From the panic to the end of the process.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The exit code of a Rust process that panicked.
const PANICKED: i32 = 101;

fn dies(process: &mut Running, place: &str) {
    eventually("the drill comes", || process.errors().contains("was told to panic"));
    process.ends_within(ENDS_WITHIN);
    let errors = process.errors();
    assert!(errors.contains(&format!("drill: {place} was told to panic")), "{errors}");
    assert_eq!(process.code(), Some(PANICKED), "{errors}");
}

/// An agent in which `place` panics, and trainers that do not notice.
fn an_agent_dies(fixture: Fixture, place: &str, passes: u64) {
    eprintln!("{place}");
    let cluster = Cluster::of(fixture, Vec::new());
    let mut agent =
        Running::start(cluster.agent_command().env("TIERFEED_DRILL", format!("{place}:{passes}")));
    let trainers = cluster.trainers(40_000);
    dies(&mut agent, place);
    end_well(trainers);
    let log = cluster.fixture.log();
    let from_agent = assert_complete(&log);
    assert!(from_agent < log.len(), "the agent lived to the end");
}

#[test]
fn a_panic_on_any_thread_ends_an_agent_and_costs_no_sample() {
    for (place, passes) in [
        ("handoff", 12),
        ("loop", 150),
        ("link", 1),
        ("read", 30),
        ("main-memory", 10),
        ("cxl-memory", 3),
    ] {
        an_agent_dies(Fixture::new(), place, passes);
    }
}

#[test]
fn a_panic_of_one_ring_ends_an_agent_and_costs_no_sample() {
    an_agent_dies(Fixture::of_records(), "ring", 2);
}

#[test]
fn a_panic_while_metrics_are_asked_for_ends_an_agent_and_costs_no_sample() {
    let cluster = Cluster::start();
    let mut agent = Running::start(cluster.agent_command().env("TIERFEED_DRILL", "metrics"));
    let trainers = cluster.trainers(20_000);
    eventually("the training is on its way", || cluster.fixture.lines() > 3);
    // It may be without the agent, which is still starting.
    let socket = cluster.fixture.run_dir().join("observe.sock");
    // Its first connection is the one that counts: it may end the agent before a second one is made.
    let mut connection = None;
    eventually("the agent answers", || {
        connection = UnixStream::connect(&socket).ok();
        connection.is_some()
    });
    _ = connection.unwrap().write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
    dies(&mut agent, "metrics");
    end_well(trainers);
    assert_complete(&cluster.fixture.log());
}

#[test]
fn a_panic_ends_a_manager_and_agents_go_on() {
    for place in ["manager", "accept"] {
        let drill = ("TIERFEED_DRILL", format!("{place}:4"));
        let cluster = Cluster::start();
        let mut other = cluster.fixture.tierfeed(&["manager", "job.yaml", "--run-dir", "other"]);
        other.args(["--listen", "127.0.0.1:0"]).env(drill.0, drill.1);
        let mut other = Running::start(&mut other);
        let file = cluster.fixture.path("other/manager.address");
        eventually("it listens", || file.exists());
        for _ in 0..6 {
            let status = ["status", "--run-dir", "other"];
            drop(cluster.fixture.tierfeed(&status).output().unwrap());
        }
        dies(&mut other, place);
    }
}

/// A batch system ends a job when the process that it started ends.
#[test]
fn a_panic_of_the_agent_in_a_run_leaves_a_process_that_waits_for_the_trainers() {
    // Passes count from when the trainers run. The manager's loop passes twice a second at least.
    for (place, passes) in [("handoff", 9), ("loop", 40), ("manager", 0)] {
        let fixture = Fixture::new();
        let mut run = fixture.run(60_000);
        let output = run.env("TIERFEED_DRILL", format!("{place}:{passes}")).output().unwrap();
        assert_ended(&output, 0);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(&format!("drill: {place} was told to panic")), "{errors}");
        assert!(errors.contains("its trainers read on without it"), "{errors}");
        let log = fixture.log();
        assert!(assert_complete(&log) < log.len(), "the agent lived to the end");
    }
}

impl Fixture {
    /// The same order of samples, which share a file and are not slowed down: what rings read.
    fn of_records() -> Self {
        const RECORD: u32 = 65_536;
        let fixture = Self::new();
        let file = fixture.path("records.bin");
        let bytes: Vec<u8> = (0..SAMPLES * RECORD)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
            .collect();
        fs::write(&file, bytes).unwrap();
        let text = fs::read_to_string(fixture.job()).unwrap();
        let of_files = text.find("  source:").unwrap()..text.find("order:").unwrap();
        let records = format!(
            "  source: file://{}\n  format: raw\n  record_bytes: {RECORD}\n",
            file.display()
        );
        let text = text.replace(&text[of_files], &records);
        fs::write(fixture.job(), text.replace("size: 3 MiB", "size: 4 MiB")).unwrap();
        fixture
    }
}
