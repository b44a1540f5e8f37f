//! What is predicted, and what it costs.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
};

use serde_json::Value;

use crate::{JOB, command, folder, json, long_job, refused, text};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_policy_stands_beside_the_limit_and_none_is_below_it() {
    let folder = folder(JOB);
    let plans = json(folder.path(), &["--simulate", "--policy", "gap,fifo,none"]);
    for plan in plans.as_array().unwrap() {
        assert_eq!(plan["node"], 0);
        let epochs = plan["epochs"].as_array().unwrap();
        assert_eq!(epochs.len(), 3);
        for figures in epochs.iter().chain([&plan["total"]]) {
            for key in [
                "steps",
                "demand_bytes",
                "hit_ratio",
                "ready_ratio",
                "stall_s",
                "duration_s",
                "lower_bound_s",
                "minimal_cold_bytes",
                "best_hit_ratio",
                "duration_to_lower_bound",
                "samples",
                "cold_samples",
            ] {
                number(&figures[key]);
            }
            assert!(figures["tier_read_bytes"]["cxl-memory"].is_u64());
            let least = number(&figures["minimal_cold_bytes"]);
            let times = number(&figures["cold_read_bytes"]) / least;
            assert!(times >= 1.0 && (number(&figures["cold_to_minimal"]) - times).abs() < 1e-9);
        }
        assert!(number(&epochs[1]["step_cold"]["max_bytes"]) > 0.0);
    }
    let cold = |at: usize| number(&plans[at]["total"]["cold_to_minimal"]);
    assert!(cold(0) < 1.01 && cold(0) < cold(1) && cold(1) < cold(2));
}

#[test]
fn the_table_has_epochs_totals_and_tiers_fastest_first() {
    let folder = folder(JOB);
    let table = text(folder.path(), &["--simulate", "--policy", "gap,none"]);
    let (caveat, tables) = table.split_once("\n\n").unwrap();
    let (bytes, times) = tables.split_once("\n\n").unwrap();
    assert!(caveat.contains("cxl-memory is emulated"), "{caveat}");
    let place = |head: &str| bytes.find(head).unwrap_or_else(|| panic!("{head} in\n{bytes}"));
    assert!(place("cold") < place("main-memory") && place("main-memory") < place("cxl-memory"));
    for part in ["least cold", "best", "burst"] {
        place(part);
    }
    for part in ["stall s", "bound s"] {
        assert!(times.contains(part), "{part} in\n{times}");
    }
    let rows = |table: &str| table.lines().filter(|line| line.contains(" all ")).count();
    assert_eq!((rows(bytes), rows(times)), (2, 2));
}

#[test]
fn a_head_start_of_the_agent_takes_the_wait_for_the_first_batch_and_no_bytes() {
    let folder = folder(JOB);
    let plan = |head_start| {
        let plan = json(folder.path(), &["--simulate", "--head-start", head_start]);
        let first = &plan["epochs"][0];
        assert!(number(&first["lower_bound_s"]) <= number(&first["duration_s"]), "{first}");
        (plan["total"]["cold_read_bytes"].clone(), number(&plan["total"]["duration_s"]))
    };
    let ((bytes, duration_s), (same_bytes, less_s)) = (plan("0 s"), plan("1 s"));
    assert_eq!(bytes, same_bytes);
    let gained_s = duration_s - less_s;
    assert!(gained_s > 0.0 && gained_s < 1.0 + 1e-9, "{gained_s} s of one");
}

#[test]
fn a_cold_store_that_may_be_ahead_of_its_rate_shortens_a_run() {
    let folder = folder(JOB);
    let duration_s = |cold_burst| {
        let plan = json(folder.path(), &["--simulate", "--cold-burst", cold_burst]);
        let first = &plan["epochs"][0];
        assert!(number(&first["lower_bound_s"]) <= number(&first["duration_s"]), "{first}");
        number(&plan["total"]["duration_s"])
    };
    let gained_s = duration_s("0 s") - duration_s("20 ms");
    assert!(gained_s > 0.0, "{gained_s} s");
}

/// Where nothing is known to take time, a table of zeros would look like a promise.
#[test]
fn without_rates_no_times_are_shown() {
    let is_rate = |line: &str| line.contains("emulate:") || line.starts_with("step_time:");
    let job: Vec<_> = JOB.lines().filter(|line| !is_rate(line)).collect();
    let folder = folder(&job.join("\n"));
    let shown = text(folder.path(), &["--simulate"]);
    for part in ["the cold store is taken as unlimited", "steps are taken to compute nothing"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert!(shown.contains("least cold"), "{shown}");
    for part in ["stall s", "takes s", "bound s"] {
        assert!(!shown.contains(part), "{part} in\n{shown}");
    }
    let told = text(folder.path(), &["--simulate", "--cold-bandwidth", "60 MB/s"]);
    assert!(told.contains("takes s") && !told.contains("unlimited"), "{told}");
}

#[test]
fn all_nodes_together_read_what_each_reads() {
    let folder = folder(&JOB.replace("nodes: 1", "nodes: 3"));
    let cold = |arguments: &[&str]| {
        let plan = json(folder.path(), &[&["--simulate"], arguments].concat());
        plan["total"]["cold_read_bytes"].as_u64().unwrap()
    };
    let each = ["0", "1", "2"].map(|node| cold(&["--node", node]));
    assert_eq!(cold(&["--all-nodes"]), each.iter().sum::<u64>());
    assert_eq!(cold(&[]), each[0]);
    let said = refused(folder.path(), &["--simulate", "--node", "3"], 2);
    assert!(said.contains("--node 3: the job has 3 nodes, numbered from 0 to 2"), "{said}");
}

#[test]
fn an_order_that_only_the_trainer_knows_is_not_predicted() {
    let folder = folder(&JOB.replace("torch-distributed", "published"));
    let said = refused(folder.path(), &["--simulate"], 2);
    assert!(said.contains("order.shuffle is published"), "{said}");
}

#[test]
fn an_interrupted_simulation_says_so_and_ends() {
    let folder = folder(&long_job());
    let simulation = command(folder.path(), &["--simulate"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !catches_interrupts(simulation.id()) {
        thread::yield_now();
    }
    let pid = simulation.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = simulation.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "interrupted\n");
}

/// Whether a process has a handler for SIGINT, the second signal.
fn catches_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
}

#[test]
fn the_bill_has_a_line_for_each_way_to_hold_the_data() {
    let folder = folder(JOB);
    let prices = "vm: 0.5684 $/h\ndisk: 0.04 $/GB/month\nstore: 0.02 $/GB/month\n\
                  class_a: 0.05 $/10k\nclass_b: 0.004 $/10k\nlist_page: 1000\n\
                  system_disk: 16 GB\nstorage_charged: time\n";
    fs::write(folder.path().join("prices.yaml"), prices).unwrap();
    let bill = json(folder.path(), &["--cost", "prices.yaml"]);
    let charges = bill["charges"].as_array().unwrap();
    let ways: Vec<_> = charges.iter().map(|it| it["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["disk", "direct", "prefetched", "prototype", "planned"]);
    let reads = |at: usize| charges[at]["class_b_requests"].as_u64().unwrap();
    assert_eq!((reads(0), reads(1)), (0, 3 * 2_000));
    let plan = json(folder.path(), &["--simulate"]);
    assert_eq!(plan["total"]["cold_samples"], reads(4));
    assert!(text(folder.path(), &["--cost", "prices.yaml"]).contains("cheapest"));
    let said = refused(folder.path(), &["--cost", "none.yaml"], 2);
    assert!(said.contains("none.yaml: cannot be read"), "{said}");
}
