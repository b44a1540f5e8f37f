//! `tierfeed run` on several nodes, as a launcher starts it: processes with the launcher's variables, on this
//! host.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use crate::fixture::{
    Fixture, RANKS, Running, assert_complete_on, assert_ended, digest_of_node, eventually, trainer,
};

const NODES: u32 = 2;

fn job_of(nodes: u32) -> Fixture {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let one = format!("nodes: 1, ranks_per_node: {RANKS}");
    let several = format!("nodes: {nodes}, ranks_per_node: {RANKS}");
    assert!(text.contains(&one));
    fs::write(fixture.job(), text.replace(&one, &several)).unwrap();
    fixture
}

/// `tierfeed run` as `srun --ntasks-per-node=1` starts it on a node.
fn on_node(fixture: &Fixture, node: u32, step_us: u64) -> Command {
    let mut command = fixture.tierfeed(&["run", "job.yaml", "--"]);
    command.arg(trainer()).arg(fixture.path("log")).arg(step_us.to_string());
    as_task(&mut command, node, 0, 1);
    command
}

fn as_task(command: &mut Command, node: u32, local: u32, tasks: u32) {
    let (rank, world) = (node * tasks + local, NODES * tasks);
    command.envs([
        ("SLURM_JOB_ID", "4711".to_owned()),
        ("SLURM_STEP_ID", "3".to_owned()),
        ("SLURM_PROCID", rank.to_string()),
        ("SLURM_STEP_NUM_TASKS", world.to_string()),
        ("SLURM_LOCALID", local.to_string()),
        ("SLURM_STEP_TASKS_PER_NODE", format!("{tasks}(x{NODES})")),
        ("SLURM_NODEID", node.to_string()),
        ("SLURM_STEP_NUM_NODES", NODES.to_string()),
    ]);
}

fn job_dir(fixture: &Fixture) -> std::path::PathBuf {
    fixture.path(".tierfeed/runs/small-slurm-4711.3")
}

