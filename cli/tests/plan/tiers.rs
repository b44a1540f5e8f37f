//! The memory and the depth of a plan.

use serde_json::Value;

use crate::{JOB, command, folder, json, refused, text};

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
    // What the process itself takes counts, and is not the same each time.
    assert!(planned(&by_cpu).abs_diff(limited) <= 2, "as much");
    let too_large = folder(&JOB.replace(main, "  main-memory: { size: 400 MiB }\n"));
    let output = command(too_large.path(), &[]).env("SLURM_MEM_PER_NODE", "300").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("400 MiB"), "{said}");
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
