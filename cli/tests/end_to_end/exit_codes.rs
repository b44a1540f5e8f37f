//! The exit code of a command is that of `run`, `exec` and `hog`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use crate::fixture::{Fixture, Running, assert_ended, eventually};

/// A job of one rank, so that the command is started once.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), text.replace("ranks_per_node: 2", "ranks_per_node: 1")).unwrap();
    fixture
}

/// `run` and `hog`, which start a command and wait for it.
fn ways(fixture: &Fixture) -> [Command; 2] {
    let run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    let hog = fixture.tierfeed(&["hog", "--take", "2 MiB", "--"]);
    [run, hog]
}

#[test]
fn the_code_of_a_command_is_passed_on() {
    let fixture = fixture();
    for (script, code) in [("exit 3", 3), ("kill -KILL $$", 137), ("exit 0", 0)] {
        for mut way in ways(&fixture) {
            assert_ended(&way.args(["sh", "-c", script]).output().unwrap(), code);
        }
    }
}

#[test]
fn a_command_that_a_signal_ends_gives_the_code_that_shells_give() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let fixture = fixture();
        for mut way in ways(&fixture) {
            let started = fixture.path("started");
            way.args(["sh", "-c", "touch started; exec sleep 600"]);
            let mut running = Running::start(&mut way);
            eventually("the command runs", || started.exists());
            running.signal(signal);
            running.ends_with(code);
            fs::remove_file(started).unwrap();
        }
    }
}

#[test]
fn a_command_that_ends_well_when_it_is_asked_to_end_has_ended_well() {
    let fixture = fixture();
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    run.args(["sh", "-c", "trap 'exit 0' TERM; touch started; while :; do sleep 0.01; done"]);
    let mut running = Running::start(&mut run);
    eventually("the command runs", || fixture.path("started").exists());
    running.signal("-TERM");
    running.ends_with(0);
}

#[test]
fn exec_becomes_the_command() {
    let fixture = fixture();
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    let _run = Running::start(run.args(["sleep", "600"]));
    for (script, code) in [("exit 3", 3), ("exit 130", 130)] {
        let mut exec = fixture.tierfeed(&["exec", "--run-dir", "run", "--", "sh", "-c", script]);
        assert_ended(&exec.output().unwrap(), code);
    }
}

fn refused(fixture: &Fixture, command: &[&str]) -> [Output; 3] {
    let run = ["run", "job.yaml", "--"];
    let exec = ["exec", "--"];
    let hog = ["hog", "--take", "2 MiB", "--"];
    [&run[..], &exec, &hog].map(|way| fixture.tierfeed(&[way, command].concat()).output().unwrap())
}

#[test]
fn a_program_that_is_not_there_is_refused_with_what_may_be_meant() {
    let fixture = fixture();
    for (script, mode) in [("train.py", 0o644), ("start", 0o755)] {
        fs::write(fixture.path(script), "#!/bin/sh\n").unwrap();
        fs::set_permissions(fixture.path(script), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (command, said) in [
        (
            &["pyhton3", "train.py"][..],
            "cannot start pyhton3: no such program; did you mean `python3 train.py`?",
        ),
        (&["train.py", "--lr", "1"], "did you mean `python"),
        (&["./train.py"], "cannot start ./train.py: it is not executable; did you mean `python"),
        (&["start"], "programs are looked for in PATH; did you mean `./start`?"),
        (&["/no/such/program"], "cannot start /no/such/program: no such program\n"),
    ] {
        for output in refused(&fixture, command) {
            assert_ended(&output, 2);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(errors.contains(said), "{errors}");
        }
    }
    assert!(!fixture.path(".tierfeed").exists(), "nothing was begun");
}