fn report_of_node(fixture: &Fixture, node: u32) -> serde_json::Value {
    let text = fs::read(job_dir(fixture).join(format!("node-{node}/report.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn job_report(fixture: &Fixture) -> serde_json::Value {
    let text = fs::read(job_dir(fixture).join("report.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn one_command_on_each_node_feeds_all_ranks_of_the_job() {
    let fixture = job_of(NODES);
    // The second is there first, and waits.
    let mut nodes: Vec<_> =
        [1, 0].map(|node| Running::start(&mut on_node(&fixture, node, 1_000))).into();
    for node in &mut nodes {
        node.ends_with(0);
    }
    let log = fixture.log();
    assert_eq!(assert_complete_on(&log, NODES), log.len(), "every batch came from an agent");
    for node in 0..NODES {
        let report = report_of_node(&fixture, node);
        assert_eq!(report["order_digest"], digest_of_node(&log, node), "node {node}");
        assert_eq!(report["ranks"]["absent"], serde_json::json!([]));
    }
    let report = job_report(&fixture);
    assert_eq!(report["nodes"].as_array().unwrap().len(), NODES as usize);
    assert_eq!((&report["used_batches"], &report["ended_with"]), (&log.len().into(), &0.into()));
    let waits =
        |rank: usize| &report["nodes"][rank / RANKS as usize]["ranks"][rank % RANKS as usize];
    for rank in 0..(NODES * RANKS) as usize {
        let batches = log.keys().filter(|(it, _, _)| *it as usize == rank).count();
        assert_eq!(
            (&waits(rank)["rank"], &waits(rank)["batches"]),
            (&rank.into(), &batches.into())
        );
    }
    assert!(report["verdict"].as_str().unwrap().contains("waited"), "{}", report["verdict"]);
    assert!(nodes[1].errors().contains("small: "), "node 0 prints it: {}", nodes[1].errors());
    assert!(job_dir(&fixture).join("report.txt").exists());
    let left: Vec<_> = ["rendezvous", "begun"].map(|it| job_dir(&fixture).join(it)).into();
    assert!(!left.iter().any(|path| path.exists()), "{left:?}");
}

#[test]
fn a_rank_that_fails_ends_all_nodes_with_its_code() {
    let fixture = job_of(NODES);
    let script = "if [ $RANK = 3 ]; then exit 7; fi; exec sleep 600";
    let start = |node| {
        let mut command = fixture.tierfeed(&["run", "job.yaml", "--", "sh", "-c", script]);
        as_task(&mut command, node, 0, 1);
        Running::start(&mut command)
    };
    for mut node in [0, 1].map(start) {
        node.ends_with(7);
    }
    let report = job_report(&fixture);
    assert_eq!(report["ended_with"], 7);
    assert!(report["verdict"].as_str().unwrap().contains("ended with code 7"), "{report:#}");
}

/// `tierfeed run` as `srun --ntasks-per-node=2` starts it: a process for each rank.
fn as_ranks(fixture: &Fixture, command: &[&std::ffi::OsStr]) -> Vec<Running> {
    let start = |rank: u32| {
        let mut run = fixture.tierfeed(&["run", "job.yaml", "--"]);
        run.args(command);
        as_task(&mut run, rank / RANKS, rank % RANKS, RANKS);
        Running::start(&mut run)
    };
    // The first of a node need not be there first.
    (0..NODES * RANKS).rev().map(start).collect()
}

#[test]
fn a_process_for_each_rank_shares_the_agent_of_its_node() {
    let fixture = job_of(NODES);
    let (trainer, log) = (trainer(), fixture.path("log"));
    for mut rank in as_ranks(&fixture, &[trainer.as_ref(), log.as_ref(), "1000".as_ref()]) {
        rank.ends_with(0);
    }
    let log = fixture.log();
    assert_eq!(assert_complete_on(&log, NODES), log.len(), "every batch came from an agent");
    for node in 0..NODES {
        let report = report_of_node(&fixture, node);
        assert_eq!(report["order_digest"], digest_of_node(&log, node), "node {node}");
    }
    assert_eq!(job_report(&fixture)["used_batches"], log.len());
}

#[test]
fn a_rank_of_a_process_of_its_own_that_fails_ends_all_with_its_code() {
    let fixture = job_of(NODES);
    let script = "if [ $RANK = 3 ]; then exit 7; fi; exec sleep 600";
    for mut rank in as_ranks(&fixture, &["sh".as_ref(), "-c".as_ref(), script.as_ref()]) {
        rank.ends_with(7);
    }
    assert_eq!(job_report(&fixture)["ended_with"], 7);
}

#[test]
fn the_token_is_in_a_file_of_the_user_alone_and_in_no_command_line() {
    let fixture = job_of(NODES);
    let script = "exec sleep 600";
    let mut command = fixture.tierfeed(&["run", "job.yaml", "--", "sh", "-c", script]);
    as_task(&mut command, 0, 0, 1);
    let mut first = Running::start(&mut command);
    let path = job_dir(&fixture).join("rendezvous");
    eventually("the first node says where it listens", || path.exists());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let token = text["token"].as_str().unwrap();
    let line = fs::read_to_string(format!("/proc/{}/cmdline", first.pid())).unwrap();
    assert!(!line.contains(token));
    let status = fixture.tierfeed(&["status", "--json"]).output().unwrap();
    assert_ended(&status, 0);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["nodes"], NODES);
    first.signal("-TERM");
    eventually("it ends", || first.has_ended());
}

#[test]
fn nodes_by_hand_meet_at_an_address_with_a_token() {
    let fixture = job_of(NODES);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("localhost:{port}");
    let start = |node: u32| {
        let (node, nodes) = (node.to_string(), NODES.to_string());
        let place = ["--node", &node, "--nodes", &nodes, "--manager", &address];
        let mut command = fixture.tierfeed(&["run", "job.yaml"]);
        // As on hosts that share no directory.
        command.args(place).arg("--run-dir").arg(fixture.path(&format!("host-{node}"))).arg("--");
        command.arg(trainer()).arg(fixture.path("log")).arg("1000");
        Running::start(command.env("TIERFEED_TOKEN", "5a".repeat(32)))
    };
    for mut node in [0, 1].map(start) {
        node.ends_with(0);
    }
    let log = fixture.log();
    assert_eq!(assert_complete_on(&log, NODES), log.len());
}

#[test]
fn nodes_that_cannot_meet_are_told_what_is_missing() {
    let fixture = job_of(NODES);
    let output = fixture
        .tierfeed(&["run", "job.yaml", "--node", "1", "--nodes", "2", "--", "true"])
        .output()
        .unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--run-dir DIR") && errors.contains("--manager HOST:PORT"), "{errors}");
}

#[test]
fn a_job_without_a_world_has_that_of_its_launcher() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let world = text.lines().find(|line| line.starts_with("world:")).unwrap();
    fs::write(fixture.job(), text.replace(&format!("{world}\n"), "")).unwrap();
    let (trainer, log) = (trainer(), fixture.path("log"));
    for mut rank in as_ranks(&fixture, &[trainer.as_ref(), log.as_ref(), "1000".as_ref()]) {
        rank.ends_with(0);
    }
    let log = fixture.log();
    assert_eq!(assert_complete_on(&log, NODES), log.len(), "every batch came from an agent");
}

#[test]
fn one_key_of_the_world_may_be_left_to_the_launcher() {
    let fixture = job_of(NODES);
    let text = fs::read_to_string(fixture.job()).unwrap().replace(&format!("nodes: {NODES}, "), "");
    fs::write(fixture.job(), text).unwrap();
    for mut node in [0, 1].map(|node| Running::start(&mut on_node(&fixture, node, 1_000))) {
        node.ends_with(0);
    }
    let log = fixture.log();
    assert_eq!(assert_complete_on(&log, NODES), log.len());
}

#[test]
fn a_first_node_that_cannot_index_the_dataset_ends_those_that_wait_for_it() {
    let fixture = job_of(NODES);
    let mut second = Running::start(&mut on_node(&fixture, 1, 0));
    let waits = job_dir(&fixture).join("node-1");
    eventually("the second node is there", || waits.exists());
    fs::rename(fixture.path("data"), fixture.path("gone")).unwrap();
    let first = on_node(&fixture, 0, 0).output().unwrap();
    let code = first.status.code().unwrap();
    assert_ne!(code, 0);
    second.ends_with(code);
    assert!(second.errors().contains("the first node ended with code"), "{}", second.errors());
}

#[test]
fn a_first_process_that_cannot_start_ends_the_others_of_all_nodes_with_the_reason() {
    let fixture = job_of(NODES);
    fs::rename(fixture.path("data"), fixture.path("gone")).unwrap();
    for mut rank in as_ranks(&fixture, &["true".as_ref()]) {
        eventually("it ends", || rank.has_ended());
        let said = rank.errors();
        assert!(said.contains(&fixture.path("data").display().to_string()), "{said}");
    }
}

#[test]
fn a_training_does_not_get_the_token_of_its_job() {
    let fixture = Fixture::new();
    let script = "test -z \"$TIERFEED_TOKEN\"";
    let mut run = fixture.tierfeed(&["run", "job.yaml", "--", "sh", "-c", script]);
    assert_ended(&run.env("TIERFEED_TOKEN", "5a".repeat(32)).output().unwrap(), 0);
}

#[test]
fn a_run_that_is_stopped_before_its_training_was_started_has_not_succeeded() {
    let fixture = job_of(NODES);
    let mut second = Running::start(&mut on_node(&fixture, 1, 0));
    eventually("it waits", || second.errors().contains("waits for the first node"));
    second.signal("-TERM");
    second.ends_with(143);
    let said = "stopped by SIGTERM before the training was started";
    assert!(second.errors().contains(said), "{}", second.errors());
}

#[test]
fn a_first_node_that_failed_before_the_others_came_ends_them_too() {
    let fixture = job_of(NODES);
    fs::rename(fixture.path("data"), fixture.path("gone")).unwrap();
    let first = on_node(&fixture, 0, 0).output().unwrap();
    let code = first.status.code().unwrap();
    assert_ne!(code, 0);
    let mut second = Running::start(&mut on_node(&fixture, 1, 0));
    second.ends_with(code);
    assert!(second.errors().contains("the first node ended with code"), "{}", second.errors());
}

#[test]
fn a_second_run_in_the_directory_of_a_live_one_is_refused_and_the_first_goes_on() {
    let fixture = job_of(NODES);
    let mut live = [0, 1].map(|node| Running::start(&mut on_node(&fixture, node, 30_000)));
    eventually("batches arrive", || fixture.lines() > 4);
    for node in 0..NODES {
        let second = on_node(&fixture, node, 0).output().unwrap();
        assert_ended(&second, 2);
        let errors = String::from_utf8_lossy(&second.stderr);
        assert!(errors.contains("works in this run directory"), "{errors}");
    }
    live.iter_mut().for_each(|node| node.ends_with(0));
    let log = fixture.log();
    assert_eq!(assert_complete_on(&log, NODES), log.len());
}

#[test]
fn ranks_that_end_well_after_a_signal_end_every_process_of_their_node_well() {
    let fixture = job_of(NODES);
    let script = "trap 'exit 0' TERM; echo $RANK >>ready; sleep 600 & wait";
    let mut ranks = as_ranks(&fixture, &["sh".as_ref(), "-c".as_ref(), script.as_ref()]);
    let ready = || fs::read_to_string(fixture.path("ready")).unwrap_or_default();
    eventually("all ranks are there", || ready().lines().count() == ranks.len());
    ranks.iter().for_each(|rank| rank.signal("-TERM"));
    ranks.iter_mut().for_each(|rank| rank.ends_with(0));
}

#[test]
fn the_nodes_of_a_run_read_from_each_other() {
    let fixture = job_of(NODES);
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), format!("{text}policy: partitioned\n")).unwrap();
    // An epoch takes longer than nodes need to find each other.
    let start = |node| Running::start(&mut on_node(&fixture, node, 300_000));
    for mut node in [0, 1].map(start) {
        node.ends_with(0);
    }
    let log = fixture.log();
    assert_eq!(assert_complete_on(&log, NODES), log.len());
    for node in 0..NODES {
        let report = report_of_node(&fixture, node);
        assert!(report["peer_read_bytes"].as_u64() > Some(0), "node {node}: {report:#}");
    }
}
