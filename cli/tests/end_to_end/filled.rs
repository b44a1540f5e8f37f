//! A job that names neither tiers nor chunks, where others left little memory: it runs, stages its batches and
//! keeps samples in chunks that fit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tierfeed_core::units::Bytes;
use tierfeed_test_needs::{Need, skip};

use crate::{
    fixture::{self, Fixture, assert_ended},
    group::Group,
};

/// The memory that the paper leaves of a node, and that the kernel then calls available.
const LEFT: Bytes = Bytes::mib(1025);

fn write_job(fixture: &Fixture) {
    fixture.write_large_samples();
    let text = fs::read_to_string(fixture.job()).unwrap().replace("60 MB/s", "400 MB/s");
    let (unsaid, _) = text.split_once("chunk:").unwrap();
    fs::write(fixture.job(), unsaid).unwrap();
}

/// All batches are right, and after the first epoch samples come from main memory.
fn assert_kept(fixture: &Fixture, output: &std::process::Output) {
    assert_ended(output, 0);
    let log = fixture.log();
    let served = fixture::assert_complete(&log);
    assert_eq!(served, log.len(), "the agent served every batch");
    let report = fixture.report();
    assert_eq!(report["order_digest"], fixture::digest(&log));
    let main = &report["tiers"][0];
    assert_eq!(main["name"], "main-memory", "{report:#}");
    assert!(main["cache_bytes"].as_u64().unwrap() > 100 << 20, "{main:#}");
    let hits = report["tier_hits"]["main-memory"].as_u64().unwrap();
    assert_eq!(hits, 200, "two of three epochs come from memory: {report:#}");
}

#[test]
fn beside_a_hog_that_leaves_a_gibibyte_a_job_keeps_what_it_read() {
    let Some(group) = Group::new("filled", Bytes(LEFT.0 + Bytes::mib(200).0)) else { return };
    let fixture = Fixture::new();
    write_job(&fixture);
    let run = fixture.run(0);
    let mut hog = fixture.tierfeed(&["hog", "--leave", "1 GiB", "--"]);
    hog.arg(run.get_program()).args(run.get_args());
    let output = group.enter(&hog).output().unwrap();
    assert_kept(&fixture, &output);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("memory is held"), "{errors}");
    group.assert_unharmed();
}

/// `command` on a node of 24 GiB with so much available, as far as it asks `/proc/meminfo`; `None`, with a
/// word about why, where this process may not put another file there.
fn with_meminfo(fixture: &Fixture, available: Bytes, command: &Command) -> Option<Command> {
    let path: PathBuf = fixture.path("meminfo");
    let kibibytes = available.0 >> 10;
    let text = format!(
        "MemTotal: 24684096 kB\nMemFree: {kibibytes} kB\nMemAvailable: {kibibytes} kB\n\
         Buffers: 0 kB\nCached: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nHugePages_Total: 0\n"
    );
    fs::write(&path, text).unwrap();
    let script = "mount --bind \"$0\" /proc/meminfo && exec \"$@\"";
    let within = |path: &Path| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(path);
        unshare
    };
    let tried = within(&path).arg("true").output();
    if !tried.as_ref().is_ok_and(|it| it.status.success()) {
        skip(Need::Mounts, format!("/proc/meminfo cannot be another file here: {tried:?}"));
        return None;
    }
    let mut unshare = within(&path);
    unshare.arg(command.get_program()).args(command.get_args());
    unshare.current_dir(command.get_current_dir().unwrap()).env("TIERFEED_LOG", "info");
    unshare.env_remove("TIERFEED_RUN_DIR");
    Some(unshare)
}

#[test]
fn on_a_node_whose_reserve_is_more_than_is_left_a_job_keeps_what_it_read() {
    let fixture = Fixture::new();
    write_job(&fixture);
    let Some(mut run) = with_meminfo(&fixture, LEFT, &fixture.run(0)) else { return };
    assert_kept(&fixture, &run.output().unwrap());
}

#[test]
fn a_tier_of_less_than_the_chunk_of_the_job_is_named_loudly() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.job()).unwrap();
    let (text, _) = text.split_once("chunk:").unwrap();
    let tiers = "chunk: 512 MiB\ntiers: { main-memory: { size: 100 MiB } }\n";
    fs::write(fixture.job(), format!("{text}{tiers}")).unwrap();
    let sentence = "tiers.main-memory keeps no sample: of 100 MiB staging takes";
    let run = fixture.run(0).output().unwrap();
    assert_ended(&run, 0);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(errors.contains("WARN") && errors.contains(sentence), "{errors}");
    for command in ["plan", "analyze"] {
        let output = fixture.tierfeed(&[command, "job.yaml"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(sentence), "{text}");
    }
}
