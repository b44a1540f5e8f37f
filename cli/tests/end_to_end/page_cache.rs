//! Free memory beyond the budgets serves as page cache, unless the job says otherwise.

use std::{fs, os::fd::AsFd as _};

use serde_json::Value;
use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{cached, drop_pages};
use tierfeed_test_needs::{Need, skip};

use crate::fixture::{Fixture, SAMPLES, assert_ended, example, object_of};

/// The files of a fixture whose cold store has its own speed, out of the page cache; `None` where they stay.
fn cold_fixture(page_cache: &str) -> Option<Fixture> {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let emulate = "  emulate: { latency: 1 ms, bandwidth: 60 MB/s }\n";
    assert!(text.contains(emulate));
    fs::write(fixture.job(), text.replace(emulate, &format!("  page_cache: {page_cache}\n")))
        .unwrap();
    for number in 0..u64::from(SAMPLES) {
        let file = fs::File::open(fixture.path("data").join(object_of(number))).unwrap();
        file.sync_all().unwrap();
        drop_pages(file.as_fd(), Bytes(0), Bytes(0));
    }
    match bytes_in_page_cache(&fixture) {
        Ok(Bytes(0)) => Some(fixture),
        Ok(left) => {
            skip(Need::DirectIo, format!("{left} of the files stay in the page cache"));
            None
        }
        Err(error) => {
            skip(Need::Cachestat, error);
            None
        }
    }
}

fn bytes_in_page_cache(fixture: &Fixture) -> std::io::Result<Bytes> {
    let held = (0..u64::from(SAMPLES)).map(|number| {
        let file = fs::File::open(fixture.path("data").join(object_of(number)))?;
        let len = file.metadata()?.len();
        Ok(cached(file.as_fd(), Bytes(0), Bytes(0))?.0.min(len))
    });
    Ok(Bytes(held.sum::<std::io::Result<u64>>()?))
}

fn bytes_of_dataset(fixture: &Fixture) -> u64 {
    let len = |number| fs::metadata(fixture.path("data").join(object_of(number))).unwrap().len();
    (0..u64::from(SAMPLES)).map(len).sum()
}

/// Runs the job with a trainer that reads no file itself.
fn run(fixture: &Fixture) -> Value {
    let mut run = fixture.tierfeed(&["run", "--launch", "once", "--run-dir"]);
    run.arg(fixture.run_dir()).arg(fixture.job()).arg("--").arg(example("lock_step")).arg("0");
    assert_ended(&run.output().unwrap(), 0);
    fixture.report()
}

#[test]
fn what_no_tier_keeps_comes_from_free_memory_from_the_second_epoch_on() {
    let Some(fixture) = cold_fixture("auto") else { return };
    let report = run(&fixture);
    let number = |value: &Value| value.as_u64().unwrap();
    let (cold, from_cache) =
        (number(&report["cold_read_bytes"]), number(&report["page_cache"]["read_bytes"]));
    let dataset = bytes_of_dataset(&fixture);
    assert!(cold > dataset * 3 / 2, "the tiers are too small for the dataset: {cold} of {dataset}");
    assert!(from_cache >= (cold - dataset) * 9 / 10, "{from_cache} of {}", cold - dataset);
    assert_eq!(report["page_cache"]["mode"], "auto");
    let left = number(&report["page_cache"]["left_bytes"]);
    let found = bytes_in_page_cache(&fixture).unwrap().0;
    assert!(found.abs_diff(left) < dataset / 10, "the agent knows {left}, the kernel {found}");
    assert!(left < dataset * 3 / 4, "what a tier keeps is not there twice: {left} of {dataset}");
}

#[test]
fn a_job_that_turns_it_off_reads_past_the_page_cache() {
    let Some(fixture) = cold_fixture("off") else { return };
    let report = run(&fixture);
    assert_eq!(report["page_cache"]["mode"], "off");
    assert_eq!(report["page_cache"]["read_bytes"], 0);
    assert_eq!(report["page_cache"]["left_bytes"], 0);
    let found = bytes_in_page_cache(&fixture).unwrap().0;
    assert!(found < bytes_of_dataset(&fixture) / 10, "{found} bytes are left there");
}
