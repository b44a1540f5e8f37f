//! Tiers that a job does not describe: those of a host without memory behind CXL, and the agent's own RAM disk.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tierfeed_test_needs::{Need, skip};

use crate::fixture::{Fixture, Running, assert_complete, assert_ended, eventually};

fn write_job(fixture: &Fixture, tiers: &str) {
    fixture.write_job("");
    let text = fs::read_to_string(fixture.job()).unwrap();
    let (before, _) = text.split_once("tiers:").unwrap();
    fs::write(fixture.job(), format!("{before}{tiers}")).unwrap();
}

fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let directory = directory.canonicalize().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours = fields.filter(|it| it[0] == "tierfeed-scratch").map(|it| PathBuf::from(it[1]));
    ours.filter(|path| path.starts_with(&directory)).collect()
}

fn names(report: &serde_json::Value) -> Vec<&str> {
    report["tiers"].as_array().unwrap().iter().map(|tier| tier["name"].as_str().unwrap()).collect()
}

const SMALL: &str = "tiers:\n  main-memory: { size: 3 MiB }\n  scratch: { size: 768 KiB }\n";

#[test]
fn a_job_without_tiers_gets_the_memory_that_there_is() {
    let nodes = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if nodes.trim() != "0" {
        skip(Need::OneNode, nodes.trim());
        return;
    }
    let fixture = Fixture::new();
    write_job(&fixture, "");
    assert_ended(&fixture.run(0).output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len());
    let report = fixture.report();
    assert_eq!(names(&report), ["main-memory"]);
    assert_eq!(report["tiers"][0]["adapts"], true, "a share of what is free");
    assert!(report["tier_hits"]["main-memory"].as_u64().unwrap() > 0);
}

#[test]
fn the_ram_disk_of_an_agent_is_there_while_it_runs() {
    let fixture = Fixture::new();
    write_job(&fixture, &format!("{SMALL}job_scratch: {{ size: 64 KiB }}\n"));
    let mut run = Running::start(&mut fixture.run(100_000));
    eventually("the training reads", || fixture.lines() > 2);
    let mounted = mounts_below(&fixture.run_dir());
    let trainer_file = fs::read_to_string(fixture.run_dir().join("trainer.json")).unwrap();
    run.ends_with(0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len());
    let report = fixture.report();
    assert_eq!(names(&report), ["main-memory", "scratch"]);
    assert!(report["tiers"][1]["written_bytes"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(report["tier_fault_count"], 0);
    let scratch = PathBuf::from(report["job_scratch"]["path"].as_str().unwrap());
    assert!(trainer_file.contains(scratch.to_str().unwrap()), "{trainer_file}");
    assert!(!scratch.parent().unwrap().exists(), "{}", scratch.display());
    assert_eq!(mounts_below(&fixture.run_dir()), Vec::<PathBuf>::new());
    if mounted.is_empty() {
        skip(Need::Mounts, "the scratch tier used a RAM disk that was there");
        return;
    }
    assert_eq!(scratch.parent(), Some(mounted[0].as_path()));
}

#[test]
fn the_ram_disk_of_a_killed_agent_is_removed_by_the_next_run() {
    let fixture = Fixture::new();
    write_job(&fixture, SMALL);
    let mut run = Running::start(&mut fixture.run(100_000));
    eventually("the training reads", || fixture.lines() > 2);
    let mounted = mounts_below(&fixture.run_dir());
    run.kill_with_agent();
    assert_eq!(mounts_below(&fixture.run_dir()), mounted, "a kill leaves it behind");
    write_job(&fixture, "tiers: { main-memory: { size: 3 MiB } }\n");
    let mut next = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "next", "--", "true"]);
    assert_ended(&next.output().unwrap(), 0);
    assert_eq!(mounts_below(&fixture.run_dir()), Vec::<PathBuf>::new());
    assert!(!fixture.run_dir().join("scratch").exists());
    if mounted.is_empty() {
        skip(Need::Mounts, "the scratch tier used a RAM disk that was there");
    }
}

#[test]
fn a_ram_disk_on_a_numa_node_that_is_not_there_is_refused() {
    let fixture = Fixture::new();
    write_job(&fixture, "tiers: { scratch: { numa_node: 1000 } }\n");
    let output = fixture.run(0).output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("tiers.scratch.numa_node: 1000: this host has no such"), "{errors}");
}
