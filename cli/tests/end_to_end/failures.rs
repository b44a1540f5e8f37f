//! What is wrong is said with file, line, key and value, and ends with the right code.

use std::{fs, process::Output};

use crate::fixture::{Fixture, assert_complete, assert_ended, expected_log, trainer};

fn refused(fixture: &Fixture, arguments: &[&str], sentence: &str) {
    let output = fixture.tierfeed(arguments).output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("error: "), "{errors}");
    assert!(errors.contains(sentence), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_wrong_key_is_named_with_file_and_line() {
    let fixture = Fixture::new();
    fixture.write_job("polcy: gap\n");
    let lines = fs::read_to_string(fixture.job()).unwrap().lines().count();
    for command in ["analyze", "plan"] {
        refused(&fixture, &[command, "job.yaml"], &format!("job.yaml:{lines}"));
        refused(&fixture, &[command, "job.yaml"], "polcy");
    }
    refused(&fixture, &["run", "job.yaml", "--", "true"], "polcy");
}

#[test]
fn a_job_that_is_not_there_is_wrong_input() {
    let fixture = Fixture::new();
    refused(&fixture, &["plan", "nowhere.yaml"], "nowhere.yaml");
}

#[test]
fn a_job_of_several_nodes_needs_to_know_which_this_is() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap().replace("nodes: 1", "nodes: 2");
    fs::write(fixture.job(), text).unwrap();
    let sentence = "nothing says which of the 2 nodes of the job this is";
    refused(&fixture, &["run", "job.yaml", "--", "true"], sentence);
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let fixture = Fixture::new();
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--", "/no/such/program"]);
    let output = run.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("cannot start /no/such/program"), "{errors}");
    assert_ended(&output, 2);
}

#[test]
fn a_dataset_that_is_not_there_is_named_with_its_key() {
    let fixture = Fixture::new();
    fs::remove_dir_all(fixture.path("data")).unwrap();
    for command in
        [&["analyze", "job.yaml"][..], &["plan", "job.yaml"], &["run", "job.yaml", "--", "true"]]
    {
        refused(&fixture, command, "job.yaml:3: dataset.source: ");
    }
}

#[test]
fn cxl_memory_that_is_not_there_and_scratch_on_a_disk_are_refused_where_they_stand() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let commands =
        [&["analyze", "job.yaml"][..], &["plan", "job.yaml"], &["run", "job.yaml", "--", "true"]];
    let refused_with = |from: &str, to: &str, sentence: &str| {
        let line = text.lines().position(|line| line.contains(from)).unwrap() + 1;
        assert!(text.contains(from), "{text}");
        fs::write(fixture.job(), text.replace(from, to)).unwrap();
        for command in commands {
            refused(&fixture, command, &format!("job.yaml:{line}: {sentence}"));
        }
    };
    let has_cxl = fs::read_to_string("/sys/devices/system/node/has_memory")
        .is_ok_and(|nodes| nodes.trim() != "0");
    if !has_cxl {
        let emulate = ", emulate: { latency: 1 us, bandwidth: 9 GB/s }";
        refused_with(emulate, "", "tiers.cxl-memory: this host has no memory behind CXL");
    }
    let scratch = format!("path: {}", fixture.scratch().display());
    let disk = format!("path: {}", fixture.path("").display());
    refused_with(&scratch, &disk, "tiers.scratch.path: ");
}

#[test]
fn a_manager_that_is_not_there_is_a_failure_not_a_mistake() {
    let fixture = Fixture::new();
    let mut status = fixture.tierfeed(&["status", "--manager", "127.0.0.1:1"]);
    assert_ended(&status.env("TIERFEED_TOKEN", "0".repeat(64)).output().unwrap(), 1);
    refused(&fixture, &["status"], "there is no run in .tierfeed/runs");
}

/// A file that trainers need in the last step of the first epoch, too late to be staged by then.
fn late_object() -> (u64, String) {
    let sample = expected_log()[&(0, 0, 6)][0];
    // Classes are numbered in the order of their names, files in each class too.
    let (class, position) = (sample / 25, sample % 25);
    (sample, format!("class{class}/{:03}.jpg", position * 4 + class))
}

fn run_and_lose(fixture: &Fixture, loss: &str) -> (Output, u64, String) {
    let (sample, object) = late_object();
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    let script = format!("{loss} data/{object}; exec \"$0\" \"$@\"");
    run.args(["sh", "-c", &script]).arg(trainer()).arg(fixture.path("log")).arg("500");
    (run.output().unwrap(), sample, object)
}

#[test]
fn a_sample_that_vanished_stops_the_run_with_its_name() {
    let fixture = Fixture::new();
    let (output, sample, object) = run_and_lose(&fixture, "rm -f");
    assert_ended(&output, 1);
    let errors = String::from_utf8_lossy(&output.stderr);
    let sentence = format!("sample {sample} could not be read: its object is not there any more");
    assert!(errors.contains(&sentence), "{errors}");
    let fault = &fixture.report()["faults"][0];
    assert_eq!((&fault["sample"], &fault["object"]), (&sample.into(), &object.into()));
    assert_eq!(fault["fault"], "vanished");
}

#[test]
fn more_bad_samples_than_the_job_allows_end_the_training_with_their_number() {
    let fixture = Fixture::new();
    // Nothing is kept nor read ahead, so every epoch reads what is gone.
    fixture.write_job("on_error: { skip: 4 % }\npolicy: none\nprefetch: { look_ahead: off }\n");
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    let script = "rm -f data/class1/* data/class2/*; exec \"$0\" \"$@\"";
    run.args(["sh", "-c", script]).arg(trainer()).arg(fixture.path("log")).arg("500");
    let output = run.output().unwrap();
    assert_ended(&output, 1);
    let errors = String::from_utf8_lossy(&output.stderr);
    let sentence =
        "3 samples of this rank's epoch cannot be used, and `on_error: skip` leaves out 2 at most";
    assert!(errors.contains(sentence), "{errors}");
}

#[test]
fn a_sample_that_was_truncated_is_left_out_where_the_job_says_so() {
    let fixture = Fixture::new();
    fixture.write_job("on_error: skip\n");
    let (output, sample, _) = run_and_lose(&fixture, "truncate -s 100");
    assert_ended(&output, 0);
    assert_complete(&fixture.log());
    let report = fixture.report();
    let fault = &report["faults"][0];
    assert_eq!(fault["sample"], sample);
    assert!(["truncated", "changed"].contains(&fault["fault"].as_str().unwrap()), "{fault}");
    assert_eq!(report["samples"], 297, "three epochs without the sample");
}
