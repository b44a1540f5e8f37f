//! `plan` and `analyze` for a machine that is not this one, by its probe report.

use std::{fs, os::unix::fs::symlink, path::Path, process::Output};

use serde_json::Value;

use crate::fixture::{Fixture, assert_ended};

/// Two EPYC 9224 and a module of 128 GB behind CXL.
const MACHINE: &str = include_str!("../../../resource-gatherer/fixtures/epyc-9224-cxl.tree");

/// Makes the files and links of a tree, as `resource-gatherer/fixtures/README.md` describes it.
fn plant(tree: &str, root: &Path) {
    let mut open: Vec<String> = Vec::new();
    for line in tree.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if let Some(part) = line.strip_prefix('|') {
            for path in &open {
                let path = root.join(path);
                let text = fs::read_to_string(&path).unwrap();
                fs::write(path, text + part.strip_prefix(' ').unwrap_or(part) + "\n").unwrap();
            }
            continue;
        }
        let (path, content) = line.split_once(" -> ").or_else(|| line.split_once(" =")).unwrap();
        open = expand(path);
        for path in open.iter().map(|path| root.join(path)) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("x ") {
                _ if line.contains(" -> ") => symlink(content, path).unwrap(),
                Some(digits) => {
                    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
                    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
                    fs::write(path, bytes).unwrap();
                }
                None if content.trim().is_empty() => fs::write(path, "").unwrap(),
                None => fs::write(path, format!("{}\n", content.trim())).unwrap(),
            }
        }
    }
}

