//! Samples that trainers read where they lie behind CXL: the right bytes, on the right node, and chosen by
//! what was measured of this host.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::{Value, json};

use crate::{
    fixture::{Fixture, RANKS, assert_ended},
    machine::{Topology, pages_by_node},
    training::{CHUNK_PAGES, assert_right, command, fixture_with, tier},
};

/// The job of the fixture with 2 MiB on the far node, these keys beside them and these below.
fn fixture(keys: &str, more: &str) -> Fixture {
    let far = Topology::here().far();
    let fixture = fixture_with(&format!("{{ numa_nodes: [{far}], size: 2 MiB{keys} }}"));
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), text + more).unwrap();
    fixture
}

/// The folder in which the commands of a test keep the report of the probe.
fn state(fixture: &Fixture) -> PathBuf {
    fixture.path("state")
}

/// Runs the job, whose trainers compare every byte with the files, and returns what it said and reported.
fn run(fixture: &Fixture) -> (Output, Value) {
    let output = command(fixture).env("XDG_STATE_HOME", state(fixture)).output().unwrap();
    assert_ended(&output, 0);
    assert_right(fixture, &fixture.log());
    (output, fixture.report())
}

/// The pages of the tier by node, as each rank found them when its training ended.
fn tier_by_node(fixture: &Fixture) -> Vec<Vec<BTreeMap<u32, u64>>> {
    let maps = |rank| fs::read_to_string(fixture.path(&format!("maps-{rank}"))).unwrap();
    (0..RANKS).map(|rank| pages_by_node(&maps(rank), "memfd:tierfeed-cxl-memory")).collect()
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap()
}

#[test]
fn samples_that_are_shown_lie_on_the_far_node_and_have_the_bytes_of_the_cold_store() {
    let far = Topology::here().far();
    let mut digests = Vec::new();
    for (direct, more) in [("always", "policy: pinned\n"), ("never", "")] {
        let fixture = fixture(&format!(", direct: {direct}"), more);
        let (_, report) = run(&fixture);
        let (shown, bytes) = (number(&report, "direct_samples"), number(&report, "direct_bytes"));
        let hits = report["tier_hits"]["cxl-memory"].as_u64().unwrap();
        let cxl = tier(&report, "cxl-memory");
        assert_eq!((&cxl["emulated"], &report["tier_fault_count"]), (&false.into(), &0.into()));
        assert_eq!(cxl["direct"]["used"], direct == "always", "{cxl:#}");
        let chunks = if direct == "always" {
            assert!(shown > 0 && shown <= hits, "{shown} of {hits} with {more:?}");
            assert!(bytes > 5_000 * shown && bytes < 60_000 * shown, "{bytes} in {shown}");
            vec![BTreeMap::from([(far, 2 * CHUNK_PAGES)])]
        } else {
            assert_eq!((shown, bytes), (0, 0));
            assert!(hits > 0, "{report:#}");
            vec![BTreeMap::from([(far, CHUNK_PAGES)]); 2]
        };
        assert!(
            tier_by_node(&fixture).iter().all(|it| *it == chunks),
            "{:?}",
            tier_by_node(&fixture)
        );
        digests.push(report["order_digest"].clone());
    }
    assert!(digests.iter().all(|it| *it == digests[0]), "{digests:?}");
}

/// Rates in GB/s.
struct Rates {
    /// The far node, read by one thread and by two.
    read: [f64; 2],
    /// Main memory, read by one.
    main: f64,
    /// Copies to the far node by one thread and by two.
    written: [f64; 2],
}

