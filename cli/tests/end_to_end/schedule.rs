//! The manager makes the schedule of each agent; the plan shows it before, the status while it runs, and the
//! report after.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    apart::Cluster,
    fixture::{Fixture, Running, assert_complete, assert_ended, eventually, example},
};

const BOTH: &str = "retention-and-look-ahead";

/// A job whose memory behind CXL gives 50 MB/s, and whose cold store gives `cold`.
fn slow_card(cold: &str) -> Fixture {
    let fixture = Fixture::new();
    replace(&fixture, "bandwidth: 9 GB/s", "bandwidth: 50 MB/s");
    replace(&fixture, "bandwidth: 60 MB/s", &format!("bandwidth: {cold}"));
    fixture
}

fn replace(fixture: &Fixture, from: &str, to: &str) {
    let text = fs::read_to_string(fixture.job()).unwrap();
    assert!(text.contains(from), "{from} in\n{text}");
    fs::write(fixture.job(), text.replace(from, to)).unwrap();
}

/// What a command prints as JSON, without a probe report.
fn json(fixture: &Fixture, arguments: &[&str]) -> Value {
    let mut command = fixture.tierfeed(arguments);
    let output = command.env("XDG_STATE_HOME", fixture.path("state")).output().unwrap();
    assert_ended(&output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn uses(tiers: &Value) -> Vec<(&str, &str)> {
    let tiers = tiers.as_array().unwrap().iter();
    tiers.map(|tier| (tier["name"].as_str().unwrap(), tier["use"].as_str().unwrap())).collect()
}

fn ran(fixture: &Fixture) -> Value {
    let mut run = fixture.run(0);
    run.env("XDG_STATE_HOME", fixture.path("state"));
    assert_ended(&run.output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves every batch");
    fixture.report()
}

/// The use of the tier on storage, which a RAM disk may play.
fn use_of_storage(tiers: &Value) -> &str {
    let storage = uses(tiers).into_iter().find(|(name, _)| *name == "storage");
    storage.expect("it is listed").1
}

/// Runs the job until all of its tiers have figures, which are saved for the next run.
fn calibrate(fixture: &Fixture) {
    let has_figures = |tier: &Value| !tier["figures_from"].as_str().unwrap().starts_with("none");
    for _ in 0..20 {
        let mut run = fixture.run(0);
        assert_ended(&run.env("XDG_STATE_HOME", fixture.path("state")).output().unwrap(), 0);
        fs::remove_file(fixture.path("log")).unwrap();
        if fixture.report()["tiers"].as_array().unwrap().iter().all(has_figures) {
            return;
        }
    }
    panic!("never calibrated within 2 s");
}

#[test]
fn plan_and_status_show_the_schedule_that_the_run_used() {
    let fixture = slow_card("30 MB/s");
    calibrate(&fixture);
    let planned = json(&fixture, &["plan", "job.yaml", "--schedule", "--node", "0", "--json"]);
    let mut command = fixture.run(150_000);
    let mut run = Running::start(command.env("XDG_STATE_HOME", fixture.path("state")));
    eventually("the training reads", || fixture.lines() > 2);
    let status = json(&fixture, &["status", "--json", "--run-dir", "run"]);
    let text = fixture.tierfeed(&["status", "--run-dir", "run"]).output().unwrap();
    run.ends_with(0);
    let node = &status["joined"][0];
    assert_eq!(planned["schedule"], node["schedule"], "{planned:#}");
    let tiers = [("main-memory", BOTH), ("scratch", BOTH), ("cxl-memory", BOTH)];
    assert_eq!(uses(&node["tiers"]), tiers);
    let report = fixture.report();
    assert_eq!(uses(&report["tiers"]), tiers);
    for (used, tier) in report["tiers"]
        .as_array()
        .unwrap()
        .iter()
        .zip(planned["schedule"]["tiers"].as_array().unwrap())
    {
        for key in ["name", "use", "decision", "figures_from", "cache_bytes", "budget_bytes"] {
            assert_eq!(used[key], tier[key], "{key}");
        }
    }
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["schedule generation 0", "faster than cxl-memory"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn a_tier_that_is_slower_than_the_cold_store_is_left_out_and_the_report_says_so() {
    let report = ran(&slow_card("200 MB/s"));
    let expected = [("main-memory", BOTH), ("scratch", BOTH), ("cxl-memory", "left-out")];
    assert_eq!(uses(&report["tiers"]), expected);
    let left_out = &report["tiers"][2];
    let why = "left out: 50 MB/s costs more than the cold store with 200 MB/s";
    assert_eq!(left_out["decision"], why);
    assert_eq!((&left_out["written_bytes"], &left_out["cache_bytes"]), (&0.into(), &0.into()));
    assert_eq!(report["tier_read_bytes"]["cxl-memory"], 0);
}

#[test]
fn a_directory_on_the_disk_of_the_dataset_is_left_out_and_the_report_says_so() {
    let fixture = Fixture::new();
    let emulated = "\x20 emulate: { latency: 1 ms, bandwidth: 60 MB/s }\n";
    let text = fs::read_to_string(fixture.job()).unwrap();
    let folder = fixture.path("tier");
    let storage = format!("  storage: {{ path: {}, size: 4 MiB }}\n", folder.display());
    fs::create_dir(&folder).unwrap();
    fs::write(fixture.job(), text.replace(emulated, "") + &storage).unwrap();
    let report = ran(&fixture);
    let storage = report["tiers"].as_array().unwrap().last().unwrap();
    assert_eq!((&storage["name"], &storage["use"]), (&"storage".into(), &"left-out".into()));
    let why = storage["decision"].as_str().unwrap();
    assert!(why.contains("lies on the disk that holds the dataset"), "{why}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing was written there");
}

/// The directory of the storage tier is the one that each agent works in: a RAM disk, which is no disk of the
/// dataset, and the disk of the dataset.
#[test]
fn agents_with_different_tiers_get_different_schedules() {
    let fixture = Fixture::new();
    replace(&fixture, "nodes: 1, ranks_per_node: 2", "nodes: 2, ranks_per_node: 1");
    replace(&fixture, "  emulate: { latency: 1 ms, bandwidth: 60 MB/s }\n", "");
    let storage = "  storage: { path: /proc/self/cwd/storage, size: 1 MiB }\n";
    let text = fs::read_to_string(fixture.job()).unwrap() + storage;
    fs::write(fixture.job(), text).unwrap();
    let cluster = Cluster::of(fixture, Vec::new());
    let fixture = &cluster.fixture;
    let start = |number: &str, folder: &Path| {
        let mut agent = fixture.tierfeed(&["agent", "--manager", cluster.address()]);
        agent.arg("--token-file").arg(fixture.path("manager/token"));
        agent.args(["--node", number, "--run-dir"]).arg(fixture.path(&format!("run{number}")));
        Running::start(agent.env("XDG_STATE_HOME", fixture.path("state")).current_dir(folder))
    };
    let mut agents =
        [start("0", fixture.scratch()), start("1", fixture.path("data").parent().unwrap())];
    eventually("both agents join", || {
        cluster.status()["joined"].as_array().unwrap().len() == agents.len()
    });
    let status = cluster.status();
    let of = |node: usize| &status["joined"][node]["schedule"];
    assert_eq!(use_of_storage(&of(0)["tiers"]), "retention", "{status:#}");
    assert_eq!(use_of_storage(&of(1)["tiers"]), "left-out", "{status:#}");
    assert_eq!(of(0)["staged_batches"], of(1)["staged_batches"], "the job is the same");
    let mut drain = fixture.tierfeed(&["drain", "--run-dir", "manager"]);
    assert_ended(&drain.output().unwrap(), 0);
    agents.iter_mut().for_each(|agent| agent.ends_with(0));
    for (number, expected) in [(0, "retention"), (1, "left-out")] {
        let report = fs::read(fixture.path(&format!("run{number}/report.json"))).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(use_of_storage(&report["tiers"]), expected);
    }
}

/// A rank of 50 steps of 20 ms an epoch, and 0.7 s of something else after every eighth, beside a cold store of
/// 5 MB/s. All samples have 100 kB. The job says of it what `declared` says.
fn with_pauses(declared: &str) -> Fixture {
    let fixture = Fixture::new();
    for number in 0..200_u32 {
        let file = format!("data/class{}/{number:03}.jpg", number % 4);
        fs::write(fixture.path(&file), vec![number.to_le_bytes()[0]; 100_000]).unwrap();
    }
    replace(&fixture, "bandwidth: 60 MB/s", "bandwidth: 5 MB/s");
    replace(&fixture, "ranks_per_node: 2", "ranks_per_node: 1");
    replace(&fixture, "batch_size: 8", "batch_size: 4");
    let text = fs::read_to_string(fixture.job()).unwrap() + declared + "prefetch: { batches: 3 }\n";
    fs::write(fixture.job(), text).unwrap();
    fixture
}

/// Runs the training, and repeats the run.
fn ran_with_pauses(fixture: &Fixture) -> (Value, Value) {
    let mut run = fixture.tierfeed(&["run", "--launch", "once", "--run-dir"]);
    run.arg(fixture.run_dir()).arg(fixture.job()).arg("--");
    run.arg(example("lock_step")).args(["20000", "8", "700000"]);
    assert_ended(&run.output().unwrap(), 0);
    (fixture.report(), json(fixture, &REPLAY))
}

const REPLAY: [&str; 6] = ["plan", "job.yaml", "--simulate", "--replay", "run", "--json"];

#[test]
fn pauses_that_the_job_declares_have_their_room_in_the_first_epoch() {
    let fixture = with_pauses("step_time: 20 ms\npause: { every: 8 steps, time: 700 ms }\n");
    let planned = &json(&fixture, &["plan", "job.yaml", "--schedule", "--json"])["schedule"];
    let room = planned["look_ahead_bytes"].as_u64();
    assert!(room > Some(0), "{planned:#}");
    let reason = planned["reason"].as_str().unwrap();
    assert!(reason.starts_with("as the job file says, trainers pause for 700 ms"), "{reason}");
    let (report, replayed) = ran_with_pauses(&fixture);
    assert_eq!(report["epochs"][0]["look_ahead_room_bytes"].as_u64(), room);
    assert_eq!(replayed["equal"], true, "{replayed:#}");
    let unsaid = with_pauses("step_time: 20 ms\n");
    let planned = json(&unsaid, &["plan", "job.yaml", "--schedule", "--json"]);
    assert_eq!(planned["schedule"]["look_ahead_bytes"], 0, "what is not declared is observed");
}

#[test]
fn what_a_run_observes_makes_generations_and_a_replay_decides_as_the_run_did() {
    let fixture = with_pauses("");
    let (report, replayed) = ran_with_pauses(&fixture);
    let rooms: Vec<&Value> = report["epochs"].as_array().unwrap()[1..]
        .iter()
        .map(|epoch| &epoch["look_ahead_room_bytes"])
        .collect();
    let generations = replayed["generations"].as_array().unwrap();
    let applied = generations.iter().filter(|it| !it["applied_epoch"].is_null()).count();
    assert!(applied >= 2, "{replayed:#}");
    let second = &generations[1];
    assert!(second["look_ahead_bytes"].as_u64() > Some(0), "{replayed:#}");
    let reason = second["reason"].as_str().unwrap();
    assert!(reason.starts_with("trainers pause for 7"), "{reason}");
    assert!(rooms.iter().any(|room| room.as_u64() > Some(0)), "{rooms:?}");
    assert_eq!(replayed["run_decisions_digest"], report["decisions_digest"]);
    assert_eq!(replayed["equal"], true, "{replayed:#}");
    let text = fixture.tierfeed(&REPLAY[..5]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(": equal"), "{text}");
}

/// A rank of 50 steps of 20 ms an epoch, beside a cold store of 100 MB/s that gives nothing before 100 ms. The job
/// keeps nothing, fetches nothing ahead, and says neither the step time nor how deep to stage.
#[test]
fn a_run_that_observes_a_far_cold_store_stages_deeper_from_a_later_epoch_and_says_why() {
    let fixture = with_pauses("");
    for (from, to) in [
        ("prefetch: { batches: 3 }\n", "policy: none\nprefetch: { look_ahead: off }\n"),
        ("latency: 1 ms, bandwidth: 5 MB/s", "latency: 100 ms, bandwidth: 100 MB/s"),
        ("main-memory: { size: 3 MiB }", "main-memory: { size: 256 MiB }"),
    ] {
        replace(&fixture, from, to);
    }
    let mut run = fixture.tierfeed(&["run", "--launch", "once", "--run-dir"]);
    run.arg(fixture.run_dir()).arg(fixture.job()).arg("--");
    run.arg(example("lock_step")).args(["20000"]);
    assert_ended(&run.output().unwrap(), 0);
    let report = fixture.report();
    let generations = report["generations"].as_array().unwrap();
    assert_eq!(generations[0]["staged_batches"], 4, "{generations:#?}");
    let deeper = &generations[1];
    assert!(deeper["staged_batches"].as_u64() > Some(5), "{generations:#?}");
    assert!(!deeper["applied_epoch"].is_null(), "{generations:#?}");
    let reason = deeper["reason"].as_str().unwrap();
    assert!(reason.starts_with("a step of 2"), "{reason}");
    assert!(reason.contains("staged batches instead of 4"), "{reason}");
    let replayed = json(&fixture, &REPLAY);
    assert_eq!(replayed["equal"], true, "{replayed:#}");
    assert_eq!(replayed["generations"], report["generations"]);
}
