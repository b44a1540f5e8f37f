//! A run whose control group gets short of memory while a hog takes what the agent gives back.

use std::fs;

use serde_json::Value;
use tierfeed_core::units::Bytes;
use tierfeed_test_needs::{Need, requires};

use crate::{
    fixture::{self, Fixture, Running, eventually},
    group::Group,
};

/// A twentieth of it is more than a hog leaves, which is at least 32 MiB.
const LIMIT: Bytes = Bytes::mib(1024);

/// What a rank computes in a step: the hog must fill the group, hold it and be gone before the run ends. The
/// emulated machine, which has several nodes, is slower by the factor that a processor in software is.
fn step_us() -> u64 {
    if requires(Need::SeveralNodes) { 2_600_000 } else { 1_400_000 }
}

fn write_job(fixture: &Fixture) {
    let text = fs::read_to_string(fixture.job()).unwrap();
    let text = text
        .replace("60 MB/s", "200 MB/s")
        .replace("chunk: 256 KiB", "chunk: 1 MiB\nprefetch: { batches: 4 }")
        .replace("main-memory: { size: 3 MiB }", "main-memory: { size: 56 MiB }")
        .replace("{ size: 1280 KiB,", "{ size: 30 MiB,")
        .replace("size: 256 KiB }", "size: 2 MiB }");
    fs::write(fixture.job(), text).unwrap();
}

fn changes(report: &Value) -> Vec<(f64, String)> {
    let moments = report["memory"]["timeline"].as_array().unwrap().iter();
    let of_moment = |moment: &Value| {
        let time = moment["time_s"].as_f64().unwrap();
        let changes = moment["changes"].as_array().cloned().unwrap_or_default();
        changes.into_iter().map(move |change| (time, change.as_str().unwrap().to_owned()))
    };
    moments.flat_map(|moment| of_moment(moment).collect::<Vec<_>>()).collect()
}

fn batches_before(change: &str) -> Option<u32> {
    change.strip_prefix("staging: ")?.split(' ').next()?.parse().ok()
}

fn is_growth(change: &str) -> bool {
    change.ends_with("memory is free again")
}

fn hog(fixture: &Fixture, group: &Group) -> Running {
    let hog = fixture.tierfeed(&["hog", "--leave", "4 MiB", "--for", "5 s"]);
    Running::start(&mut group.enter(&hog))
}

#[test]
fn a_run_gives_its_memory_to_who_needs_it_and_takes_it_back() {
    let Some(group) = Group::new("pressure", LIMIT) else { return };
    let fixture = Fixture::new();
    fixture.write_large_samples();
    write_job(&fixture);
    let mut run = Running::start(&mut group.enter(&fixture.run(step_us())));
    eventually("the first batches are taken", || fixture.lines() >= 4 || run.has_ended());
    let mut hog = hog(&fixture, &group);
    // Longer than anything is waited for elsewhere.
    let lines = || fixture.lines();
    let mut before = 0;
    while !run.has_ended() {
        eventually("the training goes on", || lines() > before || run.has_ended());
        before = lines();
    }
    run.ends_with(0);
    eventually("the hog ends", || hog.has_ended());
    let log = fixture.log();
    fixture::assert_complete(&log);
    let report = fixture.report();
    assert_eq!(report["order_digest"], fixture::digest(&log));
    group.assert_unharmed();
    check_order(&changes(&report));
}

/// Caches first, then staging, never below two batches; then back, staging first.
fn check_order(changes: &[(f64, String)]) {
    let at = |is_it: &dyn Fn(&str) -> bool| changes.iter().position(|(_, change)| is_it(change));
    let is_cut = |change: &str| change.ends_with("short of what must stay free");
    let staging_cut = at(&|it| it.starts_with("staging") && is_cut(it)).unwrap_or_else(|| {
        panic!("staging gave nothing: {changes:#?}");
    });
    for tier in ["main-memory", "cxl-memory", "scratch"] {
        let to_nothing = at(&|it| it.starts_with(tier) && it.contains(" to 0 chunks"));
        assert!(to_nothing.is_some_and(|at| at < staging_cut), "{tier}: {changes:#?}");
    }
    let fewest = changes.iter().filter_map(|(_, change)| batches_before(change)).min();
    assert!(fewest >= Some(2), "{changes:#?}");
    let back = at(&is_growth).unwrap_or_else(|| panic!("nothing grew back: {changes:#?}"));
    assert!(changes[back].1.starts_with("staging"), "{changes:#?}");
    let last_cut = changes[..back].iter().rfind(|(_, change)| !is_growth(change)).unwrap().0;
    assert!(changes[back].0 - last_cut >= 5.0, "calm first: {changes:#?}");
}
