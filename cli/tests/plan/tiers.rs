//! Other tiers, and how little of them is enough.

use serde_json::Value;

use crate::{JOB, command, folder, json, refused, text};

fn stall(case: &Value) -> f64 {
    case["verdict"]["stall_s"].as_f64().unwrap()
}

#[test]
fn what_if_compares_the_node_with_a_changed_one() {
    let folder = folder(JOB);
    let arguments = ["--what-if", "cxl=none,storage=100MiB", "--simulate", "--policy", "gap,none"];
    let found = json(folder.path(), &arguments);
    let (before, after) = (&found["as_it_is"], &found["what_if"]);
    let names = |case: &Value| {
        let tiers = case["tiers"].as_array().unwrap().iter();
        tiers.map(|tier| tier["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(before), ["main-memory", "cxl-memory"]);
    assert_eq!(names(after), ["main-memory", "storage"]);
    assert_eq!(after["tiers"][1]["cache_bytes"], 100 << 20);
    let cold = |case: &Value, at: usize| {
        case["simulated"][at]["total"]["cold_read_bytes"].as_u64().unwrap()
    };
    assert!(cold(after, 0) < cold(before, 0), "more is kept");
    assert_eq!(cold(after, 1), cold(before, 1), "by a policy that keeps something");
    let table = text(folder.path(), &arguments);
    for part in ["as it is", "what if", "32 MiB", "none", "gap simulated: cold", "times the bound"]
    {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    assert!(table.contains("nothing is known of the speed of storage"), "{table}");
}

#[test]
fn a_job_under_slurm_plans_with_the_memory_that_slurm_gave_it() {
    let main = "  main-memory: { size: 64 MiB }\n";
    let share = folder(&JOB.replace(main, "  main-memory: { reserve: 50 % }\n"));
    let planned = |variables: &[(&str, &str)]| {
        let mut command = command(share.path(), &["--json"]);
        command.env_remove("SLURM_MEM_PER_NODE").envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        found["tiers"][0]["cache_bytes"].as_u64().unwrap() >> 20
    };
    assert!(planned(&[("SLURM_MEM_PER_NODE", "0")]) > 150, "all memory of the host");
    let limited = planned(&[("SLURM_MEM_PER_NODE", "300")]);
    assert!((1..=150).contains(&limited), "{limited} MiB of half of 300");
    let by_cpu = [("SLURM_MEM_PER_CPU", "150"), ("SLURM_CPUS_ON_NODE", "2")];
    assert_eq!(planned(&by_cpu).abs_diff(limited), 0);
    let too_large = folder(&JOB.replace(main, "  main-memory: { size: 400 MiB }\n"));
    let output = command(too_large.path(), &[]).env("SLURM_MEM_PER_NODE", "300").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("400 MiB"), "{said}");
}

#[test]
fn a_change_that_is_none_is_named_with_what_would_be_right() {
    let folder = folder(JOB);
    for (change, parts) in [
        ("cxl=lots", ["`lots` in `cxl=lots`", "a number with a unit, or none"]),
        ("cxl=1GiB,nvme=1GiB", ["`nvme`", "scratch, storage"]),
        ("scratch", ["`scratch`", "TIER=SIZE"]),
        ("main=1MiB", ["main-memory=1 MiB", "at least"]),
        ("cxl=1kB", ["cxl-memory=1000 B", "no chunk of 1 MiB"]),
        ("cxl=none,cxl=none", ["cxl-memory is changed twice", "once"]),
    ] {
        let said = refused(folder.path(), &["--what-if", change], 2);
        assert!(parts.iter().all(|part| said.contains(part)), "{change}: {said}");
    }
}

#[test]
fn with_the_least_that_is_named_the_job_does_not_stall_and_with_less_it_does() {
    let folder = folder(JOB);
    let found = json(folder.path(), &["--minimum=cxl"]);
    let [tier] = found["tiers"].as_array().unwrap().as_slice() else { panic!("{found}") };
    assert_eq!(tier["name"], "cxl-memory");
    let least = tier["least_size_bytes"].as_u64().unwrap();
    let stalled = |bytes: u64| {
        let change = format!("cxl={bytes}B");
        stall(&json(folder.path(), &["--what-if", &change])["what_if"])
    };
    assert!(stalled(least).abs() < 1e-9);
    assert!(stalled(least - (1 << 20)) > 0.0);
}

#[test]
fn the_least_is_listed_for_each_tier_and_can_be_simulated() {
    let folder = folder(JOB);
    let table = text(folder.path(), &["--minimum", "--simulate"]);
    for part in ["main-memory", "cxl-memory", "least cache", "of stall after the first epoch"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
}

#[test]
fn a_job_that_no_memory_helps_is_refused_with_the_reason() {
    let folder = folder(JOB);
    let said = refused(folder.path(), &["--minimum=scratch"], 2);
    assert!(said.contains("it has main-memory, cxl-memory"), "{said}");
    let said = refused(folder.path(), &["--minimum=disk"], 2);
    assert!(said.contains("main (main-memory), cxl (cxl-memory), scratch, storage"), "{said}");
    // Reading 128 MB from this tier takes longer than computing.
    let slow = JOB.replace("bandwidth: 20 GB/s", "bandwidth: 20 MB/s");
    let folder = crate::folder(&slow.replace("60 MB/s", "20 MB/s"));
    let said = refused(folder.path(), &["--minimum=cxl"], 2);
    assert!(said.contains("no cache in cxl-memory keeps the trainers from waiting"), "{said}");
    let silent = crate::folder(&JOB.replace("step_time: 30 ms\n", ""));
    let said = refused(silent.path(), &["--minimum"], 2);
    assert!(said.contains("give step_time in the job file, or --step-time"), "{said}");
    assert!(text(silent.path(), &["--minimum", "--step-time", "30 ms"]).contains("least cache"));
}

#[test]
fn a_time_of_transforms_is_refused_for_a_job_without_a_transform() {
    let folder = folder(JOB);
    let said = refused(folder.path(), &["--transform-time", "5 ms"], 2);
    assert!(said.contains("--transform-time is for a job with a transform"), "{said}");
}

#[test]
fn the_schedule_says_how_deep_to_stage_or_why_no_depth_will_do() {
    let folder = folder(JOB);
    let schedule = json(folder.path(), &[]);
    assert_eq!(schedule["least_staged_batches"], Value::Null, "60 MB/s for 133 MB/s");
    let said = text(folder.path(), &[]);
    assert!(said.contains("keep each thread busy for"), "{said}");
    let least = |latency: &str| {
        let source = format!("{{ latency: {latency}, bandwidth: 1 GB/s }}");
        let folder = self::folder(&JOB.replace("{ bandwidth: 60 MB/s }", &source));
        json(folder.path(), &[])["least_staged_batches"].as_u64().unwrap()
    };
    let (least, deeper) = (least("2 ms"), least("3 ms"));
    assert!(2 <= least && least <= deeper, "{least} and {deeper}");
}
