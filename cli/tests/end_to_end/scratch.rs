//! What a training gets beside its batches: a directory of its own, and more memory.

use std::{fs, path::PathBuf, process::Output};

use crate::fixture::{Fixture, assert_ended};

/// A job with 64 KiB of scratch, and a training that writes there.
fn run(fixture: &Fixture, keep: bool, script: &str) -> Output {
    fixture.write_job(&format!("job_scratch: {{ size: 64 KiB, keep: {keep} }}\n"));
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), text.replace("size: 256 KiB }", "size: 512 KiB }")).unwrap();
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--launch", "once"]);
    run.args(["--", "sh", "-c", script]).output().unwrap()
}

#[test]
fn a_training_has_a_directory_for_its_own_files_while_it_runs() {
    let fixture = Fixture::new();
    let script =
        "echo half > \"$TIERFEED_SCRATCH/checkpoint\" && echo \"$TIERFEED_SCRATCH\" > place";
    assert_ended(&run(&fixture, false, script), 0);
    let place = PathBuf::from(fs::read_to_string(fixture.path("place")).unwrap().trim());
    assert!(place.is_absolute() && !place.exists(), "{}", place.display());
    assert_eq!(fixture.scratch_files(), 0, "neither a directory nor a lock is left");
    let told = &fixture.report()["job_scratch"];
    assert_eq!(told["path"], place.to_str().unwrap());
    assert!(told["peak_bytes"].as_u64().unwrap() > 0, "{told:#}");
    assert_eq!((&told["is_exceeded"], &told["is_kept"]), (&false.into(), &false.into()));
}

#[test]
fn what_is_to_be_kept_is_there_for_the_next_run() {
    let fixture = Fixture::new();
    let script = "cat \"$TIERFEED_SCRATCH/checkpoint\" >> seen; \
                  echo step >> \"$TIERFEED_SCRATCH/checkpoint\"";
    for _ in 0..2 {
        assert_ended(&run(&fixture, true, script), 0);
    }
    assert_eq!(fs::read_to_string(fixture.path("seen")).unwrap(), "step\n");
}

#[test]
fn more_scratch_than_the_tier_has_is_refused_before_anything_runs() {
    let fixture = Fixture::new();
    fixture.write_job("job_scratch: { size: 1 MiB }\n");
    let output = fixture.run(0).output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("job_scratch.size: 1 MiB of tiers.scratch"), "{errors}");
}

#[test]
fn memory_is_not_expanded_where_there_is_none() {
    let nodes = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if nodes.trim() != "0" {
        eprintln!("skipped: this host has several NUMA nodes");
        return;
    }
    let fixture = Fixture::new();
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--expand-memory", "--", "touch", "ran"]);
    let output = run.output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no memory behind CXL"), "{errors}");
    assert!(!fixture.path("ran").exists());
}
