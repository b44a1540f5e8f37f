//! `tierfeed plan --simulate` beside real runs of the same jobs, policy by policy and epoch by epoch.

#![expect(clippy::cast_precision_loss, reason = "bytes of a small dataset")]

use std::{collections::BTreeMap, fs, process::Command};

use serde_json::Value;
use tierfeed_core::retention::policy::Kind;

use crate::fixture::{EPOCHS, Fixture, assert_ended, example, trainer};

/// How far cold bytes of a run may lie from the prediction where ranks do not wait for each other and age
/// decides: a rank that other programs hold up for some steps changes what is oldest.
const FREE_DRIFT_MAX: f64 = 0.08;

/// The same for policies whose choice hardly depends on the turns of ranks.
const FREE_DRIFT_MAX_GAP: f64 = 0.01;

/// The same where samples are fetched ahead: where they wait depends on how fast they come, and with that which
/// of them still fit into the rest of a chunk.
const AHEAD_DRIFT_MAX: f64 = 0.02;

/// A dataset of 400 samples, and a job of which half fits into tiers: a sample is less than a hundredth
/// of what an epoch reads cold.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    for number in 100..400_u32 {
        let class = fixture.path("data").join(format!("class{}", number % 4));
        let len = 5_000 + (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 55_000;
        let bytes = vec![number.to_le_bytes()[0]; usize::try_from(len).unwrap()];
        fs::write(class.join(format!("{number:03}.jpg")), bytes).unwrap();
    }
    fixture
}

/// What is read ahead depends on how fast it comes, so these jobs do not look ahead.
fn write_job(fixture: &Fixture, policy: Kind) {
    let keys = format!("policy: {policy}\nstep_time: 5 ms\nprefetch: {{ look_ahead: off }}\n");
    fixture.write_job(&keys);
    let text = fs::read_to_string(fixture.job()).unwrap();
    // Main memory only stages: as a cache it would be one more tier, which is filled by the turns of ranks.
    let text = text
        .replace("main-memory: { size: 3 MiB }", "main-memory: { size: 2 MiB }")
        .replace("size: 1280 KiB,", "size: 4 MiB,")
        .replace("256 KiB }", "1 MiB }");
    fs::write(fixture.job(), text).unwrap();
}

fn cold_bytes(of: &Value) -> BTreeMap<u64, u64> {
    let number = |epoch: &Value, key: &str| epoch[key].as_u64().unwrap();
    let epochs = of["epochs"].as_array().unwrap().iter();
    epochs.map(|it| (number(it, "epoch"), number(it, "cold_read_bytes"))).collect()
}

fn predicted(fixture: &Fixture, policy: Kind) -> BTreeMap<u64, u64> {
    let mut plan = fixture.tierfeed(&["plan", "--simulate", "--json"]);
    let output = plan.arg(fixture.job()).output().unwrap();
    assert_ended(&output, 0);
    let predicted: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(predicted["policy"], policy.name());
    let epochs = cold_bytes(&predicted);
    assert_eq!(epochs.len(), EPOCHS as usize, "{policy}");
    assert!(epochs.values().all(|cold| *cold > 0), "a dataset that fits shows nothing: {epochs:?}");
    epochs
}

/// The cold bytes by epoch of a run in which one process takes the batches of all ranks in turn.
fn read_in_lock_step(fixture: &Fixture, policy: Kind) -> BTreeMap<u64, u64> {
    let run_dir = fixture.path(policy.name());
    let mut run = fixture.tierfeed(&["run", "--launch", "once", "--run-dir"]);
    run.arg(&run_dir).arg(fixture.job()).arg("--");
    run.arg(example("lock_step")).arg("5000");
    assert_ended(&run.output().unwrap(), 0);
    let text = fs::read_to_string(run_dir.join("report.json")).unwrap();
    cold_bytes(&serde_json::from_str(&text).unwrap())
}

#[test]
fn the_simulator_predicts_every_policy_to_the_byte_where_ranks_are_in_lock_step() {
    let fixture = fixture();
    for policy in Kind::ALL {
        write_job(&fixture, policy);
        let predicted = predicted(&fixture, policy);
        // Where age decides, a process that the kernel stops between two ranks may change their turns.
        let turns = match policy {
            Kind::DeepMemory | Kind::Fifo | Kind::Lru | Kind::PageCache => 3,
            _ => 1,
        };
        let runs: Vec<_> = (0..turns)
            .map(|_| read_in_lock_step(&fixture, policy))
            .scan(false, |is_equal, read| {
                (!std::mem::replace(is_equal, read == predicted)).then_some(read)
            })
            .collect();
        assert_eq!(runs.last(), Some(&predicted), "{policy}: {runs:?}");
    }
}

/// 150 samples more, which are read after each second epoch.
fn write_validation(fixture: &Fixture) {
    let folder = fixture.path("val").join("class0");
    fs::create_dir_all(&folder).unwrap();
    for number in 0..150_u32 {
        let len = 5_000 + (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 55_000;
        let bytes = vec![number.to_le_bytes()[0]; usize::try_from(len).unwrap()];
        fs::write(folder.join(format!("{number:03}.jpg")), bytes).unwrap();
    }
    let keys = "source: val, format: image-folder, batch_size: 7, every: 2";
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), format!("{text}datasets: {{ validation: {{ {keys} }} }}\n")).unwrap();
}

