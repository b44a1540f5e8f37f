//! `tierfeed run`: order, bytes, report, prediction, endings.

use std::{fs, io::Write as _, thread};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::fixture::{
    EPOCHS, Fixture, RANKS, Running, assert_complete, assert_ended, digest, eventually,
};

#[test]
fn every_rank_gets_its_samples_in_order_with_the_bytes_of_the_files() {
    let fixture = Fixture::new();
    assert_ended(&fixture.run(0).output().unwrap(), 0);
    let log = fixture.log();
    let from_agent = assert_complete(&log);
    assert_eq!(from_agent, log.len(), "the stand-in compares what comes from the agent");
    let report = fixture.report();
    assert_eq!(report["order_digest"], digest(&log));
    assert_eq!(report["steps"], log.len());
    assert_eq!(report["samples"], 100 * EPOCHS);
    assert_eq!(report["fault_count"], 0);
    let emulated: Vec<_> = report["tiers"].as_array().unwrap().iter().collect();
    assert_eq!(emulated.iter().filter(|tier| tier["emulated"] == true).count(), 1);
    assert_eq!(fixture.scratch_files(), 0);
}

/// A pipe yields its text once, and its name is gone before its reader sees the end of the text. The
/// stand-in reads a copy.
#[test]
fn the_job_file_is_read_once() {
    let fixture = Fixture::new();
    let (path, copy) = (fixture.job(), fixture.path("copy.yaml"));
    fs::rename(&path, &copy).unwrap();
    let text = fs::read(&copy).unwrap();
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let writer = thread::spawn(move || {
        let mut pipe = fs::File::options().write(true).open(&path).unwrap();
        pipe.write_all(&text).unwrap();
        fs::remove_file(path).unwrap();
    });
    let mut command = fixture.tierfeed(&["run"]);
    command.arg(fixture.job()).arg("--run-dir").arg(fixture.run_dir());
    command.args(["--", "sh", "-c", "export TIERFEED_JOB=\"$1\"; exec \"$0\" \"$2\""]);
    command.arg(crate::fixture::trainer()).arg(copy).arg(fixture.path("log"));
    assert_ended(&command.output().unwrap(), 0);
    writer.join().unwrap();
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves every batch");
}

#[test]
fn equal_jobs_have_equal_plans() {
    let fixture = Fixture::new();
    let plan = || {
        let mut plan = fixture.tierfeed(&["plan", "--simulate", "--policy", "gap,fifo", "--json"]);
        plan.arg(fixture.job()).output().unwrap().stdout
    };
    let first = plan();
    assert_eq!(first, plan());
    let document: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_ne!(document[0]["digest"], document[1]["digest"]);
}

#[test]
fn json_on_standard_output_is_one_document_and_nothing_else() {
    let fixture = Fixture::new();
    let (job, run_dir) = (fixture.job(), fixture.run_dir());
    let mut command = fixture.tierfeed(&["run", "--json"]);
    command.arg(job).arg("--run-dir").arg(run_dir);
    command.args(["--", "sh", "-c", "echo noise; exec \"$0\" \"$@\""]);
    command.arg(crate::fixture::trainer()).arg(fixture.path("log"));
    let output = command.output().unwrap();
    assert_ended(&output, 0);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report, fixture.report());
    assert!(String::from_utf8_lossy(&output.stderr).contains("noise"));
}

#[test]
fn a_command_that_fails_is_a_failure_that_names_its_code() {
    let fixture = Fixture::new();
    let (job, run_dir) = (fixture.job(), fixture.run_dir());
    let mut command = fixture.tierfeed(&["run"]);
    command.arg(job).arg("--run-dir").arg(run_dir);
    let output = command.args(["--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_ended(&output, 7);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("error: the command ended with exit status: 7"), "{errors}");
    assert_eq!(fixture.report()["steps"], 0);
}

#[test]
fn ranks_learn_who_they_are() {
    let fixture = Fixture::new();
    let (job, run_dir) = (fixture.job(), fixture.run_dir());
    let mut command = fixture.tierfeed(&["run"]);
    command.arg(job).arg("--run-dir").arg(run_dir);
    let script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE";
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    assert_ended(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 0 2 2", "1 1 2 2"]);
    assert_eq!(lines.len(), RANKS as usize);
}

#[test]
fn a_rank_that_is_alone_learns_who_it_is_only_if_it_shall() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), text.replace("ranks_per_node: 2", "ranks_per_node: 1")).unwrap();
    let said = |options: &[&str]| {
        let mut command = fixture.tierfeed(&["run"]);
        command.arg(fixture.job()).args(options).arg("--run-dir").arg(fixture.run_dir());
        let script = "echo \"$RANK $WORLD_SIZE $MASTER_ADDR\"";
        let output = command.args(["--", "sh", "-c", script]).output().unwrap();
        assert_ended(&output, 0);
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(said(&[]).trim(), "");
    assert_eq!(said(&["--launch", "per-rank"]).trim(), "0 1 127.0.0.1");
}

#[test]
fn a_run_that_is_stopped_stops_its_trainers_and_still_reports() {
    let fixture = Fixture::new();
    let mut run = Running::start(&mut fixture.run(20_000));
    eventually("some batches are there", || fixture.lines() >= 4);
    run.signal("-TERM");
    // 128 and the number of SIGTERM, which ended the trainers too.
    run.ends_with(143);
    let steps = fixture.report()["steps"].as_u64().unwrap();
    assert!((4..42).contains(&steps), "{steps}");
    assert_eq!(fixture.scratch_files(), 0);
}

#[test]
fn a_run_that_is_killed_leaves_trainers_that_end_their_training() {
    let fixture = Fixture::new();
    let mut run = Running::start(&mut fixture.run(2_000));
    eventually("some batches are there", || fixture.lines() >= 10);
    run.kill_with_agent();
    eventually("the training ends", || fixture.lines() == 42);
    assert!(assert_complete(&fixture.log()) >= 10);
    assert_eq!(fixture.scratch_files(), 0);
}
