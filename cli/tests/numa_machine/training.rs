//! A training whose CXL tier is the far node: order, bytes, report, placement.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output},
};

use serde_json::Value;

use crate::{
    fixture::{EPOCHS, Fixture, Log, RANKS, assert_complete, assert_ended, digest, trainer},
    machine::{Setting, Topology, pages_by_node},
};

/// Pages of a chunk of the job.
pub(crate) const CHUNK_PAGES: u64 = 256;

/// The job of the fixture, whose CXL tier is `cxl` and which has no other tier beside main memory.
pub(crate) fn fixture_with(cxl: &str) -> Fixture {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let kept = text.lines().filter(|line| !line.contains("scratch:"));
    let line = |line: &str| match line.split_once("cxl-memory:") {
        Some((indent, _)) => format!("{indent}cxl-memory: {cxl}\n"),
        None => format!("{line}\n").replace("256 KiB", "1 MiB").replace("3 MiB", "4 MiB"),
    };
    fs::write(fixture.job(), kept.map(line).collect::<String>()).unwrap();
    fixture
}

/// The command that runs the job. When its training ended, each rank keeps what the kernel says of the
/// agent's memory: by then every sample that shall stay was copied.
pub(crate) fn command(fixture: &Fixture) -> Command {
    let script = "\"$0\" \"$@\" && cat $(\
                  grep -ls '[-]-supervised' /proc/[0-9]*/cmdline | sed s/cmdline/numa_maps/) >maps-$RANK";
    let mut command = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    command.args(["sh", "-c", script]).arg(trainer()).arg(fixture.path("log"));
    command
}

pub(crate) fn run(fixture: &Fixture) -> Output {
    command(fixture).output().unwrap()
}

pub(crate) fn assert_right(fixture: &Fixture, log: &Log) {
    let from_agent = assert_complete(log);
    assert_eq!(from_agent, log.len(), "the stand-in compares what comes from the agent");
    let report = fixture.report();
    assert_eq!(report["order_digest"], digest(log));
    assert_eq!(report["samples"], 100 * EPOCHS);
    assert_eq!(report["fault_count"], 0);
}

pub(crate) fn tier(report: &Value, name: &str) -> Value {
    let tiers = report["tiers"].as_array().unwrap();
    tiers.iter().find(|tier| tier["name"] == name).unwrap().clone()
}

#[test]
fn a_training_whose_cxl_tier_is_the_far_node_gets_every_byte_from_the_right_place() {
    let topology = Topology::here();
    let far = topology.far();
    let demotion = if topology == Topology::Hmat { "1" } else { "0" };
    let _demotion = Setting::change(Setting::DEMOTION, demotion);
    let settings = || {
        [Setting::DEMOTION, "/proc/sys/kernel/numa_balancing"]
            .map(|path| fs::read_to_string(path).unwrap())
    };
    let before = settings();
    let fixture = fixture_with(&format!("{{ numa_nodes: [{far}], size: 2 MiB }}"));
    assert_ended(&run(&fixture), 0);
    assert_right(&fixture, &fixture.log());

    let report = fixture.report();
    assert!(report["tier_hits"]["cxl-memory"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["tier_read_bytes"]["cxl-memory"].as_u64().unwrap() > 0);
    assert_eq!(report["tier_fault_count"], 0);
    let cxl = tier(&report, "cxl-memory");
    assert_eq!((&cxl["emulated"], &cxl["cache_bytes"]), (&false.into(), &(2 << 20).into()));
    for rank in 0..RANKS {
        let maps = fs::read_to_string(fixture.path(&format!("maps-{rank}"))).unwrap();
        let chunks = pages_by_node(&maps, "tierfeed-cxl-memory-");
        assert_eq!(chunks, vec![BTreeMap::from([(far, CHUNK_PAGES)]); 2]);
        let others = maps.replace("memfd:tierfeed-cxl-memory-", "");
        let others = pages_by_node(&others, "memfd:tierfeed-");
        assert!(!others.is_empty() && others.iter().all(|it| !it.contains_key(&far)), "{others:?}");
    }
    assert_eq!(settings(), before, "the kernel's own tiering is not ours to change");
}

#[test]
fn without_a_node_in_the_job_the_far_node_is_the_cxl_tier() {
    let far = Topology::here().far();
    let fixture = fixture_with("{ size: 1 MiB }");
    assert_ended(&run(&fixture), 0);
    assert_right(&fixture, &fixture.log());
    assert_eq!(tier(&fixture.report(), "cxl-memory")["emulated"], false);
    let maps = fs::read_to_string(fixture.path("maps-0")).unwrap();
    let chunks = pages_by_node(&maps, "tierfeed-cxl-memory-");
    assert_eq!(chunks, [BTreeMap::from([(far, CHUNK_PAGES)])]);
}

#[test]
fn a_job_that_names_an_absent_node_learns_which_there_are() {
    let fixture = fixture_with("{ numa_nodes: [7], size: 1 MiB }");
    let output = run(&fixture);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{errors}");
    let [_, _, far] = Topology::here().nodes();
    assert!(errors.contains(&format!("it has 0, 1, {far};")), "{errors}");
}
