//! Two sockets and a memory node without CPUs: which memory a job gets without naming it, where batches are
//! staged, and where RAM disks and scratch lie.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::PathBuf,
};

use nix::unistd::Pid;
use serde_json::{Value, json};
use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Policy, affinity, file_placement};

use crate::{
    fixture::{Fixture, Running, assert_ended, eventually, trainer},
    machine::{Topology, pages_by_node},
    training::{assert_right, command, tier},
};

const MIB: u64 = 1 << 20;

fn fixture(tiers: &str) -> Fixture {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let (before, _) = text.split_once("tiers:").unwrap();
    fs::write(fixture.job(), format!("{}{tiers}", before.replace("256 KiB", "1 MiB"))).unwrap();
    fixture
}

fn names(report: &Value) -> Vec<&str> {
    report["tiers"].as_array().unwrap().iter().map(|tier| tier["name"].as_str().unwrap()).collect()
}

fn budget(report: &Value, name: &str) -> u64 {
    tier(report, name)["budget_bytes"].as_u64().unwrap()
}

fn total(node: u32) -> u64 {
    meminfo(node, "MemTotal:")
}

fn meminfo(node: u32, key: &str) -> u64 {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.contains(key)).unwrap();
    line.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_job_without_tiers_uses_main_memory_and_the_far_node() {
    let far = Topology::here().far();
    let fixture = fixture("");
    assert_ended(&command(&fixture).output().unwrap(), 0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    assert_eq!(names(&report), ["main-memory", "cxl-memory"]);
    assert_eq!(tier(&report, "cxl-memory")["emulated"], false);
    let (main, cxl) = (budget(&report, "main-memory"), budget(&report, "cxl-memory"));
    assert!(main > 0 && main <= (total(0) + total(1)) / 5, "{report:#}");
    assert!(cxl > 0 && cxl <= total(far) / 5, "{report:#}");
}

/// Runs the job until this host is calibrated. A device of which every access is trapped takes many times as long
/// as a start waits, so that the figures are those of a later run.
fn calibrate(fixture: &Fixture) {
    let wait =
        "until grep -qs '\"cxl-memory\"' state/tierfeed/calibration-*.json; do sleep 0.2; done";
    let mut command = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "calibrated", "--"]);
    command.args(["sh", "-c", wait]).env("XDG_STATE_HOME", fixture.path("state"));
    assert_ended(&command.output().unwrap(), 0);
}

