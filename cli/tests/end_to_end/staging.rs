//! A batch that main memory cannot hold is staged across tiers, and handed out in place.

use std::fs;

use crate::fixture::{EPOCHS, Fixture, SAMPLES, assert_complete, assert_ended, digest};

/// 100 samples of 1.5 MB, so that a batch of 8 has 12 MB; main memory has 4 MiB for each of two ranks.
fn fixture(cxl: &str) -> Fixture {
    let fixture = Fixture::new();
    for number in 0..SAMPLES {
        let file = format!("data/class{}/{number:03}.jpg", number % 4);
        let bytes: Vec<u8> =
            (0..1_500_000_u32).map(|at| (at * 13 + number * 7).to_le_bytes()[1]).collect();
        fs::write(fixture.path(&file), bytes).unwrap();
    }
    fixture.write_job("prefetch: { batches: 3 }\n");
    let text = fs::read_to_string(fixture.job()).unwrap();
    let text = text
        .replace("bandwidth: 60 MB/s", "bandwidth: 2 GB/s")
        .replace("size: 1280 KiB,", &format!("size: {cxl},"))
        .replace("main-memory: { size: 3 MiB }", "main-memory: { size: 8 MiB }");
    fs::write(fixture.job(), text).unwrap();
    fixture
}

#[test]
fn a_batch_larger_than_main_memory_extends_into_cxl_memory() {
    let fixture = fixture("64 MiB");
    let output = fixture.run(0).output().unwrap();
    assert_ended(&output, 0);
    let log = fixture.log();
    let served = assert_complete(&log);
    assert_eq!(served, log.len(), "the agent staged every batch of {EPOCHS} epochs");
    let report = fixture.report();
    assert_eq!(report["order_digest"], digest(&log).as_str());
    assert_eq!(report["fault_count"], 0);
    let parts = report["staging"]["parts"].as_array().unwrap();
    let part = |at: usize| (parts[at]["tier"].as_str().unwrap(), parts[at]["bytes"].as_u64());
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert_eq!(part(0), ("main-memory", Some(8 << 20)));
    let (tier, bytes) = part(1);
    assert_eq!((tier, &parts[1]["emulated"]), ("cxl-memory", &true.into()));
    let (bytes, batches) = (bytes.unwrap(), 2 * 3 * 12_000_000);
    assert!(bytes + (8 << 20) >= batches, "three batches of each rank: {bytes}");
    let cxl = report["tiers"].as_array().unwrap().iter().find(|it| it["name"] == "cxl-memory");
    let cxl = cxl.unwrap();
    assert!(cxl["cache_bytes"].as_u64().unwrap() + bytes <= 64 << 20, "no byte is used twice");
}

#[test]
fn a_batch_larger_than_all_memory_is_refused_with_what_would_be_enough() {
    let fixture = fixture("9 MiB");
    let output = fixture.run(0).output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    let says = "tiers.main-memory: 8 MiB and 9 MiB of other memory tiers cannot hold a batch of";
    assert!(errors.contains(says), "{errors}");
}
