//! All nodes of a job together, with a node lost.

use std::{fs, process::Stdio};

use serde_json::Value;

use crate::{JOB, command, folder, json, refused, text};

/// Four nodes that keep 36 of 191 MiB each.
fn job() -> String {
    JOB.replace("nodes: 1", "nodes: 4")
        .replace("policy: gap", "policy: partitioned\nprefetch: { look_ahead: off }")
        .replace("epochs: 3", "epochs: 4")
        .replace("size: 64 MiB", "size: 20 MiB")
}

fn sum(epochs: &Value, key: &str) -> Vec<u64> {
    epochs.as_array().unwrap().iter().map(|epoch| epoch[key].as_u64().unwrap()).collect()
}

#[test]
fn a_head_start_and_a_burst_count_for_all_nodes_together_too() {
    let folder = folder(&job());
    let first_s = |more: &[&str]| {
        let plan = json(folder.path(), &[&["--simulate", "--whole-job"], more].concat());
        plan["epochs"][0]["duration_s"].as_f64().unwrap()
    };
    let plain = first_s(&[]);
    for more in [["--head-start", "500 ms"], ["--cold-burst", "50 ms"]] {
        let less = first_s(&more);
        assert!(less < plain, "{more:?}: {less} s of {plain} s");
    }
}

