//! Trainers that read samples where the node keeps them: with seven steps an epoch, in the last one.

use std::fs;

use crate::fixture::{Fixture, assert_complete, digest};

/// The job of the fixture, with CXL memory at its own speed, and these keys beside its size.
fn write_job(fixture: &Fixture, direct: &str, more: &str) {
    fixture.write_job(more);
    let text = fs::read_to_string(fixture.job()).unwrap();
    let slowed = ", emulate: { latency: 1 us, bandwidth: 9 GB/s }";
    assert!(text.contains(slowed));
    let played = format!(", numa_nodes: [0]{direct}");
    fs::write(fixture.job(), text.replace(slowed, &played)).unwrap();
}

fn run(fixture: &Fixture) -> serde_json::Value {
    let done = fixture.run(2_000).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // The stand-in compares every byte with the files.
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "every batch came from the agent");
    let report = fixture.report();
    assert_eq!(report["order_digest"], digest(&log));
    assert_eq!(report["fault_count"], 0);
    report
}

fn cxl(report: &serde_json::Value) -> &serde_json::Value {
    let tiers = report["tiers"].as_array().unwrap();
    tiers.iter().find(|tier| tier["name"] == "cxl-memory").unwrap()
}

fn number(report: &serde_json::Value, key: &str) -> u64 {
    report[key].as_u64().unwrap()
}

#[test]
fn samples_are_read_in_place_and_every_byte_is_that_of_the_cold_store() {
    let mut digests = Vec::new();
    for direct in ["always", "never"] {
        let fixture = Fixture::new();
        write_job(&fixture, &format!(", direct: {direct}"), "");
        let report = run(&fixture);
        let hits = report["tier_hits"]["cxl-memory"].as_u64().unwrap();
        let (samples, bytes) = (number(&report, "direct_samples"), number(&report, "direct_bytes"));
        assert!(hits > 0, "{report:#}");
        if direct == "always" {
            assert!(samples > 0 && samples <= hits, "{samples} of {hits}");
            assert!(bytes > 5_000 * samples && bytes < 60_000 * samples);
            assert_eq!(cxl(&report)["direct"]["used"], true);
        } else {
            assert_eq!((samples, bytes), (0, 0));
            assert_eq!(cxl(&report)["direct"]["used"], false);
        }
        let why = cxl(&report)["direct"]["why"].as_str().unwrap();
        assert!(why.contains(&format!("the job says `direct: {direct}`")), "{why}");
        digests.push(report["order_digest"].clone());
    }
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn the_simulator_predicts_what_is_read_from_where_with_samples_in_place_too() {
    let fixture = Fixture::new();
    // What is read ahead depends on how fast it comes.
    write_job(&fixture, ", direct: always", "prefetch: { look_ahead: off }\n");
    let mut plan = fixture.tierfeed(&["plan", "--simulate", "--json"]);
    let output = plan.arg(fixture.job()).output().unwrap();
    let predicted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let done = fixture.run(2_000).arg("lock-step").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report = fixture.report();
    assert!(number(&report, "direct_samples") > 0);
    let read = |of: &serde_json::Value| {
        let epochs = of["epochs"].as_array().unwrap().iter();
        let read = |it: &serde_json::Value| {
            (it["cold_read_bytes"].clone(), it["tier_read_bytes"]["cxl-memory"].clone())
        };
        epochs.map(read).collect::<Vec<_>>()
    };
    assert_eq!(read(&predicted), read(&report));
}

#[test]
fn where_nothing_was_measured_samples_are_copied_and_the_report_says_why() {
    let fixture = Fixture::new();
    write_job(&fixture, "", "");
    let mut command = fixture.run(0);
    command.env("XDG_STATE_HOME", fixture.path("empty"));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report = fixture.report();
    assert_eq!(number(&report, "direct_samples"), 0);
    let direct = &cxl(&report)["direct"];
    assert_eq!(direct["asked"], "auto");
    assert!(direct["why"].as_str().unwrap().contains("tierfeed tiers probe"), "{direct}");
    assert!(direct["copied_ns_per_mib"].is_null());
}

#[test]
fn what_can_never_be_is_refused_with_its_line() {
    for (more, part) in [("verify: always\n", "verify: shared"), ("policy: lru\n", "policy: lru")] {
        let fixture = Fixture::new();
        write_job(&fixture, ", direct: always", more);
        let done = fixture.run(0).output().unwrap();
        assert_eq!(done.status.code(), Some(2));
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains("tiers.cxl-memory.direct") && said.contains(part), "{said}");
    }
}
