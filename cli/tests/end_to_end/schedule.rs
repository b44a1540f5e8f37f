//! The manager makes the schedule of each agent; the plan shows it before, the status while it runs, and the
//! report after.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    apart::Cluster,
    fixture::{Fixture, Running, assert_complete, assert_ended, eventually},
};

const BOTH: &str = "retention-and-look-ahead";

/// A job whose memory behind CXL gives 50 MB/s, with a cold store of so many.
fn slow_card(cold: &str) -> Fixture {
    let fixture = Fixture::new();
    replace(&fixture, "bandwidth: 9 GB/s", "bandwidth: 50 MB/s");
    replace(&fixture, "bandwidth: 60 MB/s", &format!("bandwidth: {cold}"));
    fixture
}

fn replace(fixture: &Fixture, from: &str, to: &str) {
    let text = fs::read_to_string(fixture.job()).unwrap();
    assert!(text.contains(from), "{from} in\n{text}");
    fs::write(fixture.job(), text.replace(from, to)).unwrap();
}

/// What a command prints as JSON, without a probe report.
fn json(fixture: &Fixture, arguments: &[&str]) -> Value {
    let mut command = fixture.tierfeed(arguments);
    let output = command.env("XDG_STATE_HOME", fixture.path("state")).output().unwrap();
    assert_ended(&output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each tier with its use.
fn uses(tiers: &Value) -> Vec<(&str, &str)> {
    let tiers = tiers.as_array().unwrap().iter();
    tiers.map(|tier| (tier["name"].as_str().unwrap(), tier["use"].as_str().unwrap())).collect()
}

fn ran(fixture: &Fixture) -> Value {
    let mut run = fixture.run(0);
    run.env("XDG_STATE_HOME", fixture.path("state"));
    assert_ended(&run.output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves every batch");
    fixture.report()
}

#[test]
fn plan_and_status_show_the_schedule_that_the_run_used() {
    let fixture = slow_card("30 MB/s");
    let planned = json(&fixture, &["plan", "job.yaml", "--schedule", "--node", "0", "--json"]);
    let mut command = fixture.run(150_000);
    let mut run = Running::start(command.env("XDG_STATE_HOME", fixture.path("state")));
    eventually("the training reads", || fixture.lines() > 2);
    let status = json(&fixture, &["status", "--json", "--run-dir", "run"]);
    let text = fixture.tierfeed(&["status", "--run-dir", "run"]).output().unwrap();
    run.ends_with(0);
    let node = &status["joined"][0];
    assert_eq!(planned["schedule"], node["schedule"], "{planned:#}");
    let tiers = [("main-memory", BOTH), ("scratch", BOTH), ("cxl-memory", BOTH)];
    assert_eq!(uses(&node["tiers"]), tiers);
    let report = fixture.report();
    assert_eq!(uses(&report["tiers"]), tiers);
    for (used, tier) in report["tiers"]
        .as_array()
        .unwrap()
        .iter()
        .zip(planned["schedule"]["tiers"].as_array().unwrap())
    {
        for key in ["name", "use", "decision", "figures_from", "cache_bytes", "budget_bytes"] {
            assert_eq!(used[key], tier[key], "{key}");
        }
    }
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["schedule generation 0", "second: no figures, but any memory is faster"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn a_tier_that_is_slower_than_the_cold_store_is_left_out_and_the_report_says_so() {
    let report = ran(&slow_card("200 MB/s"));
    let expected = [("main-memory", BOTH), ("scratch", BOTH), ("cxl-memory", "left-out")];
    assert_eq!(uses(&report["tiers"]), expected);
    let left_out = &report["tiers"][2];
    let why = "left out: 50 MB/s costs more than the cold store with 200 MB/s";
    assert_eq!(left_out["decision"], why);
    assert_eq!((&left_out["written_bytes"], &left_out["cache_bytes"]), (&0.into(), &0.into()));
    assert_eq!(report["tier_read_bytes"]["cxl-memory"], 0);
}

#[test]
fn a_directory_on_the_disk_of_the_dataset_is_left_out_and_the_report_says_so() {
    let fixture = Fixture::new();
    let emulated = "\x20 emulate: { latency: 1 ms, bandwidth: 60 MB/s }\n";
    let text = fs::read_to_string(fixture.job()).unwrap();
    let folder = fixture.path("tier");
    let storage = format!("  storage: {{ path: {}, size: 4 MiB }}\n", folder.display());
    fs::create_dir(&folder).unwrap();
    fs::write(fixture.job(), text.replace(&emulated[..], "") + &storage).unwrap();
    let report = ran(&fixture);
    let storage = report["tiers"].as_array().unwrap().last().unwrap();
    assert_eq!((&storage["name"], &storage["use"]), (&"storage".into(), &"left-out".into()));
    let why = storage["decision"].as_str().unwrap();
    assert!(why.contains("lies on the disk that holds the dataset"), "{why}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing was written there");
}

/// The directory of the storage tier is the one that each agent works in: a RAM disk, which is no disk of the
/// dataset, and the disk of the dataset.
#[test]
fn agents_with_different_tiers_get_different_schedules() {
    let fixture = Fixture::new();
    replace(&fixture, "nodes: 1, ranks_per_node: 2", "nodes: 2, ranks_per_node: 1");
    replace(&fixture, "  emulate: { latency: 1 ms, bandwidth: 60 MB/s }\n", "");
    let storage = "  storage: { path: /proc/self/cwd/storage, size: 1 MiB }\n";
    let text = fs::read_to_string(fixture.job()).unwrap() + storage;
    fs::write(fixture.job(), text).unwrap();
    let cluster = Cluster::of(fixture, Vec::new());
    let fixture = &cluster.fixture;
    let start = |number: &str, folder: &Path| {
        let mut agent = fixture.tierfeed(&["agent", "--manager", cluster.address()]);
        agent.arg("--token-file").arg(fixture.path("manager/token"));
        agent.args(["--node", number, "--run-dir"]).arg(fixture.path(&format!("run{number}")));
        Running::start(agent.env("XDG_STATE_HOME", fixture.path("state")).current_dir(folder))
    };
    let mut agents =
        [start("0", fixture.scratch()), start("1", fixture.path("data").parent().unwrap())];
    eventually("both agents join", || {
        cluster.status()["joined"].as_array().unwrap().len() == agents.len()
    });
    let status = cluster.status();
    let of = |node: usize| &status["joined"][node]["schedule"];
    let role = |node: usize| uses(&of(node)["tiers"]).pop().unwrap();
    assert_eq!(role(0), ("storage", "retention"), "{status:#}");
    assert_eq!(role(1), ("storage", "left-out"), "{status:#}");
    assert_eq!(of(0)["staged_batches"], of(1)["staged_batches"], "the job is the same");
    let mut drain = fixture.tierfeed(&["drain", "--run-dir", "manager"]);
    assert_ended(&drain.output().unwrap(), 0);
    agents.iter_mut().for_each(|agent| agent.ends_with(0));
    for (number, expected) in [(0, "retention"), (1, "left-out")] {
        let report = fs::read(fixture.path(&format!("run{number}/report.json"))).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(uses(&report["tiers"]).pop().unwrap(), ("storage", expected));
    }
}
