//! `tierfeed hog` as a real process, with little memory: what it holds, when it gives it back, and the
//! command beside it.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use tierfeed_test_needs::{Need, skip};

const MIB: u64 = 1 << 20;

fn hog(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierfeed"));
    command.arg("hog").args(arguments).stdin(Stdio::null()).env("TIERFEED_LOG", "info");
    command
}

fn output(arguments: &[&str]) -> Output {
    hog(arguments).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", errors(output));
}

fn json(output: &Output) -> Value {
    assert_code(output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Private memory of a process that is in memory.
fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// A hog that holds memory; killed when the test ends before it does.
struct Holding {
    child: Child,
    /// Kept open, because a hog fails if it writes to a closed pipe.
    errors: BufReader<std::process::ChildStderr>,
}

impl Holding {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("memory is held") {
            line.clear();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "it ended before it held");
        }
        Self { child, errors }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn end(&mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        self.errors.read_to_end(&mut stderr).unwrap();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // An error means that it ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_report_says_what_was_held_where_and_why_it_ended() {
    let report = json(&output(&["--take", "31 MiB", "--for", "0.2 s", "--json"]));
    let held = 32 * MIB;
    assert_eq!(report["requested"]["take_bytes"], 31 * MIB);
    assert_eq!(report["held_bytes_max"], held);
    assert_eq!(report["held_bytes_final"], held);
    assert_eq!(report["ended_by"], "time");
    assert_eq!(report["command"], Value::Null);
    assert!(report["resident_bytes"].as_u64().unwrap() >= held);
    assert!(report["held_for_s"].as_f64().unwrap() >= 0.2);
    let is_locked = report["locked_bytes"] == held;
    assert_eq!(report["kept_by"] == "locking", is_locked);
    assert_eq!(report["lock_refusal"] == Value::Null, is_locked);
    let end = report["given_back"].as_array().unwrap().last().unwrap();
    assert_eq!((&end["reason"], &end["bytes"]), (&"end".into(), &held.into()));
    if let Some(nodes) = report["nodes"].as_array() {
        let on_nodes: u64 = nodes.iter().map(|node| node["held_bytes"].as_u64().unwrap()).sum();
        assert_eq!(on_nodes, held);
    }
    let timeline = report["timeline"].as_array().unwrap();
    assert_eq!(timeline[0]["held_bytes"], 0);
    assert_eq!(timeline.last().unwrap()["held_bytes"], held);
}

#[test]
fn all_but_an_amount_is_held_at_once_if_others_have_more() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let kibibytes: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    // More than the other tests take meanwhile, so that some of it is left to hold.
    let leave = (kibibytes << 10) - 512 * MIB;
    let size = format!("{leave} B");
    let report = json(&output(&["--leave", &size, "--for", "0.2 s", "--json"]));
    assert_eq!(report["requested"]["leave_bytes"], leave);
    assert_eq!(report["floor_bytes"], leave);
    assert!(report["held_after_s"].as_f64().is_some());
    // Others take and give back meanwhile, so how much it held is not known here.
    assert!(report["held_bytes_max"].as_u64().unwrap() >= 32 * MIB, "{report:#}");
    let end = report["given_back"].as_array().unwrap().last().unwrap();
    assert_eq!(end["bytes"], report["held_bytes_final"]);
}

#[test]
fn each_signal_to_end_gives_everything_back() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut holding = Holding::start(&mut hog(&["--take", "32 MiB", "--json"]));
        assert!(resident_bytes(holding.child.id()) >= 32 * MIB);
        holding.signal(signal);
        let report = json(&holding.end());
        assert_eq!(report["ended_by"], "stopped");
        assert_eq!(report["given_back"][0]["bytes"], 32 * MIB);
    }
}

#[test]
fn a_hog_is_killed_before_others_but_not_the_command_beside_it() {
    let usual = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    // The hog has the usual score while it starts the command.
    let script =
        "cat /proc/self/oom_score_adj; until grep -x 1000 /proc/$PPID/oom_score_adj; do :; done";
    let output = output(&["--take", "2 MiB", "--", "sh", "-c", script]);
    assert_code(&output, 0);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{usual}1000\n"));
}

#[test]
fn a_command_starts_when_all_is_held_and_passes_its_code_on() {
    let script = "grep RssAnon /proc/$PPID/status; exit 7";
    let output = output(&["--take", "32 MiB", "--", "sh", "-c", script]);
    assert_code(&output, 7);
    let text = String::from_utf8(output.stdout).unwrap();
    let kibibytes: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kibibytes >= 32 << 10, "{text}");
}