#[test]
fn the_simulator_predicts_a_job_with_a_validation_to_the_byte() {
    let fixture = fixture();
    for policy in [Kind::Gap, Kind::Belady, Kind::None] {
        write_job(&fixture, policy);
        let alone = predicted(&fixture, policy);
        write_validation(&fixture);
        let predicted = predicted(&fixture, policy);
        assert!(predicted[&1] > alone[&1], "{policy}: epoch 1 has a validation");
        assert_eq!(read_in_lock_step(&fixture, policy), predicted, "{policy}");
    }
}

/// A run whose ranks begin together, and then each go their own pace. The prediction lets them begin together:
/// one that begins 0.1 s after the other moves what `fifo` reads by 6 %, 0.2 s by 20 %.
fn run_from_one_start(fixture: &Fixture) -> Command {
    let both_are_there = "touch \"$0.$RANK\"; until [ -e \"$0.0\" ] && [ -e \"$0.1\" ]; do sleep 0.01; done; \
                          exec \"$@\"";
    let start = fixture.path("start");
    let mut run = fixture.tierfeed(&["run"]);
    run.arg(fixture.job()).arg("--run-dir").arg(fixture.run_dir());
    run.args(["--", "sh", "-c", both_are_there]).arg(&start);
    run.arg(trainer()).arg(fixture.path("log")).arg("5000");
    run
}

#[test]
fn ranks_that_do_not_wait_for_each_other_read_nearly_as_much_as_predicted() {
    let fixture = fixture();
    for policy in [Kind::Gap, Kind::None, Kind::Fifo, Kind::DeepMemory] {
        write_job(&fixture, policy);
        let predicted = predicted(&fixture, policy);
        assert_ended(&run_from_one_start(&fixture).output().unwrap(), 0);
        let measured = cold_bytes(&fixture.report());
        assert!(measured.keys().eq(predicted.keys()), "{policy}: {measured:?}, {predicted:?}");
        let off = drift(measured.values().sum(), predicted.values().sum());
        let off_max = match policy {
            Kind::Gap | Kind::None => FREE_DRIFT_MAX_GAP,
            _ => FREE_DRIFT_MAX,
        };
        assert!(off <= off_max, "{policy}: off by {off:.3}: {measured:?}, {predicted:?}");
        for file in ["log", "start.0", "start.1"] {
            fs::remove_file(fixture.path(file)).unwrap();
        }
    }
}

fn write_adjusted_job(fixture: &Fixture, policy: Kind, keys: &str) {
    write_job(fixture, policy);
    let text = fs::read_to_string(fixture.job()).unwrap();
    let text = match policy {
        // Its fetches are ahead of staging.
        Kind::Deli => text.replace("look_ahead: off", "look_ahead: auto"),
        // The cold store gives 60 MB/s, and a chunk still comes later from there.
        Kind::NoPfs => text.replace("9 GB/s", "55 MB/s"),
        _ => text,
    };
    fs::write(fixture.job(), format!("{text}{keys}\n")).unwrap();
}

#[test]
fn every_key_that_adjusts_a_policy_changes_the_run_as_it_changes_the_prediction() {
    let fixture = fixture();
    for (policy, keys) in [
        (Kind::DeepMemory, "deepmemory: { threshold: 40 % }"),
        (Kind::DeepMemory, "deepmemory: { iterations: 2 }"),
        (Kind::Lobster, "lobster: { reuse_distance: 14 steps }"),
        (Kind::Lobster, "lobster: { reuse_count: 1 }"),
        (Kind::LobsterLazy, "lobster: { reuse_count: 2 }"),
        (Kind::Deli, "deli: { fetch_size: 16, threshold: 8 }"),
        (Kind::Deli, "deli: { fetch_size: 40, threshold: 0 }"),
        (Kind::Deli, "deli: {}"),
        (Kind::NoPfs, "nopfs: { source: tier }"),
    ] {
        write_adjusted_job(&fixture, policy, "");
        let unadjusted = predicted(&fixture, policy);
        write_adjusted_job(&fixture, policy, keys);
        let predicted = predicted(&fixture, policy);
        assert_ne!(predicted, unadjusted, "{keys} changes nothing");
        let is_as_predicted = |read: &BTreeMap<u64, u64>| match policy {
            Kind::Deli => drift(read.values().sum(), predicted.values().sum()) <= AHEAD_DRIFT_MAX,
            _ => *read == predicted,
        };
        let runs: Vec<_> = (0..3)
            .map(|_| read_in_lock_step(&fixture, policy))
            .scan(false, |is_equal, read| {
                (!std::mem::replace(is_equal, is_as_predicted(&read))).then_some(read)
            })
            .collect();
        let is_right = runs.last().is_some_and(is_as_predicted);
        assert!(is_right, "{policy}, {keys}: {runs:?} instead of {predicted:?}");
    }
}

/// The relative distance of a run from a prediction, which must not be 0.
fn drift(measured: u64, predicted: u64) -> f64 {
    assert!(predicted > 0, "a dataset that fits shows nothing");
    measured.abs_diff(predicted) as f64 / predicted as f64
}