/// `cpu{0-3,8}/x` is one path for each number.
fn expand(path: &str) -> Vec<String> {
    let Some((head, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (list, tail) = rest.split_once('}').unwrap();
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        from.parse::<u32>().unwrap()..=to.parse::<u32>().unwrap()
    };
    let numbers = list.split(',').flat_map(range);
    numbers.flat_map(|number| expand(&format!("{head}{number}{tail}"))).collect()
}

/// A job whose tiers no test machine has room for, and the report of a machine that has.
fn fixture() -> (Fixture, Value) {
    let fixture = Fixture::new();
    let root = fixture.path("epyc");
    plant(MACHINE, &root);
    let mut probe = fixture.tierfeed(&["tiers", "probe", "--quick", "--output", "epyc.json"]);
    assert_ended(&probe.arg("--sysroot").arg(root).output().unwrap(), 0);
    let text = fs::read_to_string(fixture.path("epyc.json")).unwrap();
    (fixture, serde_json::from_str(&text).unwrap())
}

fn write_job(fixture: &Fixture, tiers: &str, nodes: u32) {
    fixture.write_job("step_time: 5 ms\n");
    let text = fs::read_to_string(fixture.job()).unwrap();
    let (head, _) = text.split_once("chunk: 256 KiB").unwrap();
    let head = head.replace("nodes: 1", &format!("nodes: {nodes}"));
    fs::write(fixture.job(), format!("{head}step_time: 5 ms\ntiers:\n{tiers}")).unwrap();
}

const LARGE: &str = "  main-memory: { size: 50 GiB }\n  cxl-memory: { size: 40 GiB }\n";

fn command(fixture: &Fixture, arguments: &[&str]) -> Output {
    fixture.tierfeed(arguments).arg(fixture.job()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_job_that_this_host_has_no_room_for_is_planned_and_analysed_for_the_machine_of_a_report() {
    let (fixture, _) = fixture();
    write_job(&fixture, LARGE, 1);
    assert_ended(&command(&fixture, &["plan"]), 2);
    let planned = command(&fixture, &["plan", "--tiers", "epyc.json"]);
    assert_ended(&planned, 0);
    let table = text(&planned.stdout);
    assert!(table.starts_with("planned for host epyc, by probe report epyc.json of "), "{table}");
    assert!(table.contains("cxl-memory") && !table.contains("emulated"), "{table}");
    let simulated = command(&fixture, &["plan", "--simulate", "--json", "--tiers", "epyc.json"]);
    assert_ended(&simulated, 0);
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    assert_eq!(simulated["machine"]["host"], "epyc");
    assert_eq!(simulated["epochs"][1]["cold_read_bytes"], 0, "all fits there");
    assert_ended(&command(&fixture, &["analyze"]), 2);
    let analysed = command(&fixture, &["analyze", "--json", "--tiers", "epyc.json"]);
    assert_ended(&analysed, 0);
    let analysed: Value = serde_json::from_slice(&analysed.stdout).unwrap();
    assert_eq!(analysed["machine"], serde_json::json!({"host": "epyc", "report": "epyc.json"}));
}

#[test]
fn each_kind_of_nodes_has_its_own_report() {
    let (fixture, mut report) = fixture();
    report["host"] = "small".into();
    report["inventory"]["host"] = "small".into();
    report["inventory"]["memory"]["available_bytes"] = (1_u64 << 30).into();
    fs::write(fixture.path("small.json"), report.to_string()).unwrap();
    write_job(&fixture, LARGE, 3);
    let tiers = ["--tiers", "0-1=epyc.json", "--tiers", "2=small.json"];
    let of_node =
        |node: &str| command(&fixture, &[&["plan", "--node", node][..], &tiers[..]].concat());
    assert_ended(&of_node("1"), 0);
    assert!(text(&of_node("1").stdout).contains("host epyc as nodes 0-1, by"));
    let refused = of_node("2");
    assert_ended(&refused, 2);
    let message = text(&refused.stderr);
    assert!(message.contains("tier main-memory") && message.contains("job.yaml:"), "{message}");
    assert!(message.contains("planned for host small as nodes 2, by"), "{message}");
    let wrong: [(&[&str], &str); 4] = [
        (&["plan", "--node", "2", "--tiers", "0-1=epyc.json"], "add `--tiers 2=FILE`"),
        (&["plan", "--tiers", "0-3=epyc.json"], "the job has 3 nodes, numbered from 0 to 2"),
        (&["plan", "--tiers", "epyc.json", "--tiers", "0=small.json"], "both name node 0"),
        (&["plan", "--all-nodes", "--tiers", "0=epyc.json", "--tiers", "1=epyc.json"], "--node"),
    ];
    for (arguments, expected) in wrong {
        let output = command(&fixture, arguments);
        assert_ended(&output, 2);
        let message = text(&output.stderr);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn what_a_report_does_not_say_is_named_with_its_file_and_key() {
    let (fixture, mut report) = fixture();
    let storage = "  main-memory: { size: 1 GiB }\n  storage: { path: /nvme/cache, size: 9 TiB }\n";
    write_job(&fixture, storage, 1);
    let message = |file: &str| {
        let output = command(&fixture, &["plan", "--tiers", file]);
        assert_ended(&output, 2);
        text(&output.stderr)
    };
    let missing = message("epyc.json");
    assert!(missing.contains("epyc.json: no tier has the path /nvme/cache"), "{missing}");
    assert!(missing.contains("tierfeed tiers probe --storage /nvme/cache"), "{missing}");
    let mut tier = report["tiers"][0].clone();
    (tier["name"], tier["kind"]) = ("storage".into(), "storage".into());
    (tier["path"], tier["free_bytes"]) = ("/nvme/cache".into(), Value::Null);
    report["tiers"].as_array_mut().unwrap().push(tier);
    let last = report["tiers"].as_array().unwrap().len() - 1;
    fs::write(fixture.path("roomless.json"), report.to_string()).unwrap();
    let roomless = message("roomless.json");
    assert!(roomless.contains(&format!("roomless.json: tiers[{last}].free_bytes")), "{roomless}");
    report["tiers"][last]["free_bytes"] = (10_u64 << 40).into();
    fs::write(fixture.path("whole.json"), report.to_string()).unwrap();
    assert_ended(&command(&fixture, &["plan", "--tiers", "whole.json"]), 0);
    fs::write(fixture.path("broken.json"), "{\"format\": 2}").unwrap();
    let broken = message("broken.json");
    assert!(broken.contains("broken.json") && broken.contains("missing field"), "{broken}");
    assert!(message("nowhere.json").contains("nowhere.json"));
}

#[test]
fn one_epoch_is_told_alone() {
    let fixture = Fixture::new();
    fixture.write_job("step_time: 5 ms\nprefetch: { look_ahead: off }\n");
    let text_of = fs::read_to_string(fixture.job()).unwrap().replace("epochs: 3", "epochs: 30");
    fs::write(fixture.job(), text_of).unwrap();
    let json = |arguments: &[&str]| -> Value {
        let output = command(&fixture, arguments);
        assert_ended(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let whole = json(&["plan", "--simulate", "--json", "--policy", "none"]);
    let alone = json(&["plan", "--simulate", "--json", "--policy", "none", "--epoch", "29"]);
    assert_eq!((&alone["played_from"], &alone["carried_over"]), (&27.into(), &"equal".into()));
    assert_eq!(alone["epochs"].as_array().unwrap().len(), 1);
    for key in ["epoch", "demand_bytes", "cold_read_bytes", "minimal_cold_bytes", "steps"] {
        assert_eq!(alone["epochs"][0][key], whole["epochs"][29][key], "{key}");
    }
    let beyond = command(&fixture, &["plan", "--simulate", "--epoch", "30"]);
    assert_ended(&beyond, 2);
    let message = text(&beyond.stderr);
    assert!(message.contains("30 epochs, numbered from 0 to 29"), "{message}");
}
