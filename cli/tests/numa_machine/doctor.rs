//! What the doctor says of the far node.

use serde_json::Value;

use crate::{
    fixture::{Fixture, assert_ended},
    machine::{Topology, empty},
};

fn findings() -> Vec<Value> {
    let output = Fixture::new().tierfeed(&["doctor", "--json"]).output().unwrap();
    assert_ended(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["findings"].as_array().unwrap().clone()
}

fn finding(findings: &[Value], subject: &str) -> Option<Value> {
    findings.iter().find(|it| it["subject"] == subject).cloned()
}

#[test]
fn the_doctor_sees_the_far_node_and_whether_its_memory_is_movable() {
    let topology = Topology::here();
    let findings = findings();
    let cxl = finding(&findings, "CXL memory").unwrap();
    assert_eq!(cxl["state"], "ok", "{cxl}");
    let found = cxl["found"].as_str().unwrap();
    assert!(found.starts_with(&format!("node {} (", topology.far())), "{found}");
    assert_eq!(finding(&findings, "CXL devices without a region"), None);
    assert_eq!(finding(&findings, "DAX devices"), None);
    let movable = finding(&findings, "movable memory");
    let Some(movable) = movable else {
        assert_ne!(topology, Topology::Cxl);
        return;
    };
    assert_eq!(topology, Topology::Cxl, "{movable}");
    assert_eq!(
        (&movable["state"], &movable["found"]),
        (&"degraded".into(), &"100 % of node 2 take movable pages only".into(),)
    );
    assert!(movable["fixes"][0]["setting"].as_str().unwrap().contains("dax0.0"), "{movable}");
}

#[test]
fn the_doctor_names_the_device_whose_memory_is_offline() {
    let topology = Topology::here();
    if topology != Topology::Cxl {
        // Memory that is not movable cannot be taken out for sure.
        return;
    }
    let _offline = empty(topology);
    let finding = finding(&findings(), "DAX devices").unwrap();
    assert_eq!(finding["state"], "missing", "{finding}");
    let found = finding["found"].as_str().unwrap();
    assert!(found.contains("dax0.0") && found.contains("node 2 has no memory"), "{found}");
}