#[test]
fn all_nodes_together_read_what_each_reads_alone() {
    let folder = folder(&job());
    let whole = json(folder.path(), &["--simulate", "--whole-job"]);
    let alone = json(folder.path(), &["--simulate", "--all-nodes"]);
    assert_eq!((&whole["nodes"], &alone["nodes"]), (&4.into(), &4.into()));
    for key in ["cold_read_bytes", "peer_read_bytes", "demand_bytes"] {
        let [whole, alone] = [&whole, &alone].map(|plan| sum(&plan["epochs"], key));
        // A session alone takes what it asks others for to be there.
        for (whole, alone) in whole.iter().zip(&alone) {
            assert!(whole.abs_diff(*alone) * 100 <= *alone.max(whole), "{key}: {whole}, {alone}");
        }
    }
    for epoch in whole["epochs"].as_array().unwrap() {
        let by_node = &epoch["by_node"];
        for (key, of_node) in
            [("cold_read_bytes", "cold_read_bytes"), ("peer_read_bytes", "received_bytes")]
        {
            let nodes: u64 = sum(by_node, of_node).iter().sum();
            assert_eq!(epoch[key], nodes, "{key}");
        }
        let [sent, received] = ["sent_bytes", "received_bytes"].map(|key| sum(by_node, key));
        assert_eq!(sent.iter().sum::<u64>(), received.iter().sum::<u64>());
    }
    let first = &whole["epochs"][0];
    assert_eq!(first["slowest"]["link"], "cold");
    assert!(first["stall_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_lost_node_costs_cold_reads_until_the_others_hold_what_it_held() {
    let roomy = job().replace("size: 20 MiB", "size: 64 MiB");
    let folder = folder(&roomy);
    let plan =
        |more: &[&str]| json(folder.path(), &[&["--simulate", "--whole-job"], more].concat());
    let kept = plan(&[]);
    let lost = plan(&["--lose", "2@1:3"]);
    let back = plan(&["--lose", "2@1:3", "--rejoin", "2@2:3"]);
    let change = &lost["changes"][0];
    assert_eq!((&change["node"], &change["change"]), (&2.into(), &"lost".into()));
    assert_eq!((&change["epoch"], &change["step"]), (&1.into(), &3.into()));
    assert_eq!(change["divided_epoch"], 2);
    let cold = |plan: &Value| sum(&plan["epochs"], "cold_read_bytes");
    let (kept, of_lost, back) = (cold(&kept), cold(&lost), cold(&back));
    assert_eq!(kept[1..], [0, 0, 0]);
    assert!(of_lost[1] > 0 && of_lost[2] > of_lost[3], "{of_lost:?}");
    let own = &lost["epochs"][3]["by_node"][2];
    assert_eq!(own["cold_read_bytes"], lost["epochs"][3]["unattended_read_bytes"]);
    assert_eq!((&own["received_bytes"], &own["sent_bytes"]), (&0.into(), &0.into()));
    assert!(back[3] < of_lost[3] / 2, "{back:?}, without coming back {of_lost:?}");
    let shown = text(folder.path(), &["--simulate", "--whole-job", "--lose", "2@1:3"]);
    assert!(shown.contains("node 2 is lost in epoch 1 before step 3"), "{shown}");
    assert!(shown.contains("from epoch 2 on"), "{shown}");
}

#[test]
fn a_network_that_is_too_slow_makes_all_wait() {
    let folder = folder(&job());
    let fast = json(folder.path(), &["--simulate", "--whole-job"]);
    let network = ["--network-bandwidth", "20 MB/s", "--network-latency", "1 ms"];
    let slow = json(folder.path(), &[&["--simulate", "--whole-job"], &network[..]].concat());
    assert_eq!(sum(&fast["epochs"], "peer_read_bytes"), sum(&slow["epochs"], "peer_read_bytes"));
    let stall = |plan: &Value| plan["epochs"][1]["stall_s"].as_f64().unwrap();
    assert!(stall(&slow) > 10.0 * stall(&fast), "{} and {}", stall(&slow), stall(&fast));
    let link = slow["epochs"][1]["slowest"]["link"].as_str().unwrap().to_owned();
    assert!(["receiving", "sending"].contains(&&*link), "{link}");
    let shown = text(folder.path(), &["--simulate", "--whole-job"]);
    assert!(shown.contains("the network is taken as unlimited"), "{shown}");
    let store = ["--simulate", "--whole-job", "--store-bandwidth", "20 MB/s"];
    let shared = json(folder.path(), &store);
    assert_eq!(shared["epochs"][0]["slowest"]["link"], "shared-cold");
    assert!(shared["epochs"][0]["slowest"]["node"].is_null());
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let shared = folder(&job());
    for (arguments, said) in [
        (&["--lose", "4@1"][..], "node 4: the job has 4 nodes, numbered from 0 to 3"),
        (&["--lose", "1@9"], "node 1 in epoch 9: the run has the epochs 0 to 3"),
        (&["--lose", "1@1:99"], "that epoch has the steps 0 to 12"),
        (&["--lose", "1@1,1@2"], "it is lost already"),
        (&["--lose", "1@2", "--rejoin", "1@1"], "it must be lost before it comes back"),
        (&["--lose", "1"], "expected NODE@EPOCH"),
        (&["--policy", "gap"], "with policy gap each node keeps for itself"),
        (&["--policy", "gap,partitioned"], "names 2 policies"),
        (&["--node", "1"], "cannot be used with"),
    ] {
        let arguments = [&["--simulate", "--whole-job"], arguments].concat();
        let error = refused(shared.path(), &arguments, 2);
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let error = refused(shared.path(), &["--simulate", "--lose", "1@1"], 2);
    assert!(error.contains("--whole-job"), "{error}");
    let alone = folder(&job().replace("nodes: 4", "nodes: 1"));
    let error = refused(alone.path(), &["--simulate", "--whole-job"], 2);
    assert!(error.contains("the job has one node"), "{error}");
}

/// Whether a process has a handler for SIGINT, signal 2.
fn catches_interrupts(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
}

/// 200,000 samples on 1,000 nodes end in a moment, and an interrupted simulation at once.
#[test]
fn a_thousand_nodes_are_simulated_and_interrupted() {
    let many = job()
        .replace("objects: 20, samples_per_object: 100", "objects: 200, samples_per_object: 1000")
        .replace("nodes: 4", "nodes: 1000");
    let folder_of_many = folder(&many);
    let plan = json(folder_of_many.path(), &["--simulate", "--whole-job", "--lose", "999@1"]);
    assert_eq!(plan["epochs"][2]["by_node"].as_array().unwrap().len(), 1000);
    assert_eq!(plan["changes"][0]["node"], 999);

    let endless = many.replace("epochs: 4", "epochs: 4000");
    let folder_of_endless = folder(&endless);
    let mut child = command(folder_of_endless.path(), &["--simulate", "--whole-job"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    while !catches_interrupts(&pid) {
        std::thread::yield_now();
    }
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
