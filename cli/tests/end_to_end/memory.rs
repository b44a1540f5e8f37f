//! The memory that the agent holds and lends.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tierfeed_core::units::Bytes;
use tierfeed_handoff::{ControlError, MemoryClient};

use crate::fixture::{Fixture, Running, eventually};

const SLACK: u64 = 64 << 20;
const WAIT: Duration = Duration::from_secs(20);

/// Anonymous memory and files in memory, memfds, and files on RAM disks, all counted once.
fn held_by(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let is_memory = target.starts_with("/dev/shm") || is_memfd(&target);
        if is_memory && let Ok(file) = fs::metadata(entry.path()) {
            files.insert((file.dev(), file.ino()), file.blocks() * 512);
        }
    }
    field("RssAnon:") + field("RssFile:") + files.values().sum::<u64>()
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    /// Staging memory, rings and orders of trainers.
    pub(crate) of_trainers: usize,
    pub(crate) resident: u64,
}

impl Held {
    pub(crate) fn by(pid: u32) -> Self {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let targets: Vec<_> =
            entries.flatten().map(|it| fs::read_link(it.path()).unwrap_or_default()).collect();
        let is_of_trainer = |target: &&PathBuf| {
            let name = target.to_string_lossy();
            let memory = ["tierfeed-staging", "tierfeed-rings", "tierfeed-order"];
            memory.iter().any(|kind| name.starts_with(&format!("/memfd:{kind}")))
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident: u64 = resident.split_whitespace().next().unwrap().parse().unwrap();
        Self {
            descriptors: targets.len(),
            of_trainers: targets.iter().filter(is_of_trainer).count(),
            resident: resident << 10,
        }
    }
}

fn is_memfd(target: &Path) -> bool {
    target.to_string_lossy().starts_with("/memfd:")
}

#[test]
fn the_agent_stays_within_its_budgets() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    // Enough epochs that a leak of what was read would exceed the slack several times.
    let text = text.replace("60 MB/s", "200 MB/s").replace("epochs: 3", "epochs: 100");
    fs::write(fixture.job(), text).unwrap();
    let budgets = (3 << 20) + (1280 << 10) + (256 << 10);
    let mut run = Running::start(&mut fixture.run(0));
    let mut peak = 0;
    eventually("the run ends", || {
        peak = peak.max(run.agent().map_or(0, |agent| held_by(agent.as_raw().unsigned_abs())));
        run.has_ended()
    });
    run.ends_with(0);
    assert!(peak > 1 << 20, "the watcher sees the process");
    assert!(peak <= budgets + SLACK, "{} held, {} allowed", Bytes(peak), Bytes(budgets));
    let memory = &fixture.report()["memory"];
    assert_eq!(memory["budget_bytes"].as_u64(), Some(budgets));
    assert!(memory["peak_bytes"].as_u64().unwrap() <= budgets + SLACK);
}

/// A training that lasts until it is stopped.
fn start(fixture: &Fixture) -> (Running, PathBuf) {
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    let run = Running::start(run.args(["sleep", "600"]));
    let socket = fixture.run_dir().join("agent.sock");
    eventually("the agent listens", || fixture.run_dir().join("trainer.json").exists());
    (run, socket)
}

fn lent_chunks(fixture: &Fixture) -> u64 {
    let mut status = fixture.tierfeed(&["status", "--json", "--run-dir", "run"]);
    let output = status.output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    status["joined"][0]["lent_chunks"].as_u64().unwrap_or(u64::MAX)
}

#[test]
fn workloads_borrow_cxl_memory_in_chunks_up_to_the_budget() {
    let fixture = Fixture::new();
    let (_run, socket) = start(&fixture);
    let client = MemoryClient::connect(&socket, WAIT).unwrap();
    let grant = client.allocate(Bytes(600 << 10), WAIT).unwrap();
    let lens: Vec<u64> = grant.chunks.iter().map(|chunk| chunk.len().0).collect();
    assert_eq!(lens, [256 << 10; 3]);
    grant.chunks[2].write(Bytes(0), b"mine").unwrap();
    eventually("the manager counts along", || lent_chunks(&fixture) == 3);

    let denied = client.allocate(Bytes(600 << 10), WAIT).unwrap_err();
    let ControlError::Denied { reason } = denied else { panic!("{denied:?}") };
    assert!(reason.contains("768 KiB of cxl-memory asked for, 512 KiB are free"), "{reason}");

    client.free(grant).unwrap();
    let whole = client.allocate(Bytes(1280 << 10), WAIT).unwrap();
    assert_eq!(whole.chunks.len(), 5);
    drop((whole, client));
    eventually("what a dead workload held is back", || lent_chunks(&fixture) == 0);
}

#[test]
fn the_cache_makes_room_for_workloads() {
    let fixture = Fixture::new();
    let mut run = Running::start(&mut fixture.run(15_000));
    let socket = fixture.run_dir().join("agent.sock");
    // Two of three epochs: the tiers are full.
    eventually("the caches are full", || fixture.lines() >= 20);
    let client = MemoryClient::connect(&socket, WAIT).unwrap();
    let grant = client.allocate(Bytes(1280 << 10), WAIT).unwrap();
    assert_eq!(grant.chunks.len(), 5);
    run.ends_with(0);
    crate::fixture::assert_complete(&fixture.log());
}
