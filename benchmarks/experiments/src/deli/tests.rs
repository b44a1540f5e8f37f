use std::{fs, path::Path};

use tierfeed_test_needs::{Need, skip};

use super::{measured::parse, pace::Pace, *};

/// The share of an epoch that a node misses in its second one, for a cache of `share` of an epoch.
///
/// What is left of the first epoch after a share `m` of the second was missed is `share - m`, and one in
/// `nodes` of it is read: with `L = share - m`, `dL/du = L / nodes - 1`, until nothing is left.
fn second_epoch_of_fifo(share: f64, nodes: f64) -> f64 {
    let empty_after = nodes * (nodes / (nodes - share)).ln();
    1.0 - (empty_after - share)
}

#[test]
fn the_second_epoch_of_a_fifo_misses_what_its_closed_form_says() {
    for (share, capacity) in [(0.25, 3_500), (0.5, 7_000), (0.75, 10_500)] {
        let expected = second_epoch_of_fifo(share, 3.0);
        let simulated = fifo::miss_rate(42_000, 3, Some(capacity), 2);
        assert!((simulated - expected).abs() < 0.003, "{share}: {simulated} not {expected}");
    }
    let unlimited = fifo::miss_rate(42_000, 3, None, 2);
    assert!((unlimited - 2.0 / 3.0).abs() < 0.003, "{unlimited}");
    let third = fifo::miss_rate(42_000, 3, None, 3);
    assert!((third - 4.0 / 9.0).abs() < 0.004, "{third}");
    assert!((fifo::miss_rate(3_000, 3, Some(0), 2) - 1.0).abs() < 1e-12);
}

/// The cache of the model of prefetching and the policy are the same.
#[test]
fn the_models_cache_misses_what_the_policy_misses() {
    for capacity in [Some(100), Some(500), Some(900), None] {
        let mut missed = 0;
        let mut read = 0;
        for seed in 0..3 {
            for epochs in partition::epochs_of(3_000, 3, seed, 2) {
                let mut cache = fifo::Fifo::new(3_000, capacity);
                for (epoch, samples) in epochs.iter().enumerate() {
                    for sample in samples {
                        let is_counted = epoch == 1;
                        missed += u32::from(is_counted && !cache.contains(*sample));
                        read += u32::from(is_counted);
                        cache.insert(*sample);
                    }
                }
            }
        }
        let rate = f64::from(missed) / f64::from(read);
        let replayed = fifo::miss_rate(3_000, 3, capacity, 2);
        assert!((rate - replayed).abs() < 1e-12, "{capacity:?}: {rate} and {replayed}");
    }
}

/// A fetch of 1,000 takes 10 s and a miss 0.1 s: the first 100 of each fetch are missed.
fn pace() -> Pace {
    Pace {
        workload: "test",
        miss_s: 0.1,
        hit_s: 0.01,
        compute_s: 0.0,
        fetch_start_s: 8.0,
        fetch_sample_s: 0.002,
        parallel: 1.0,
    }
}

fn setting(batch: u32, fetch: u32, threshold: u32, cache: Option<u32>) -> Setting {
    Setting { batch, fetch, threshold, cache }
}

#[track_caller]
fn check(pace: &Pace, setting: Setting, first_epoch: f64) {
    // One node of three reads 4,000 of 12,000.
    let rates = fetching::miss_rates(pace, setting, 12_000, 3, 2);
    // A sum of times may pass the end of a fetch by a sample.
    assert!((rates[0] - first_epoch).abs() < 0.002, "{setting:?}: {rates:?} not {first_epoch}");
}

#[test]
fn a_trainer_misses_while_a_fetch_is_in_flight() {
    check(&pace(), setting(500, 1000, 0, None), 0.1);
    check(&pace(), setting(1000, 1000, 0, None), 0.1);
    // A fetch of 2,000 takes 12 s.
    check(&pace(), setting(500, 2000, 0, None), 0.06);
    // One of 500 takes 9 s, and a batch draws two of them at once: 18 s together, or 9 s side by side.
    check(&pace(), setting(1000, 500, 0, None), 0.18);
    check(&Pace { parallel: 2.0, ..pace() }, setting(1000, 500, 0, None), 0.09);
}

