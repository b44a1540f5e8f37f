//! What a training gets beside its batches: a directory of its own, and more memory.

use std::{
    fs::{self, File},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Output,
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tierfeed_test_needs::{Need, skip};

use crate::fixture::{Fixture, Running, assert_complete, assert_ended, eventually};

/// A file system whose server never answers, until it is dropped.
struct Silent {
    server: Option<File>,
    at: PathBuf,
}

impl Silent {
    /// `None` where this user may not mount, or the kernel has no FUSE.
    fn mount(at: &Path) -> Option<Self> {
        let server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        mount(Some("silent"), at, Some("fuse"), MsFlags::empty(), Some(options.as_str())).ok()?;
        Some(Self { server: Some(server), at: at.to_owned() })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Who waits is told now that there is no server.
        drop(self.server.take());
        umount2(&self.at, MntFlags::MNT_DETACH).unwrap();
    }
}

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
fn a_scratch_that_does_not_answer_delays_no_batch() {
    let fixture = Fixture::new();
    fixture.write_job("job_scratch: { size: 64 KiB, keep: true }\n");
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), text.replace("size: 256 KiB }", "size: 512 KiB }")).unwrap();
    let mut run = Running::start(&mut fixture.run(150_000));
    eventually("the training reads", || fixture.lines() > 2);
    let scratch = fixture.scratch().join("tierfeed-job-small-0");
    let Some(_silent) = Silent::mount(&scratch) else {
        skip(Need::Fuse, "this user may not mount a FUSE file system");
        return;
    };
    let before = fixture.lines();
    run.ends_with(0);
    assert!(fixture.lines() > before + 8, "a part of the training came after it");
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "every batch came from the agent");
    let pauses = &fixture.report()["loop_pauses"];
    assert!(pauses["longest_s"].as_f64().unwrap() < 1.0, "{pauses:#}");
    assert!(run.errors().contains("does not answer"), "{}", run.errors());
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
        skip(Need::OneNode, nodes.trim());
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