#[test]
fn a_job_without_tiers_uses_memory_and_ram_disk_in_the_order_of_their_figures() {
    let fixture = fixture("tiers: { scratch: {} }\n");
    let text = fs::read_to_string(fixture.job()).unwrap();
    // Slower than a trapped device, which would be left out otherwise.
    fs::write(fixture.job(), text.replace("bandwidth: 60 MB/s", "bandwidth: 2 MB/s")).unwrap();
    calibrate(&fixture);
    let mut run = command(&fixture);
    assert_ended(&run.env("XDG_STATE_HOME", fixture.path("state")).output().unwrap(), 0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    let tiers = report["tiers"].as_array().unwrap();
    assert_eq!(tiers[0]["name"], "main-memory", "{report:#}");
    let is_used = |tier: &Value| tier["use"] == "retention-and-look-ahead";
    assert!(tiers.len() == 3 && tiers.iter().all(is_used), "{report:#}");
    let is_measured = |name| {
        let from = tier(&report, name)["figures_from"].as_str().unwrap().to_owned();
        from.starts_with("calibration ")
    };
    assert!(is_measured("main-memory") && is_measured("cxl-memory"), "{report:#}");
    // A RAM disk on a trapped device may not be measured in time: then it has the figures of the device.
    assert!(is_measured("scratch"), "{report:#}");
    let rate = |at: usize| tiers[at]["bandwidth_bytes_per_s"].as_f64().unwrap();
    assert!(rate(1) * 1.3 >= rate(2), "{report:#}");
}

#[test]
fn a_ram_disk_without_a_path_lies_on_the_far_node() {
    let far = Topology::here().far();
    let fixture = fixture("tiers: { main-memory: { size: 4 MiB }, scratch: { size: 2 MiB } }\n");
    let mut command = fixture.run(200_000);
    let mut run = Running::start(&mut command);
    let mut chunks = Vec::new();
    eventually("the RAM disk holds a chunk", || {
        let directory = fixture.run_dir().join("scratch");
        chunks = run.agent().map(|agent| chunks_of(agent, &directory)).unwrap_or_default();
        !chunks.is_empty()
    });
    for chunk in &chunks {
        let found = |node: u32| {
            let wanted = (Locality::Numa(NumaNode(node)), Policy::Applied);
            file_placement(chunk, Bytes(0), Bytes::mib(1), wanted)
        };
        found(far).unwrap();
        found(0).unwrap_err();
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.starts_with("tierfeed-scratch ")).unwrap();
    assert!(mount.contains(&format!("mpol=prefer=static:{far}")), "{mount}");
    run.ends_with(0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    assert!(tier(&report, "scratch")["written_bytes"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["tier_hits"]["scratch"].as_u64().unwrap() > 0, "{report:#}");
}

/// The files that a process has open in a directory, without a name there.
fn chunks_of(process: Pid, directory: &std::path::Path) -> Vec<File> {
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    let paths = open.flatten().map(|it| it.path());
    let is_chunk = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|file| {
            file.starts_with(directory) && file.to_string_lossy().contains("(deleted)")
        })
    };
    let opened = paths
        .filter(is_chunk)
        .filter_map(|path| File::options().read(true).write(true).open(path).ok());
    // The first slice of a chunk has memory from the start.
    opened.filter(|file| file.metadata().is_ok_and(|it| it.len() == MIB)).collect()
}

#[test]
fn with_a_ram_disk_nothing_of_the_far_node_is_claimed_twice() {
    let far = Topology::here().far();
    let fixture = fixture("tiers: { scratch: {} }\n");
    assert_ended(&command(&fixture).output().unwrap(), 0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    let mut names = names(&report);
    names.sort_unstable();
    assert_eq!(names, ["cxl-memory", "main-memory", "scratch"]);
    let both = budget(&report, "cxl-memory") + budget(&report, "scratch");
    assert!(budget(&report, "scratch") > 0 && both <= total(far) * 2 / 5, "{report:#}");
}

#[test]
fn a_neighbour_that_plays_cxl_memory_is_no_main_memory() {
    let fixture = fixture(
        "tiers: { main-memory: { reserve: 20 % }, cxl-memory: { numa_nodes: [1], reserve: 20 % } }\n",
    );
    assert_ended(&command(&fixture).output().unwrap(), 0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    let (main, cxl) = (budget(&report, "main-memory"), budget(&report, "cxl-memory"));
    assert!(main <= total(0) / 5, "{main} of {}: {report:#}", total(0));
    assert!(cxl > 0 && cxl <= total(1) / 5, "{report:#}");
    let ranks = report["staging"]["ranks"].as_array().unwrap();
    assert!(
        ranks.iter().all(|rank| rank["numa_node"] == 0 && rank["on_node_percent"] == 100),
        "{report:#}"
    );
    let maps = fs::read_to_string(fixture.path("maps-0")).unwrap();
    let staging = pages_by_node(&maps, "tierfeed-staging-");
    // That of a rank is closed when its trainer has ended.
    assert!(staging.iter().all(only_on(0)), "{staging:?}");
    let chunks = pages_by_node(&maps, "tierfeed-main-memory-");
    assert!(!chunks.is_empty() && chunks.iter().all(only_on(0)), "{chunks:?}");
}

fn only_on(node: u32) -> impl Fn(&BTreeMap<u32, u64>) -> bool {
    move |pages| pages.keys().all(|it| *it == node)
}

#[test]
fn the_tier_of_a_neighbour_lies_there() {
    let fixture = fixture(
        "tiers: { main-memory: { size: 4 MiB }, cxl-memory: { numa_nodes: [1], size: 2 MiB } }\n",
    );
    assert_ended(&command(&fixture).output().unwrap(), 0);
    assert_right(&fixture, &fixture.log());
    let maps = fs::read_to_string(fixture.path("maps-0")).unwrap();
    let chunks = pages_by_node(&maps, "tierfeed-cxl-memory-");
    assert!(!chunks.is_empty() && chunks.iter().all(only_on(1)), "{chunks:?}");
    assert!(fixture.report()["tier_hits"]["cxl-memory"].as_u64().unwrap() > 0);
}

#[test]
fn staging_moves_to_the_socket_of_its_trainer() {
    let fixture = fixture("tiers: { main-memory: { size: 6 MiB } }\n");
    // The ranks are spread as 0 and 1, and their trainers run the other way round.
    let script = "taskset -c $((1 - RANK)) \"$0\" \"$@\"";
    let mut command = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    command.args(["sh", "-c", script]).arg(trainer()).arg(fixture.path("log"));
    assert_ended(&command.output().unwrap(), 0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    let rank = |rank: u32| {
        json!({ "rank": rank, "numa_node": 1 - rank, "because": "cpus-of-trainer",
                "on_node_percent": 100 })
    };
    assert_eq!(report["staging"]["ranks"], json!([rank(0), rank(1)]));
}

#[test]
fn a_run_that_is_bound_to_a_socket_has_the_other_one_as_a_tier() {
    let fixture = fixture("");
    let bound = std::thread::spawn(move || {
        affinity::pin_current_thread(&[1]).unwrap();
        (command(&fixture).output().unwrap(), fixture)
    });
    let (output, fixture) = bound.join().unwrap();
    assert_ended(&output, 0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    assert_eq!(names(&report), ["main-memory", "cxl-memory", "cxl-memory"]);
    assert!(budget(&report, "main-memory") <= total(1) / 5, "{report:#}");
    let ranks = report["staging"]["ranks"].as_array().unwrap();
    assert!(
        ranks.iter().all(|rank| rank["numa_node"] == 1 && rank["on_node_percent"] == 100),
        "{report:#}"
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("that no process of this job may run on"), "{errors}");
}

#[test]
fn scratch_for_the_job_lies_on_the_node_that_is_named() {
    let fixture = fixture(
        "tiers: { main-memory: { size: 4 MiB }, scratch: { numa_node: 1, size: 10 MiB } }\n\
         job_scratch: { size: 9 MiB }\n",
    );
    let before = meminfo(1, "Shmem:");
    let script = "dd if=/dev/zero of=\"$TIERFEED_SCRATCH/$RANK\" bs=1M count=4 2>/dev/null && \
                  grep Shmem: /sys/devices/system/node/node1/meminfo >shmem-$RANK && \
                  grep tierfeed /proc/mounts >mounts && exec \"$0\" \"$@\"";
    let mut command = fixture.tierfeed(&["run", "job.yaml", "--run-dir", "run", "--"]);
    command.args(["sh", "-c", script]).arg(trainer()).arg(fixture.path("log"));
    assert_ended(&command.output().unwrap(), 0);
    assert_right(&fixture, &fixture.log());
    let report = fixture.report();
    let scratch = &report["job_scratch"];
    assert_eq!((&scratch["numa_node"], &scratch["is_on_node"]), (&1.into(), &true.into()));
    assert_eq!(scratch["held_by"], "mount");
    let shmem = fs::read_to_string(fixture.path("shmem-0")).unwrap();
    let shmem: u64 = shmem.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap() << 10;
    // The kernel counts pages in batches.
    assert!(shmem >= before + 3 * MIB, "{before} before, {shmem} with the checkpoint");
    let mounts = fs::read_to_string(fixture.path("mounts")).unwrap();
    assert_eq!(mounts.matches("mpol=prefer=static:1").count(), 2, "{mounts}");
}