#[test]
fn a_cache_below_the_fetch_size_loses_the_start_of_every_fetch() {
    check(&pace(), setting(500, 1000, 0, Some(1000)), 0.1);
    check(&pace(), setting(500, 1000, 0, Some(400)), 0.6);
    check(&pace(), setting(500, 1000, 0, Some(0)), 1.0);
}

#[test]
fn a_threshold_hides_all_fetches_but_the_first_behind_long_computing() {
    let slow = Pace { compute_s: 1.0, parallel: 2.0, ..pace() };
    check(&slow, setting(500, 1000, 1000, Some(2000)), 0.025);
    check(&slow, setting(500, 1000, 0, Some(2000)), 0.1);
}

#[test]
fn a_second_epoch_finds_what_an_unlimited_cache_kept() {
    let rates = fetching::miss_rates(&pace(), setting(500, 1000, 0, None), 12_000, 3, 2);
    assert!(rates[1] < rates[0], "{rates:?}");
    assert_eq!(fetching::miss_rates(&pace(), setting(500, 1000, 0, None), 0, 3, 2), [0.0; 0]);
}

/// A row as DELI would have written it, had it the pace of the model.
fn measured_row(pace: &Pace, workload: Workload, setting: Setting) -> measured::Row {
    let rate = fetching::miss_rates(pace, setting, workload.samples(), NODES, 1)[0];
    let all = f64::from(workload.per_node);
    let misses = rate * all;
    let load_s = misses * pace.miss_s + (all - misses) * pace.hit_s;
    measured::Row {
        setting,
        epoch: 1,
        miss_rate: Some(rate),
        misses: Some(misses),
        accesses: workload.per_node,
        load_s,
        bucket_s: Some(misses * (pace.miss_s - pace.hit_s)),
        run_s: load_s + all * pace.compute_s,
    }
}

#[test]
fn the_pace_is_found_again_in_loading_times_that_the_model_makes() {
    let workload = Workload::ALL[0];
    let truth = Pace { miss_s: 0.05, hit_s: 0.002, compute_s: 0.001, parallel: 1.5, ..pace() };
    let rows = |settings: &[Setting]| -> Vec<_> {
        settings.iter().map(|it| measured_row(&truth, workload, *it)).collect()
    };
    let fetch_size = [256, 512, 768, 1024, 1536].map(|fetch| setting(512, fetch, 0, None));
    let threshold = [0, 256, 1024].map(|threshold| setting(512, 1024, threshold, Some(4096)));
    let bucket = rows(&[setting(512, 1024, 0, Some(0))]);
    let found = Pace::fit(workload, &bucket, &rows(&fetch_size), &rows(&threshold)).unwrap();
    let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 0.1;
    for (found, truth) in [
        (found.miss_s, truth.miss_s),
        (found.hit_s, truth.hit_s),
        (found.compute_s, truth.compute_s),
        (found.fetch_start_s, truth.fetch_start_s),
        (found.fetch_sample_s, truth.fetch_sample_s),
        (found.parallel, truth.parallel),
    ] {
        assert!(near(found, truth), "{found} not {truth}");
    }
    let error = Pace::fit(workload, &bucket, &rows(&fetch_size[..1]), &rows(&threshold));
    assert_eq!(error.unwrap_err().to_string(), "MNIST: no measurement tells two fetch sizes");
}

const HEADER: &str = "Batch Size,Trial #,Cache Size,Epoch,Data Loading Time (s),Number of Misses,\
                      Number of Accesses,Epoch Run Time (s)";

