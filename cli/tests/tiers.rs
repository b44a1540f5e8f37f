//! The commands of `tierfeed tiers` on a tree of a machine that is not this one: nothing is measured.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// A machine with two sockets and a memory node behind them.
fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n");
    write("proc/self/mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda1 rw\n");
    write("proc/sys/kernel/hostname", "elsewhere\n");
    write("sys/devices/system/node/online", "0-2\n");
    for (node, cpus) in [(0, "0-3"), (1, "4-7"), (2, "")] {
        let directory = format!("sys/devices/system/node/node{node}");
        write(&format!("{directory}/cpulist"), &format!("{cpus}\n"));
        write(&format!("{directory}/distance"), "10 20 30\n");
        let memory = format!("Node {node} MemTotal: 4096 kB\nNode {node} MemFree: 2048 kB\n");
        write(&format!("{directory}/meminfo"), &memory);
    }
    // The firmware rates the node without CPUs: it is memory, and no accelerator's.
    for (rating, value) in [("read_latency", "300\n"), ("read_bandwidth", "20000\n")] {
        write(&format!("sys/devices/system/node/node2/access0/initiators/{rating}"), value);
    }
    root
}

fn tiers(arguments: &[&str], report: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierfeed"));
    command.arg("tiers").args(arguments).env("NO_COLOR", "1");
    let option = if arguments[0] == "probe" { "--output" } else { "--report" };
    command.arg(option).arg(report).output().unwrap()
}

fn probe(machine: &Path, report: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["probe", "--quick", "--sysroot", machine.to_str().unwrap()];
    arguments.extend(more);
    tiers(&arguments, report)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_probe_prints_one_document_and_keeps_it() {
    let (machine, folder) = (machine(), tempfile::tempdir().unwrap());
    let report = folder.path().join("new/tiers.json");
    let output = probe(machine.path(), &report, &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let printed = json(&output);
    assert_eq!(
        (&printed["host"], &printed["tiers"][1]["numa_nodes"]),
        (&"elsewhere".into(), &[2].into())
    );
    assert_eq!(json(&tiers(&["show", "--json"], &report)), printed);
    let table = String::from_utf8(tiers(&["show"], &report).stdout).unwrap();
    assert!(table.starts_with("tiers of elsewhere, fastest first\n"), "{table}");
    assert!(table.contains("not measured") && !table.contains('\x1b'), "{table}");
}

#[test]
fn nodes_that_a_job_names_make_the_tier_that_it_names() {
    let (machine, folder) = (machine(), tempfile::tempdir().unwrap());
    let job = folder.path().join("job.yaml");
    let text = "name: x\ndataset: { source: ., format: image-folder }\n\
                order: { shuffle: sequential, epochs: 1 }\nbatch_size: 1\n\
                tiers:\n  main-memory: { size: 1 GiB }\n\
                \x20 cxl-memory: { numa_nodes: [1], size: 1 GiB }\n";
    fs::write(&job, text).unwrap();
    let report = folder.path().join("tiers.json");
    let output = probe(machine.path(), &report, &["--json", "--config", job.to_str().unwrap()]);
    let printed = json(&output);
    let tiers = printed["tiers"].as_array().unwrap();
    let tier = |name: &str| tiers.iter().find(|tier| tier["name"] == name).unwrap();
    let named = tier("cxl-memory");
    assert_eq!((&named["numa_nodes"], &named["source"]), (&[1].into(), &"config".into()));
    assert_eq!(tier("cxl-memory-2")["numa_nodes"], Value::from([2]));
}

#[test]
fn wrong_input_is_exit_code_2_with_the_name_of_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("tiers.json");
    for (arguments, named) in [
        (&["show"][..], "tiers.json"),
        (&["probe", "--quick", "--scratch", "/no/such"][..], "/no/such"),
    ] {
        let output = tiers(arguments, &report);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn the_schema_is_printed_without_a_report() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierfeed"));
    let output = command.args(["tiers", "show", "--schema"]).output().unwrap();
    let schema = json(&output);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}
