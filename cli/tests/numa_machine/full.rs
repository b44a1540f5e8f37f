//! Nodes and control groups that are full: what does not fit is refused, running jobs continue, and the
//! kernel kills no process.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::{
    fixture::{Fixture, assert_ended, trainer},
    machine::{Group, Topology, kills_for_memory, shrink},
    training::{assert_right, fixture_with, run},
};

const MIB: u64 = 1 << 20;

fn hog(fixture: &Fixture, arguments: &[&str]) -> Command {
    let mut command = fixture.tierfeed(&["hog", "--json"]);
    command.args(arguments);
    command
}

/// What a hog held while a command did nothing beside it.
fn held(fixture: &Fixture, arguments: &[&str]) -> Value {
    let output = hog(fixture, arguments).args(["--", "true"]).output().unwrap();
    assert_ended(&output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_hog_fills_a_node_from_that_node_alone() {
    let kills = kills_for_memory();
    let topology = Topology::here();
    let _taken_out = shrink(topology);
    let far = topology.far();
    let report = held(&Fixture::new(), &["--numa-node", &far.to_string(), "--leave", "48 MiB"]);
    assert_eq!(report["placement_verified"], true, "{report:#}");
    assert!(report["held_bytes_max"].as_u64().unwrap() > 32 * MIB, "{report:#}");
    let left = report["available_bytes_final"].as_u64().unwrap();
    assert!((40 * MIB..72 * MIB).contains(&left), "{report:#}");
    let nodes = report["nodes"].as_array().unwrap();
    assert!(nodes.len() == 1 && nodes[0]["numa_node"] == far, "{report:#}");
    assert_eq!(kills_for_memory(), kills);
}

#[test]
fn a_hog_in_a_limited_control_group_stops_at_the_limit() {
    let kills = kills_for_memory();
    let _group = Group::enter("160M");
    let report = held(&Fixture::new(), &["--leave", "48 MiB"]);
    let most = report["held_bytes_max"].as_u64().unwrap();
    assert!((32 * MIB..112 * MIB).contains(&most), "{report:#}");
    assert_eq!(kills_for_memory(), kills);
}

/// Runs `jobs` one after the other while a hog leaves 40 MiB of the far node, and returns their codes.
fn run_beside_a_hog(fixture: &Fixture, jobs: &[&Path]) -> Vec<i32> {
    let far = Topology::here().far().to_string();
    let script = "trainer=$1; shift\n\
                  for job; do \"$0\" run \"$job\" --run-dir run -- \"$trainer\" log >&2; echo $? >>codes; done";
    let mut command = hog(fixture, &["--numa-node", &far, "--leave", "40 MiB", "--"]);
    command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_tierfeed")]).arg(trainer()).args(jobs);
    let output = command.output().unwrap();
    assert_ended(&output, 0);
    let codes = fs::read_to_string(fixture.path("codes")).unwrap();
    codes.lines().map(|code| code.parse().unwrap()).collect()
}

#[test]
fn beside_a_hog_a_job_that_fits_is_right_and_one_that_does_not_is_refused() {
    let kills = kills_for_memory();
    let topology = Topology::here();
    let _taken_out = shrink(topology);
    let far = topology.far();
    let fixture = fixture_with(&format!("{{ numa_nodes: [{far}], reserve: 20 % }}"));
    let text = fs::read_to_string(fixture.job()).unwrap();
    let large = fixture.path("large.yaml");
    fs::write(&large, text.replace("reserve: 20 %", "size: 64 MiB")).unwrap();
    let codes = run_beside_a_hog(&fixture, &[&large, &fixture.job()]);
    assert!(codes[0] != 0 && codes[1] == 0, "{codes:?}");
    assert_right(&fixture, &fixture.log());
    assert_eq!(kills_for_memory(), kills);
}

#[test]
fn a_job_that_asks_for_more_than_a_node_or_a_group_has_is_refused() {
    let kills = kills_for_memory();
    let far = Topology::here().far();
    let fixture = fixture_with(&format!("{{ numa_nodes: [{far}], size: 600 MiB }}"));
    assert_refused(&fixture, "cxl-memory");
    let _group = Group::enter("96M");
    let fixture = fixture_with(&format!("{{ numa_nodes: [{far}], size: 100 MiB }}"));
    assert_refused(&fixture, "cxl-memory");
    assert_eq!(kills_for_memory(), kills);
}

fn assert_refused(fixture: &Fixture, reason: &str) {
    let output = run(fixture);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains(reason), "{errors}");
}
