//! Idle phases of a training are used to read ahead, into free room of the tiers.

use std::fs;

use serde_json::Value;

use crate::fixture::{Fixture, assert_ended, example};

/// 100 samples of 100 kB in batches of 4 for two ranks, at 11 MB/s: 13 steps of 20 ms an epoch, and 0.7 s of
/// something else after every eighth. Eight steps take 6.4 MB; three of them are staged.
fn fixture(look_ahead: &str) -> Fixture {
    let fixture = Fixture::new();
    for number in 0..100_u32 {
        let file = format!("data/class{}/{number:03}.jpg", number % 4);
        let bytes = vec![number.to_le_bytes()[0]; 80_000 + 400 * number as usize];
        fs::write(fixture.path(&file), bytes).unwrap();
    }
    fixture.write_job(&format!(
        "policy: none\nstep_time: 20 ms\npause: {{ every: 8 steps, time: 700 ms }}\n\
         prefetch: {{ batches: 3, look_ahead: {look_ahead} }}\n"
    ));
    let text = fs::read_to_string(fixture.job()).unwrap();
    let text = text
        .replace("bandwidth: 60 MB/s", "bandwidth: 11 MB/s")
        .replace("batch_size: 8", "batch_size: 4")
        .replace("size: 1280 KiB,", "size: 4 MiB,")
        .replace("main-memory: { size: 3 MiB }", "main-memory: { size: 5 MiB }");
    fs::write(fixture.job(), text).unwrap();
    fixture
}

fn run(fixture: &Fixture) -> Value {
    let mut run = fixture.tierfeed(&["run", "--launch", "once", "--run-dir"]);
    run.arg(fixture.run_dir()).arg(fixture.job()).arg("--");
    run.arg(example("lock_step")).args(["20000", "8", "700000"]);
    assert_ended(&run.output().unwrap(), 0);
    fixture.report()
}

fn simulated(fixture: &Fixture) -> Value {
    let mut plan = fixture.tierfeed(&["plan", "--simulate", "--json"]);
    let output = plan.arg(fixture.job()).output().unwrap();
    assert_ended(&output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap()
}

#[test]
fn idle_phases_are_used_and_the_simulator_says_so_before() {
    let (off, auto) = (fixture("off"), fixture("auto"));
    let (without, with) = (run(&off), run(&auto));
    let (before, after) = (number(&without, "stall_s"), number(&with, "stall_s"));
    assert!(after < before / 2.0, "{before} s without, {after} s with look-ahead");
    let advice = without["advice"].as_array().unwrap();
    let changes: Vec<_> = advice.iter().map(|it| it["change"].as_str().unwrap()).collect();
    // It keeps nothing, so there is more to say; a batch more would not have done.
    assert_eq!(changes, ["look-ahead", "cold-bandwidth", "policy"], "{advice:?}");
    let promised = number(&advice[0], "saves_s");
    assert!(before - after > promised / 2.0, "{before} s, {after} s, {promised} s were promised");
    let ahead = |report: &Value| -> f64 {
        let epochs = report["epochs"].as_array().unwrap().iter();
        epochs.map(|epoch| number(epoch, "ahead_bytes")).sum()
    };
    assert!(ahead(&with) > 0.5 * number(&with, "cold_read_bytes"));
    assert!(ahead(&without) < 1.0, "look-ahead is off");
    let planned = simulated(&auto);
    let (cold, planned) =
        (number(&with, "cold_read_bytes"), number(&planned["total"], "cold_read_bytes"));
    assert!((cold - planned).abs() < 0.05 * planned, "read {cold}, simulated {planned}");
}
