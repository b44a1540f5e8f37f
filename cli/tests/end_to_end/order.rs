//! The order of the tiers follows their speeds, in a run, in its report and in its plan.

use std::fs;

use serde_json::Value;

use crate::fixture::{Fixture, Running, assert_complete, assert_ended, eventually};

/// A job whose memory behind CXL is slower than its RAM disk, for which `scratch` states more.
fn slow_card(scratch: &str) -> Fixture {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let text = text
        .replace("{ latency: 1 us, bandwidth: 9 GB/s }", "{ latency: 1 us, bandwidth: 50 MB/s }")
        .replace("size: 256 KiB }", &format!("size: 256 KiB{scratch} }}"));
    fs::write(fixture.job(), text).unwrap();
    fixture
}

fn names(tiers: &Value) -> Vec<&str> {
    tiers.as_array().unwrap().iter().map(|tier| tier["name"].as_str().unwrap()).collect()
}

/// A run that knows no probe report.
fn ran(fixture: &Fixture) -> Value {
    let mut run = fixture.run(0);
    run.env("XDG_STATE_HOME", fixture.path("state"));
    assert_ended(&run.output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves every batch");
    fixture.report()["tiers"].clone()
}

const EXPECTED: [&str; 3] = ["main-memory", "scratch", "cxl-memory"];

#[test]
fn a_ram_disk_stands_before_slower_memory_behind_cxl() {
    let fixture = slow_card(", emulate: { latency: 1 us, bandwidth: 500 MB/s }");
    let tiers = ran(&fixture);
    assert_eq!(names(&tiers), EXPECTED);
    assert_eq!(tiers[0]["decision"], "first: batches are staged in main memory");
    assert_eq!(tiers[1]["decision"], "second: 500 MB/s, faster than cxl-memory");
    assert_eq!(tiers[2]["decision"], "third: 50 MB/s, slower than scratch");
    assert_eq!(tiers[2]["latency_ns"], 1_000);
    assert_eq!(tiers[2]["bandwidth_bytes_per_s"], 50_000_000);
    assert_eq!(tiers[2]["figures_from"], "emulated");
    for (at, bytes) in [(0, 3 << 20), (1, 256 << 10), (2, 1280 << 10)] {
        assert_eq!(tiers[at]["budget_bytes"], bytes, "{tiers:#}");
    }
    assert!(tiers[1]["written_bytes"].as_u64().unwrap() > 0, "it was used: {tiers:#}");
}

#[test]
fn the_plan_and_the_status_show_the_order_of_the_run() {
    let fixture = slow_card("");
    let json = |arguments: &[&str]| -> Value {
        let mut command = fixture.tierfeed(arguments);
        let output = command.env("XDG_STATE_HOME", fixture.path("state")).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    let plan = json(&["plan", "job.yaml", "--json"]);
    assert_eq!(names(&plan["tiers"]), EXPECTED);
    let mut command = fixture.run(150_000);
    let mut run = Running::start(command.env("XDG_STATE_HOME", fixture.path("state")));
    eventually("the training reads", || fixture.lines() > 2);
    let status = json(&["status", "--json", "--run-dir", "run"]);
    let tiers = &status["joined"][0]["tiers"];
    assert_eq!(names(tiers), EXPECTED, "{status:#}");
    // Than the RAM disk, or than any memory where that was not measured in time.
    let decision = tiers[2]["decision"].as_str().unwrap();
    assert!(decision.starts_with("third: 50 MB/s, slower than "), "{decision}");
    assert_eq!(tiers[2]["bandwidth_bytes_per_s"], 50_000_000);
    run.ends_with(0);
}