/// Leaves the report that the probe makes of this machine without measuring it, with these rates.
fn measure(fixture: &Fixture, rates: &Rates) {
    let path = state(fixture).join("tierfeed/tiers.json");
    // Another name of the root, so that it is described only.
    let mut probe =
        fixture.tierfeed(&["tiers", "probe", "--sysroot", "/proc/self/root", "--output"]);
    assert_ended(&probe.arg(&path).output().unwrap(), 0);
    let mut report: Value = read(&path);
    let far = Topology::here().far();
    let name = |kind: &str, node: u32| {
        let tiers = report["tiers"].as_array().unwrap();
        let has = |it: &Value| it["numa_nodes"].as_array().unwrap().contains(&node.into());
        let tier = tiers.iter().find(|it| it["kind"] == kind && has(it));
        tier.unwrap_or_else(|| panic!("{kind} of node {node}: {tiers:#?}"))["name"].clone()
    };
    let (main, cxl) = (name("main-memory", 0), name("cxl-memory", far));
    let pair = |node: u32, reads: &[f64]| {
        let bandwidth = (1..).zip(reads).map(|(threads, rate)| {
            json!({ "traffic": "read", "threads": threads, "bytes_per_s": estimate(*rate) })
        });
        json!({
            "initiator": 0, "target": node, "is_best": true, "buffer_bytes": 256 << 20,
            "cache_bytes": 1 << 20, "cache_bound": false, "huge_page_share": 1.0,
            "idle_latency_ns": null, "random_latency_ns": null,
            "bandwidth": bandwidth.collect::<Vec<_>>(), "loaded_latency": [], "remarks": [],
        })
    };
    let transfer = |(threads, rate): (u32, &f64)| {
        json!({ "from": main, "to": cxl, "is_best": false, "threads": threads, "non_temporal": true,
                "chunk_bytes": 128 << 20, "bytes_per_s": estimate(*rate) })
    };
    report["transfers"] = (1..).zip(&rates.written).map(transfer).collect();
    // Main memory is that of the first node, as the probe found no difference.
    report["pairs"] = json!([pair(0, &[rates.main]), pair(far, &rates.read)]);
    for tier in report["tiers"].as_array_mut().unwrap() {
        let first = tier["numa_nodes"].get(0).cloned().unwrap_or_default();
        tier["numa_node"] = first;
    }
    fs::write(&path, report.to_string()).unwrap();
}

fn estimate(gb_per_s: f64) -> Value {
    let rate = gb_per_s * 1e9;
    json!({ "median": rate, "low": rate, "high": rate, "samples": 9, "converged": true,
            "contended": false, "drifted": false, "best": rate })
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn planned(fixture: &Fixture) -> (Value, String) {
    let plan = |more: &[&str]| {
        let mut command = fixture.tierfeed(&["plan", "job.yaml"]);
        let output = command.args(more).env("XDG_STATE_HOME", state(fixture)).output().unwrap();
        assert_ended(&output, 0);
        String::from_utf8(output.stdout).unwrap()
    };
    (serde_json::from_str(&plan(&["--json"])).unwrap(), plan(&[]))
}

/// Runs the job with these rates of the far node. What was chosen for it must stand in the plan, in what
/// the run says and in its report, which is returned.
fn chosen(rates: &Rates, why: &str, writers: &str) -> (Fixture, Value) {
    let fixture = fixture("", "");
    measure(&fixture, rates);
    let (plan, text) = planned(&fixture);
    let (output, report) = run(&fixture);
    let cxl = tier(&report, "cxl-memory");
    assert_eq!((&cxl["direct"]["asked"], &cxl["direct"]["why"]), (&"auto".into(), &why.into()));
    assert_eq!(tier(&plan, "cxl-memory")["direct"], cxl["direct"]);
    assert!(text.contains(&format!("direct use: {why}\n")), "{text}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("tier=\"cxl-memory\" direct_use={why}")), "{said}");
    let page = fs::read_to_string(fixture.run_dir().join("report.html")).unwrap();
    assert!(page.contains(writers), "{writers} in\n{page}");
    let measured = rates.written.map(|rate| json!(rate * 1e9).as_f64());
    let stated =
        ["one_bytes_per_s", "two_bytes_per_s"].map(|it| cxl["writers_measured"][it].as_f64());
    assert_eq!(stated, measured);
    (fixture, report)
}

#[test]
fn a_far_node_that_one_thread_reads_well_and_one_writes_best_is_read_in_place() {
    let rates = Rates { read: [10.0, 16.0], main: 12.0, written: [17.0, 17.5] };
    // One thread copies, so two do not read.
    let why =
        "yes, because a copy costs more than it saves (each MiB: 280 us copied, 105 us in place)";
    let writers = "1 of 2 copy threads (measured: 1 writes 17 GB/s, 2 write 17.50 GB/s)";
    let (fixture, report) = chosen(&rates, why, writers);
    assert!(number(&report, "direct_samples") > 0, "{report:#}");
    assert_eq!(tier(&report, "cxl-memory")["copy_threads"], 1);
    let shelf = BTreeMap::from([(Topology::here().far(), 2 * CHUNK_PAGES)]);
    assert!(tier_by_node(&fixture).iter().all(|it| *it == [shelf.clone()]));
}

#[test]
fn a_far_node_that_one_thread_reads_badly_is_copied_from_by_two() {
    let rates = Rates { read: [3.0, 16.0], main: 12.0, written: [10.0, 19.0] };
    let why =
        "no, because a copy saves more than it costs (each MiB: 240 us copied, 350 us in place)";
    let writers = "2 of 2 copy threads (measured: 1 writes 10 GB/s, 2 write 19 GB/s)";
    let (_, report) = chosen(&rates, why, writers);
    assert_eq!(number(&report, "direct_samples"), 0, "{report:#}");
    assert_eq!(tier(&report, "cxl-memory")["copy_threads"], 2);
}