#[test]
fn json_of_a_hog_with_a_command_is_one_document() {
    let output = output(&["--take", "2 MiB", "--json", "--", "echo", "noise"]);
    let report = json(&output);
    assert_eq!(report["command"]["exit_code"], 0);
    assert_eq!(report["ended_by"], "command");
    assert!(errors(&output).contains("noise"));
}

#[test]
fn a_command_gets_the_signals_and_answers_as_it_likes() {
    for (signal, trap) in [("-TERM", "TERM"), ("-USR1", "USR1")] {
        let script = format!("trap 'exit 9' {trap}; echo ready; while :; do sleep 0.01; done");
        let command = ["--take", "2 MiB", "--", "sh", "-c", &script];
        let mut holding = Holding::start(&mut hog(&command));
        let mut ready = [0; 6];
        holding.child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        holding.signal(signal);
        assert_code(&holding.end(), 9);
    }
}

#[test]
fn a_command_that_dies_of_a_signal_ends_the_hog_as_a_shell_would() {
    let output = output(&["--take", "2 MiB", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.signal(), None);
    assert_code(&output, 128 + 9);
}

#[test]
fn a_command_outlives_the_time_of_its_hog() {
    let script =
        "while [ $(grep RssAnon /proc/$PPID/status | tr -dc 0-9) -ge 16384 ]; do sleep 0.01; done";
    // The shell ends only after it saw the hog without the memory.
    let mut beside = hog(&["--take", "32 MiB", "--for", "0.1 s", "--json", "--", "sh", "-c"]);
    let output = beside.arg(script).output().unwrap();
    assert_eq!(json(&output)["ended_by"], "time");
}

#[test]
fn memory_that_must_not_be_locked_is_kept_by_touching_it() {
    let tierfeed = env!("CARGO_BIN_EXE_tierfeed");
    let script = format!("ulimit -l 0; exec {tierfeed} hog --take 4MiB --for 0.3s --json");
    let mut command = Command::new("sh");
    if nix::unistd::geteuid().is_root() {
        if !Path::new("/usr/bin/setpriv").exists() {
            skip(Need::Setpriv, "root may lock what it likes");
            return;
        }
        command = Command::new("setpriv");
        command.args(["--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock", "sh"]);
    }
    let report = json(&command.args(["-c", &script]).output().unwrap());
    assert_eq!((&report["locked_bytes"], &report["kept_by"]), (&0.into(), &"touching".into()));
    assert!(report["lock_refusal"].as_str().is_some());
    assert!(report["resident_bytes"].as_u64().unwrap() >= 4 * MIB);
}

#[test]
fn what_does_not_come_in_time_is_a_failure_that_says_what_was_there() {
    let output = output(&["--take", "4 MiB", "--wait", "0 s", "--", "echo", "started"]);
    assert_code(&output, 1);
    assert!(errors(&output).contains("error: only 0 B could be held"), "{}", errors(&output));
    assert_eq!(output.stdout, b"", "the command did not start");
}

#[test]
fn logs_are_lines_for_people_unless_json_is_asked_for() {
    let arguments = ["--take", "2 MiB", "--for", "0.1 s"];
    let text = errors(&hog(&arguments).env_remove("TIERFEED_LOG_FORMAT").output().unwrap());
    assert!(text.contains("INFO") && text.contains("memory is held"), "{text}");
    assert!(!text.contains('{') && !text.contains('\u{1b}'), "neither JSON nor colours: {text:?}");
    let asked = hog(&["--log-format", "json"]).args(arguments).output().unwrap();
    let told = hog(&arguments).env("TIERFEED_LOG_FORMAT", "json").output().unwrap();
    for text in [errors(&asked), errors(&told)] {
        // The last line is the outcome for people, which is no log.
        let lines = text.lines().filter(|line| !line.starts_with("held 2 MiB"));
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().any(|it| it["fields"]["message"] == "memory is held"), "{text}");
        assert!(lines.iter().all(|it| it["level"].is_string()), "{text}");
    }
}

#[test]
fn wrong_input_is_named() {
    for (arguments, said) in [
        (&["--take", "100 TiB"][..], "cannot hold 100 TiB"),
        (&["--take", "2 MiB", "--numa-node", "1023"], "NUMA node 1023 has no memory"),
        (&["--take", "2 MiB", "--leave", "2 MiB"], "cannot be used with"),
        (&["--for", "1 s"], "required"),
        (&["--take", "2 MiB", "--", "/no/such/program"], "cannot start /no/such/program"),
    ] {
        let output = output(arguments);
        assert_code(&output, 2);
        assert!(errors(&output).contains(said), "{arguments:?}: {}", errors(&output));
    }
}
