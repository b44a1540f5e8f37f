//! A host without a probe report is calibrated at the start of its first run, and only then.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::fixture::{Fixture, assert_complete, assert_ended};

/// A job whose memory behind CXL is emulated with 50 MB/s, and whose cold store is hardly faster; its RAM disk is
/// what it is.
fn unknown_host() -> Fixture {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let fast = "{ latency: 1 us, bandwidth: 9 GB/s }";
    fs::write(fixture.job(), text.replace(fast, "{ latency: 1 us, bandwidth: 50 MB/s }")).unwrap();
    fixture
}

/// The report of a run that has the files of a state directory of its own.
fn ran(fixture: &Fixture) -> Value {
    let _ = fs::remove_file(fixture.path("log"));
    let mut run = fixture.run(0);
    run.env("XDG_STATE_HOME", fixture.path("state"));
    assert_ended(&run.output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves every batch");
    fixture.report()
}

/// What a run was told of main memory, the RAM disk and the cold store; `None` if the machine was too busy to
/// measure one of the tiers in time.
fn told(report: &Value) -> Option<[String; 3]> {
    let tiers = &report["tiers"];
    let (main, scratch) = (&tiers[0], &tiers[1]);
    assert_eq!((&main["name"], &scratch["name"]), (&json!("main-memory"), &json!("scratch")));
    let from = |it: &Value| it["figures_from"].as_str().unwrap().to_owned();
    let places = [main, scratch];
    if places.iter().any(|place| from(place).starts_with("none; not measured: ")) {
        return None;
    }
    for place in places {
        assert!(place["latency_ns"].as_u64() > Some(0), "{report:#}");
        assert!(place["bandwidth_bytes_per_s"].as_u64() > Some(0), "{report:#}");
    }
    let decision = scratch["decision"].as_str().unwrap();
    assert!(decision.ends_with("faster than cxl-memory"), "{decision}");
    Some([main, scratch, &report["cold_store"]].map(from))
}

fn figures_from(report: &Value) -> [String; 3] {
    told(report).unwrap_or_else(|| panic!("{report:#}"))
}

/// What a run on a host is told that calibrates anew; `prepare` makes it a host of which nothing else is known.
fn first_told(fixture: &Fixture, prepare: impl Fn()) -> [String; 3] {
    for _ in 0..20 {
        prepare();
        if let Some(told) = told(&ran(fixture)) {
            return told;
        }
    }
    panic!("never calibrated within 2 s");
}

/// The only file whose name begins so in the state directory.
fn state_file(fixture: &Fixture, name: &str) -> PathBuf {
    let files = fs::read_dir(fixture.path("state/tierfeed")).unwrap();
    let mut files = files
        .map(|file| file.unwrap().path())
        .filter(|file| file.file_name().is_some_and(|it| it.to_string_lossy().starts_with(name)));
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

fn edit(file: &PathBuf, change: impl FnOnce(&mut Value)) {
    let mut document: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(&mut document);
    fs::write(file, document.to_string()).unwrap();
}

fn double_memory(document: &mut Value) {
    for node in document["inventory"]["nodes"].as_array_mut().unwrap() {
        let bytes = node["memory_total_bytes"].as_u64().unwrap();
        node["memory_total_bytes"] = json!(2 * bytes);
    }
}

const NOW: &str = "calibration at this start";

#[test]
fn a_host_is_calibrated_by_its_first_run_and_again_when_its_memory_has_changed() {
    let fixture = unknown_host();
    let forget = || drop(fs::remove_dir_all(fixture.path("state")));
    let [main, scratch, cold] = first_told(&fixture, forget);
    assert_eq!((main.as_str(), scratch.as_str()), (NOW, NOW));
    assert_eq!(cold, "emulated");
    assert_eq!(fixture.scratch_files(), 0, "what was written for it is gone");

    let file = state_file(&fixture, "calibration-");
    let (saved, written) =
        (format!("calibration {} of ", file.display()), fs::read(&file).unwrap());
    let mut show = fixture.tierfeed(&["tiers", "show"]);
    let shown = show.env("XDG_STATE_HOME", fixture.path("state")).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let title = format!("calibrated by runs on this host, in {}", file.display());
    assert!(shown.starts_with(&title) && shown.contains("  memory of NUMA node 0: "), "{shown}");

    let [main, scratch, _] = figures_from(&ran(&fixture));
    assert!(main.starts_with(&saved) && scratch.starts_with(&saved), "{main}; {scratch}");
    assert_eq!(fs::read(&file).unwrap(), written, "nothing was measured");

    let double = || {
        fs::write(&file, &written).unwrap();
        edit(&file, double_memory);
    };
    let [main, scratch, _] = first_told(&fixture, double);
    for said in [main, scratch] {
        let why = said.strip_prefix(&format!("{NOW}; {saved}")).unwrap_or_else(|| panic!("{said}"));
        assert!(why.contains(": memory of node 0 was ") && why.ends_with(" now"), "{said}");
    }
}

#[test]
fn a_probe_report_counts_before_a_calibration_unless_it_is_of_another_memory() {
    let fixture = unknown_host();
    first_told(&fixture, || drop(fs::remove_dir_all(fixture.path("state"))));
    let file = state_file(&fixture, "calibration-");
    let calibrated: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let (inventory, tiers) = (&calibrated["inventory"], &calibrated["tiers"]);
    let report = json!({
        "format": 2, "host": inventory["host"], "tiers": tiers, "inventory": inventory,
        "numa": { "nodes": [], "latency_ns": [], "read_bytes_per_s": [] },
        "pairs": [], "storage": [], "object_stores": [], "transfers": [], "views": [],
        "comparisons": [], "skipped": [],
    });
    let probed = fixture.path("state/tierfeed/tiers.json");
    fs::write(&probed, report.to_string()).unwrap();
    let said = format!("probe report {} of ", probed.display());
    let [main, ..] = figures_from(&ran(&fixture));
    assert!(main.starts_with(&said), "{main}");

    edit(&probed, double_memory);
    let [main, ..] = figures_from(&ran(&fixture));
    let first = format!("calibration {} of ", file.display());
    assert!(main.starts_with(&first) && main.contains(&format!("; {said}")), "{main}");
    assert!(main.contains(": memory of node 0 was "), "{main}");

    edit(&probed, |report| drop(report["inventory"].as_object_mut().unwrap().remove("boot")));
    let [main, ..] = first_told(&fixture, || drop(fs::remove_file(&file)));
    assert!(main.starts_with(&format!("{NOW}; {said}")), "{main}");
    assert!(main.ends_with("measured by a version that noted no boot configuration"), "{main}");
}

#[test]
fn a_cold_store_that_is_not_emulated_is_measured_and_its_reads_are_not_those_of_the_job() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let text = text.replace("  emulate: { latency: 1 ms, bandwidth: 60 MB/s }\n", "");
    fs::write(fixture.job(), text).unwrap();
    let report = ran(&fixture);
    let cold = &report["cold_store"];
    let from = cold["figures_from"].as_str().unwrap();
    // A busy store, or a file system without direct I/O whose page cache holds the dataset, tells nothing.
    let is_known = from.starts_with(NOW);
    assert!(is_known || from.starts_with("none; not measured: "), "{from}");
    for figure in ["latency_ns", "bandwidth_bytes_per_s"] {
        assert_eq!(cold[figure].as_u64() > Some(0), is_known, "{cold}");
    }
    let bytes = |key: &str| report[key].as_u64().unwrap();
    assert!(bytes("cold_read_bytes") <= bytes("bytes") + bytes("wasted_bytes"), "{report:#}");
    for (command, options, names_figures) in [
        ("analyze", &[][..], is_known),
        ("plan", &["--simulate"], is_known),
        ("plan", &["--simulate", "--cold-bandwidth", "1 GB/s"], false),
    ] {
        let mut plan = fixture.tierfeed(&[command]);
        plan.arg(fixture.job()).args(options).env("XDG_STATE_HOME", fixture.path("state"));
        let output = plan.output().unwrap();
        assert_ended(&output, 0);
        let text = String::from_utf8(output.stdout).unwrap();
        let named = text.contains("the cold store gives ") && text.contains(": calibration ");
        assert_eq!(named, names_figures, "{command} {options:?}: {text}");
    }
}
