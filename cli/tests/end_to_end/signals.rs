//! Signals and ends are those of the training: what it is told, how long it may take, what it leaves behind, and
//! that the death of its agent is none of its own.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    apart::{Cluster, end_well},
    fixture::{Fixture, RANKS, Running, assert_complete, assert_ended, eventually, is_gone},
};

fn run_of(fixture: &Fixture, script: &str) -> Command {
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    run.args(["sh", "-c", script]);
    run
}

fn lines(fixture: &Fixture, name: &str) -> Vec<String> {
    let text = fs::read_to_string(fixture.path(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn all_ranks_say(fixture: &Fixture, word: &str) {
    let said = || lines(fixture, "said").iter().filter(|line| *line == word).count();
    eventually(word, || said() == RANKS as usize);
}

#[test]
fn signals_that_a_training_may_handle_reach_it_and_end_nothing() {
    let names = ["HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT", "INT"];
    let traps: String = names.map(|name| format!("trap 'echo {name} >>said' {name}; ")).concat();
    let fixture = Fixture::new();
    let script =
        format!("{traps} trap 'exit 0' TERM; echo ready >>said; while :; do sleep 0.01; done");
    let mut run = Running::start(&mut run_of(&fixture, &script));
    all_ranks_say(&fixture, "ready");
    for name in names {
        run.signal(&format!("-{name}"));
        all_ranks_say(&fixture, name);
    }
    run.signal("-TERM");
    run.ends_with(0);
}

#[test]
fn a_training_may_save_for_as_long_as_it_likes_and_a_second_sigterm_is_no_sigkill() {
    let fixture = Fixture::new();
    let script = "trap 'echo asked >>said.$RANK; echo asked >>said' TERM; echo ready >>said; \
                  until [ -e saved ]; do sleep 0.01; done";
    let mut run = Running::start(&mut run_of(&fixture, script));
    all_ranks_say(&fixture, "ready");
    run.signal("-TERM");
    all_ranks_say(&fixture, "asked");
    run.signal("-TERM");
    let both = || (0..RANKS).all(|rank| lines(&fixture, &format!("said.{rank}")).len() == 2);
    eventually("the second one comes", both);
    fs::write(fixture.path("saved"), "").unwrap();
    run.ends_with(0);
}

#[test]
fn a_second_interrupt_and_a_grace_that_is_over_kill_a_training() {
    let script = "trap 'echo interrupted >>said' INT; trap '' TERM; echo ready >>said; \
                  while :; do sleep 0.01; done";
    let fixture = Fixture::new();
    let mut run = Running::start(&mut run_of(&fixture, script));
    all_ranks_say(&fixture, "ready");
    run.signal("-INT");
    // The kernel takes two that wait at the same time for one.
    all_ranks_say(&fixture, "interrupted");
    run.signal("-INT");
    run.ends_with(137);
    let fixture = Fixture::new();
    let mut run =
        fixture.tierfeed(&["run", "job.yaml", "--grace", "10 ms", "--", "sh", "-c", script]);
    let mut run = Running::start(&mut run);
    all_ranks_say(&fixture, "ready");
    run.signal("-TERM");
    run.ends_with(137);
}

/// The shell ends at once, as it has no trap, but at SIGINT it waits for what it has started.
#[test]
fn a_training_behind_a_shell_is_told_what_ended_the_shell_and_waited_for() {
    let cases = [("TERM", &[143][..]), ("USR1", &[138]), ("INT", &[0, 130])];
    for (name, codes) in cases {
        let fixture = Fixture::new();
        let training = format!(
            "trap 'echo saved >>said; exit 0' {name}; echo ready >>said; while :; do sleep 0.01; done"
        );
        fs::write(fixture.path("train"), training).unwrap();
        let mut run = Running::start(&mut run_of(&fixture, "sh ./train; true"));
        all_ranks_say(&fixture, "ready");
        run.signal(&format!("-{name}"));
        all_ranks_say(&fixture, "saved");
        eventually("it ends", || run.has_ended());
        assert!(codes.contains(&run.code().unwrap()), "{}", run.errors());
    }
}

/// Shells let what they start with `&` ignore SIGINT.
#[test]
fn what_a_training_left_behind_and_ignores_the_signal_does_not_outlive_the_run() {
    let fixture = Fixture::new();
    let script = "sleep 600 & echo $! >>pids; trap 'exit 0' INT; echo ready >>said; wait";
    let mut run = Running::start(&mut run_of(&fixture, script));
    all_ranks_say(&fixture, "ready");
    run.signal("-INT");
    run.ends_with(0);
    for pid in lines(&fixture, "pids") {
        assert!(is_gone(Pid::from_raw(pid.parse().unwrap())), "{pid}");
    }
    assert!(fixture.path("run/report.json").exists());
}

#[test]
fn a_training_that_saves_behind_an_ended_shell_is_waited_for_and_named_and_told_once() {
    let fixture = Fixture::new();
    let training = "trap 'echo asked >>said; trap \"\" TERM; is_asked=1' TERM; echo ready >>said; \
                    until [ -e saved ] && [ \"$is_asked\" ]; do sleep 0.01; done; echo saved >>said";
    fs::write(fixture.path("train"), training).unwrap();
    let mut run = Running::start(&mut run_of(&fixture, "sh ./train; true"));
    all_ranks_say(&fixture, "ready");
    run.signal("-TERM");
    all_ranks_say(&fixture, "asked");
    eventually("it is named", || run.errors().contains("waits for sh ("));
    fs::write(fixture.path("saved"), "").unwrap();
    run.ends_with(143);
    all_ranks_say(&fixture, "saved");
    assert_eq!(run.errors().matches("left a process behind").count(), RANKS as usize);
}

#[test]
fn nothing_that_a_rank_left_behind_outlives_the_run() {
    let fixture = Fixture::new();
    fs::write(fixture.path("helper"), "echo $$ >>pids; exec sleep 600").unwrap();
    let script = "setsid sh ./helper & until [ -s pids ]; do sleep 0.01; done; exit 3";
    let mut run = Running::start(&mut run_of(&fixture, script));
    run.ends_with(3);
    let pids = lines(&fixture, "pids");
    assert!(!pids.is_empty());
    for pid in pids {
        assert!(is_gone(Pid::from_raw(pid.parse().unwrap())), "{pid}");
    }
}

#[test]
fn a_run_whose_agent_is_killed_goes_on_to_the_end_of_its_training() {
    let fixture = Fixture::new();
    let mut run = Running::start(&mut fixture.run(20_000));
    eventually("some batches are there", || fixture.lines() >= 4);
    let agent = run.agent().unwrap();
    let score = fs::read_to_string(format!("/proc/{agent}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "500", "the kernel takes it first");
    kill(agent, Signal::SIGKILL).unwrap();
    run.ends_with(0);
    assert!(run.errors().contains("its trainers read on without it"), "{}", run.errors());
    let log = fixture.log();
    assert!(assert_complete(&log) < log.len(), "the agent lived to the end");
}

#[test]
fn a_training_that_fails_after_its_agent_was_killed_has_failed() {
    let fixture = Fixture::new();
    let script = "echo ready >>said; until [ -e over ]; do sleep 0.01; done; exit $((7 * RANK))";
    let mut run = Running::start(&mut run_of(&fixture, script));
    all_ranks_say(&fixture, "ready");
    kill(run.agent().unwrap(), Signal::SIGKILL).unwrap();
    eventually("it is missed", || run.errors().contains("its trainers read on without it"));
    fs::write(fixture.path("over"), "").unwrap();
    run.ends_with(7);
}

#[test]
fn a_run_that_is_killed_leaves_no_agent() {
    let fixture = Fixture::new();
    let script = "echo $$ >>pids; echo ready >>said; until [ -e over ]; do sleep 0.01; done";
    let mut run = Running::start(&mut run_of(&fixture, script));
    all_ranks_say(&fixture, "ready");
    run.kill_with_agent();
    fs::write(fixture.path("over"), "").unwrap();
    let ranks = lines(&fixture, "pids");
    let has_ended = |pid: &String| is_gone(Pid::from_raw(pid.parse().unwrap()));
    eventually("its ranks end", || ranks.iter().all(has_ended));
}

#[test]
fn a_hangup_that_is_ignored_stays_so() {
    let fixture = Fixture::new();
    let script = "echo ready >>said; trap 'exit 0' TERM; while :; do sleep 0.01; done";
    let run = run_of(&fixture, script);
    let mut ignoring = Command::new("sh");
    ignoring
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(run.get_program())
        .args(run.get_args());
    ignoring.current_dir(run.get_current_dir().unwrap()).stdin(Stdio::null());
    let mut run = Running::start(&mut ignoring);
    all_ranks_say(&fixture, "ready");
    run.signal("-HUP");
    run.signal("-TERM");
    run.ends_with(0);
}

#[test]
fn what_is_meant_for_a_training_ends_neither_agent_nor_manager() {
    let cluster = Cluster::start();
    let agent = cluster.agent();
    let trainers = cluster.trainers(10_000);
    eventually("some batches are there", || cluster.fixture.lines() >= 4);
    for process in [&cluster.manager, &agent] {
        ["-HUP", "-USR1", "-USR2"].iter().for_each(|name| process.signal(name));
    }
    end_well(trainers);
    let log = cluster.fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves every batch");
}

#[test]
fn what_is_meant_for_a_training_ends_no_exec_that_waits_and_keeps_its_meaning_behind_it() {
    let cluster = Cluster::start();
    let script = "echo ready; kill -USR1 $$; sleep 600";
    let mut exec =
        cluster.fixture.tierfeed(&["exec", "--run-dir", "run", "--", "sh", "-c", script]);
    exec.env("TIERFEED_RANK", "0").stdout(Stdio::piped()).stderr(Stdio::null());
    let exec = exec.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(exec.id()).unwrap());
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        (u64::from_str_radix(mask, 16).unwrap() >> (Signal::SIGUSR1 as i32 - 1)) & 1 == 1
    };
    eventually("it waits", catches);
    kill(pid, Signal::SIGUSR1).unwrap();
    let _agent = cluster.agent();
    let output = exec.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ready\n");
    assert_eq!(output.status.signal(), Some(Signal::SIGUSR1 as i32));
}

#[test]
fn a_training_does_not_get_the_token_of_its_job() {
    let fixture = Fixture::new();
    let mut run = run_of(&fixture, "echo ${TIERFEED_TOKEN-none}");
    let output = run.env("TIERFEED_TOKEN", "4f".repeat(32)).output().unwrap();
    assert_ended(&output, 0);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "none\nnone\n");
}

#[test]
fn a_rank_that_is_alone_under_srun_learns_who_it_is() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), text.replace("ranks_per_node: 2", "ranks_per_node: 1")).unwrap();
    let mut run = run_of(&fixture, "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR");
    run.envs([
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_STEP_ID", "3"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_NUM_NODES", "1"),
    ]);
    let output = run.output().unwrap();
    assert_ended(&output, 0);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 1 0 127.0.0.1\n");
}