#[test]
fn rows_of_the_other_training_and_empty_lines_are_left_out() {
    let text = format!("{HEADER}\r\n512,1,N/A,2,9.5,7,14,10.5\r\n512,1,8,1,1,2,9,3\r\n,,,,,,,\r\n");
    let rows = parse(&text, 14).unwrap();
    let expected = measured::Row {
        setting: setting(512, 1024, 0, None),
        epoch: 2,
        miss_rate: Some(0.5),
        misses: Some(7.0),
        accesses: 14,
        load_s: 9.5,
        bucket_s: None,
        run_s: 10.5,
    };
    assert_eq!(rows, [expected]);
    assert_eq!(parse(&text, 9).unwrap()[0].setting.cache, Some(8));
}

#[test]
fn a_file_that_is_no_measurement_is_refused_with_its_line() {
    let check = |line: &str, message: &str| {
        let error = parse(&format!("{HEADER}\n512,1,8,1,1,2,9,3\n{line}\n"), 9).unwrap_err();
        assert_eq!(format!("{error:#}"), message);
    };
    check(
        "512,1,8,1,x,2,9,3",
        "line 3: `Data Loading Time (s)` is `x`; expected a number that is not negative",
    );
    check(
        "512,1,8,1,-1,2,9,3",
        "line 3: `Data Loading Time (s)` is `-1`; expected a number that is not negative",
    );
    check(
        "512,1,8,1,inf,2,9,3",
        "line 3: `Data Loading Time (s)` is `inf`; expected a number that is not negative",
    );
    check("512,1,8,1.5,1,2,9,3", "line 3: `Epoch` is `1.5`; expected a whole number");
    check("512,1,8,1,1,10,9,3", "line 3: more misses than accesses");
    check("512,1,8,1,1,0,0,3", "line 3: no accesses");
    check("0,1,8,1,1,2,9,3", "line 3: a batch size or fetch size of 0");
    check("512,1,8,1,1", "line 3: no `Epoch Run Time (s)`");
    assert!(parse("", 9).is_err());
    assert!(parse("\0\n\u{ffff}", 9).is_err());
}

#[test]
fn a_folder_without_the_measurements_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { data: folder.path().to_owned() };
    let error = format!("{:#}", run(&settings).unwrap_err());
    assert!(error.contains("MNIST_-_Baseline_From_Disk.csv"), "{error}");
    let path = folder.path().join("large.csv");
    fs::write(&path, "x".repeat((4 << 20) + 1)).unwrap();
    let error = measured::read(&path, 9).unwrap_err().to_string();
    assert!(
        error.ends_with("longer than 4194304 bytes; none of the published files is"),
        "{error}"
    );
}

/// Runs where `TIERFEED_DELI_DATA` names the folder of the published measurements.
#[test]
fn the_published_measurements_are_met() {
    let Some(data) = std::env::var_os("TIERFEED_DELI_DATA") else {
        return skip(Need::DeliData, "TIERFEED_DELI_DATA is not set");
    };
    let outcome = run(&Settings { data: Path::new(&data).to_owned() }).unwrap();
    let measured: Vec<_> =
        outcome.caching.iter().map(|row| (row.measured * 1000.0).round()).collect();
    assert_eq!(measured, [668.0, 989.0, 953.0, 887.0, 664.0, 989.0, 954.0, 888.0]);
    assert_eq!(outcome.differing().count(), 0, "{:?}", outcome.caching);
    let same: Vec<_> = outcome.table_two.alternatives.iter().map(|it| it.same).collect();
    assert_eq!(same[0], [6, 10, 10, 6]);
    let range = outcome.table_two.vm_usd_per_h.unwrap();
    assert!(range.0 < 0.545 && 0.545 < range.1 && range.1 < 0.5684, "{range:?}");
    let samples: Vec<_> =
        outcome.table_two.samples.iter().map(|it| (it.as_assumed, it.as_printed)).collect();
    assert_eq!(samples, [(Some((39_001, 41_674)), None), (Some((35_001, 38_174)), None)]);
    let text = table(&outcome);
    assert!(text.contains("8 of 8 within 0.005"), "{text}");
}
