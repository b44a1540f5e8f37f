//! What the report says of waits, beside a stop-watch in the trainer.

use std::{fs, process::Command};

use crate::fixture::{Fixture, RANKS, assert_complete, assert_ended};

#[derive(Debug, Default)]
struct Watched {
    served: u64,
    self_read: u64,
    waited_s: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a comparison needs no more than 53 bits")]
fn watched(fixture: &Fixture, run: &mut Command) -> Watched {
    let path = fixture.path("stopwatch");
    assert_ended(&run.env("TRAINER_STOPWATCH", &path).output().unwrap(), 0);
    let mut sum = Watched::default();
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), RANKS as usize);
    for line in text.lines() {
        let fields: Vec<u64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        sum.served += fields[1];
        sum.self_read += fields[2];
        sum.waited_s += fields[3] as f64 / 1e9;
    }
    sum
}

/// The report's wait is the watch's but for what lies between the two readings of the clock at each end of
/// each wait: a few microseconds, or a turn of the scheduler now and then.
fn assert_agrees(report: &serde_json::Value, watched: &Watched) {
    let number = |key: &str| report[key].as_f64().unwrap();
    let stall_s = number("stall_s") * number("readers");
    let allowed_s = 0.03 * watched.waited_s + 0.02;
    assert!((stall_s - watched.waited_s).abs() <= allowed_s, "{stall_s} {watched:?}");
    assert_eq!(report["steps"], watched.served);
    assert_eq!(report["self_read_batches"], watched.self_read);
    assert_eq!(report["used_batches"], watched.served + watched.self_read);
    let causes = report["stall_for_s"].as_object().unwrap().values();
    let causes: f64 = causes.map(|it| it.as_f64().unwrap()).sum();
    assert!((causes - number("stall_s")).abs() < 1e-6, "{causes}");
    assert!(number("stall_s") <= number("wall_s"));
    assert!(number("lower_bound_s") <= number("wall_s"));
}

#[test]
fn a_wait_for_the_cold_store_is_as_long_as_the_trainers_say_and_is_put_down_to_it() {
    let fixture = Fixture::new();
    // 3 MB an epoch at 3 MB/s.
    fixture.write_job("policy: none\n");
    let text = fs::read_to_string(fixture.job()).unwrap();
    fs::write(fixture.job(), text.replace("bandwidth: 60 MB/s", "bandwidth: 3 MB/s")).unwrap();
    let watched = watched(&fixture, &mut fixture.run(0));
    let report = fixture.report();
    assert_complete(&fixture.log());
    assert!(watched.waited_s > 1.0, "{watched:?}");
    assert_agrees(&report, &watched);
    let cold = report["stall_for_s"]["cold-store"].as_f64().unwrap();
    let all = report["stall_s"].as_f64().unwrap();
    assert!(cold > 0.9 * all, "{cold} of {all}: only the cold store is slow");
    let first = report["first_stall_s"].as_f64().unwrap();
    assert!(first > 0.0, "the first batch of each rank was waited for too");
    let verdict = report["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("42 of 42 batches served by the agent; trainers waited "),
        "{verdict}"
    );
}

#[test]
fn a_training_that_starves_on_decoding_is_said_to_wait_for_it() {
    let fixture = Fixture::new();
    let watched = watched(&fixture, fixture.run(1_000).env("TRAINER_DECODE_US", "20000"));
    let report = fixture.report();
    assert_agrees(&report, &watched);
    let decoding = report["stall_for_s"]["decoding"].as_f64().unwrap();
    assert!(decoding > 0.4, "21 batches of each rank, 20 ms each: {decoding}");
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.contains("decoding") && !verdict.contains("hardly"), "{verdict}");
    let advice = report["advice"].as_array().unwrap();
    assert!(
        advice
            .iter()
            .any(|it| ["decode-threads", "cheaper-decoding"]
                .contains(&it["change"].as_str().unwrap())),
        "{advice:?}"
    );
}

#[test]
fn a_training_that_is_fed_in_time_hardly_waited() {
    let fixture = Fixture::new();
    let watched = watched(&fixture, &mut fixture.run(30_000));
    assert_agrees(&fixture.report(), &watched);
}

/// 20,000 samples of 2 KiB, all of which main memory keeps.
fn small_samples(fixture: &Fixture) {
    let data = fixture.path("small");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("samples.bin"), vec![7_u8; 20_000 * 2048]).unwrap();
    let job = format!(
        "name: small\n\
         dataset: {{ source: file://{}, format: raw, record_bytes: 2 KiB }}\n\
         order: {{ shuffle: torch-distributed, seed: 42, epochs: 3 }}\n\
         batch_size: 256\n\
         world: {{ nodes: 1, ranks_per_node: {RANKS} }}\n\
         tiers: {{ main-memory: {{ size: 256 MiB }} }}\n",
        data.display()
    );
    fs::write(fixture.job(), job).unwrap();
}

#[test]
fn a_report_tells_how_busy_the_loop_of_the_agent_was() {
    let fixture = Fixture::new();
    small_samples(&fixture);
    assert_ended(&fixture.run(0).output().unwrap(), 0);
    let report = fixture.report();
    assert_eq!(report["self_read_batches"], 0);
    let pauses = &report["loop_pauses"];
    let share = |key: &str| pauses[key].as_f64().unwrap();
    assert!(share("busy_share") > 0.0 && share("busy_share") <= 1.0, "{pauses:#}");
    assert!(share("ran_share") > 0.0 && share("ran_share") <= 1.0, "{pauses:#}");
    assert!(report["stall_for_s"]["agent"].is_number(), "{report:#}");
    let cpu = |key: &str| report["agent_cpu"][key].as_f64().unwrap();
    let samples = report["samples"].as_f64().unwrap();
    assert!(cpu("time_s") > 0.0 && cpu("us_per_batch") > 0.0, "{report:#}");
    assert!(
        (cpu("ns_per_sample") * samples / 1e9 / cpu("time_s") - 1.0).abs() < 1e-6,
        "{report:#}"
    );
}
