//! `tierfeed analyze` and `plan` of a job whose dataset is not here, and of scripts.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

const JOB: &str = "\
name: small
dataset:
  source: /nowhere/train
  format: tfrecord
  emulate: { bandwidth: 100 MB/s }
  described: { objects: 20, samples_per_object: 100, sample_bytes: 100 kB, sample_bytes_stdev: 40 kB }
order: { shuffle: torch-distributed, seed: 3, epochs: 4 }
batch_size: 20
world: { nodes: 1, ranks_per_node: 2 }
step_time: 30 ms
chunk: 1 MiB
policy: fifo
tiers:
  main-memory: { size: 64 MiB }
";

fn tierfeed(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierfeed"));
    // A report of this host's tiers would change the figures.
    command.current_dir(folder).env("XDG_STATE_HOME", folder).args(arguments);
    command.output().unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = tierfeed(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.yaml"), JOB).unwrap();
    folder
}

#[test]
fn a_job_is_analysed_before_its_data_is_there() {
    let folder = folder();
    let found = json(folder.path(), &["analyze", "job.yaml", "--json"]);
    assert_eq!(found["dataset_described"], true);
    assert_eq!(found["demand"]["samples"], 2_000);
    assert_eq!(found["verdict"]["bound_by"], "cold-store");
    assert_eq!(found["analysis"]["shards"]["objects"], 20);
    let changes: Vec<_> = found["advice"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["change"].as_str().unwrap())
        .collect();
    assert_eq!(changes, ["cold store rate", "tiers.main-memory cache", "policy"]);
    for advice in found["advice"].as_array().unwrap() {
        let seconds = |key: &str| advice[key].as_f64().unwrap();
        assert!(seconds("stall_s_after") < seconds("stall_s_before"), "{advice}");
    }
    let text = tierfeed(folder.path(), &["analyze", "job.yaml"]).stdout;
    let text = String::from_utf8(text).unwrap();
    for part in ["verdict ", "advice ", "shards ", "the dataset is described, not here"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn people_read_the_verdict_first_and_then_the_advice() {
    let folder = folder();
    let text = String::from_utf8(tierfeed(folder.path(), &["analyze", "job.yaml"]).stdout).unwrap();
    let heads: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(heads[..4], ["verdict", "advice", "advice", "advice"], "{text}");
    assert!(text.starts_with("verdict             stalls for "), "{text}");
}

/// The closed forms and the simulator are two ways to the same figures: they differ by what the first
/// batches wait and by the tails of uneven samples.
#[test]
fn the_verdict_agrees_with_the_simulation() {
    let folder = folder();
    let analysis = json(folder.path(), &["analyze", "job.yaml", "--json"]);
    let plan = ["plan", "job.yaml", "--simulate", "--json", "--policy", "gap,fifo,none"];
    let simulated = json(folder.path(), &plan);
    let outcomes = analysis["verdict"]["policies"].as_array().unwrap();
    for simulation in simulated.as_array().unwrap() {
        let policy = &simulation["policy"];
        let closed = outcomes.iter().find(|it| it["policy"] == *policy).unwrap();
        let epoch = &simulation["epochs"][2];
        for key in ["hit_ratio", "stall_s"] {
            let (closed, simulated) = (closed[key].as_f64().unwrap(), epoch[key].as_f64().unwrap());
            assert!((closed - simulated).abs() < 0.03, "{policy} {key}: {closed}, {simulated}");
        }
    }
}

#[test]
fn a_described_dataset_is_not_trained_on() {
    let folder = folder();
    let output = tierfeed(folder.path(), &["run", "job.yaml", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("dataset.described stands for a dataset that is not here"), "{said}");
}

#[test]
fn an_earlier_run_tells_how_long_a_step_takes() {
    let folder = folder();
    let report = folder.path().join("report.json");
    let text = "{\"job\": \"small\", \"steps\": 100, \"wall_s\": 6.0, \"stall_s\": 1.0, \
                \"batch_wait_s\": {\"p50\": 0.0, \"p99\": 0.1, \"max\": 0.2}}";
    fs::write(&report, text).unwrap();
    let arguments = ["analyze", "job.yaml", "--json", "--observed", "report.json"];
    let found = json(folder.path(), &arguments);
    assert_eq!(found["demand"]["step_time_ns"], 100_000_000);
    assert_eq!(found["observed"]["stall_s"], 1.0);
    fs::write(&report, text.replace("small", "large")).unwrap();
    let refused = tierfeed(folder.path(), &arguments);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("report.json: the report of the job `large`, not of `small`"), "{said}");
}

#[test]
fn the_newest_report_of_the_job_tells_how_long_a_step_takes_where_nothing_else_does() {
    let folder = folder();
    let job = JOB.replace("step_time: 30 ms\n", "");
    fs::write(folder.path().join("job.yaml"), job).unwrap();
    let output = tierfeed(folder.path(), &["analyze", "job.yaml"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("unknown without the time of a step: run an epoch"), "{said}");
    assert_eq!(said.matches("unknown").count(), 1, "said once: {said}");
    for (run, name) in [("small-1", "small"), ("other-2", "other")] {
        let run = folder.path().join(".tierfeed/runs").join(run);
        fs::create_dir_all(&run).unwrap();
        let report = format!(
            "{{\"job\": \"{name}\", \"steps\": 100, \"wall_s\": 6.0, \"stall_s\": 1.0, \
             \"batch_wait_s\": {{\"p50\": 0.0, \"p99\": 0.1, \"max\": 0.2}}}}"
        );
        fs::write(run.join("report.json"), report).unwrap();
    }
    let step_time = |arguments: &[&str]| {
        let found = json(folder.path(), &[&["analyze", "job.yaml", "--json"], arguments].concat());
        found["demand"]["step_time_ns"].as_u64().unwrap()
    };
    assert_eq!(step_time(&[]), 100_000_000);
    assert_eq!(step_time(&["--step-time", "5 ms"]), 5_000_000);
    let report = ".tierfeed/runs/small-1/report.json";
    let plan = ["plan", "job.yaml", "--simulate", "--observed", report];
    let output = tierfeed(folder.path(), &plan);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        output.status.success() && said.contains("observed: 100 ms between two batches"),
        "{said}"
    );
}

/// No machine has a petabyte free beside its tiers.
#[test]
fn memory_that_the_job_needs_itself_is_no_cache() {
    let folder = folder();
    let kept = || {
        let found = json(folder.path(), &["analyze", "job.yaml", "--json"]);
        let missing = found["analysis"]["memory"]["missing_bytes"].as_u64().unwrap();
        (missing > 0, found["verdict"]["tiers"][0]["cached_bytes"].as_u64().unwrap() > 0)
    };
    assert_eq!(kept(), (false, true));
    let model = "model: { parameters: 1e14, optimizer: adam }\n";
    fs::write(folder.path().join("job.yaml"), format!("{JOB}{model}")).unwrap();
    assert_eq!(kept(), (true, false));
}

#[test]
fn a_script_is_analysed_and_compared_with_a_job() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/tests/script_analysis");
    let output = tierfeed(Path::new(scripts), &["analyze", "--script", "imagenet.py"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = fs::read_to_string(Path::new(scripts).join("imagenet.txt")).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), table);

    let folder = folder();
    let script = format!("{scripts}/imagenet.py");
    let found = json(folder.path(), &["analyze", "job.yaml", "--script", &script, "--json"]);
    let keys: Vec<_> = found["contradictions"].as_array().unwrap().iter().collect();
    assert!(keys.iter().any(|it| it["key"] == "batch_size" && it["job"] == "20"), "{keys:?}");

    let missing = tierfeed(folder.path(), &["analyze", "--script", "nowhere.py"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nowhere.py"));
}
