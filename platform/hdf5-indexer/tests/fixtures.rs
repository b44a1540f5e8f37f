//! The program prints what is stored beside the fixtures, and the dataset crate parses that.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{
    env, fs,
    path::PathBuf,
    process::{self, Command, Output, Stdio},
    thread,
    time::Duration,
};

use tierfeed_dataset::format::hdf5;

fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("../../dataset/tests/fixtures/hdf5").join(name)
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tierfeed-hdf5-indexer")).args(arguments).output().unwrap()
}

fn index(file: &str, dataset: &str) -> Output {
    run(&[fixture(file).to_str().unwrap(), dataset])
}

#[test]
fn answers_are_those_that_the_analyzer_is_tested_with() {
    let mut compared = 0;
    for entry in fs::read_dir(fixture("")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((file, dataset)) =
            name.strip_suffix(".index").and_then(|stem| stem.split_once('.'))
        else {
            continue;
        };
        let output = index(&format!("{file}.h5"), &dataset.replace("deep-", "deep/"));
        assert!(output.status.success(), "{name}: {output:?}");
        assert_eq!(output.stdout, fs::read(&path).unwrap(), "{name}");
        assert!(output.stderr.is_empty(), "{name}: {output:?}");
        let object = fs::read(fixture(&format!("{file}.h5"))).unwrap();
        // Not all chunks of `holes` were written.
        assert_eq!(hdf5::parse(&output.stdout, &object).is_ok(), dataset != "holes", "{name}");
        compared += 1;
    }
    assert_eq!(compared, 10);
}

#[track_caller]
fn check_refused(output: &Output, code: i32, expected: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.strip_prefix("tierfeed-hdf5-indexer: ").unwrap();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn what_has_no_ranges_is_refused_with_a_way_out() {
    for (dataset, expected) in [
        ("unwritten", "the dataset has no bytes in the file: nothing was written; write it"),
        ("scalar", "the dataset has no axes, so no rows; give one that has samples"),
        ("strings", "elements of the type `unicode (var len)` point to bytes elsewhere; store"),
        ("compact", "the dataset is compact, in the header of its object; store it contiguous"),
        ("virtual", "the dataset is virtual, a view of others; give the datasets that it shows"),
        ("external", "the dataset is stored in external files; give those as raw records"),
        ("deep", "`deep` is a group; it has contiguous, name a dataset such as `deep/NAME`"),
    ] {
        check_refused(&index("arrays.h5", dataset), 1, expected);
    }
}

#[test]
fn what_is_no_file_of_hdf5_is_refused() {
    check_refused(&index("arrays.json", "x"), 1, "H5Fopen(): unable to ");
    check_refused(&index("missing.h5", "x"), 1, "H5Fopen(): unable to ");
}

/// The bug: a file may name another one, and libhdf5 opens it. The answer had the positions of
/// samples in that file, so a hostile file could make the program open any file that the user may
/// open.
#[test]
fn a_file_that_names_another_one_does_not_get_it_opened() {
    let elsewhere = index("linked.h5", "elsewhere");
    check_refused(&elsewhere, 1, "a link to another file is not followed");
    assert!(index("arrays.h5", "flat").status.success(), "there is such a dataset");
}

#[test]
fn wrong_arguments_are_told_from_failed_work() {
    check_refused(&run(&["only-one"]), 2, "two arguments are needed: FILE DATASET");
}

/// Opening a pipe blocks until it is written to: until then the process can be inspected.
#[test]
fn memory_time_and_descriptors_are_limited_before_the_file_is_opened() {
    let folder = env::temp_dir().join(format!("tierfeed-indexer-{}", process::id()));
    fs::create_dir(&folder).unwrap();
    let pipe = folder.join("waits.h5");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut indexer = Command::new(env!("CARGO_BIN_EXE_tierfeed-hdf5-indexer"));
    let mut indexer = indexer.arg(&pipe).arg("data").stderr(Stdio::null()).spawn().unwrap();
    let limits = PathBuf::from(format!("/proc/{}/limits", indexer.id()));
    let limit = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(&limits).unwrap();
        let line = text.lines().find(|line| line.starts_with(name))?;
        line[name.len()..].split_whitespace().next()?.parse().ok()
    };
    let all = ["Max address space", "Max cpu time", "Max open files", "Max file size"];
    let most: [u64; 4] = [8 << 30, 600, 64, 1 << 30];
    let are_set =
        || all.iter().zip(most).all(|(name, most)| limit(name).is_some_and(|it| it <= most));
    let in_time = (0..1000).any(|_| {
        thread::park_timeout(Duration::from_millis(10));
        are_set()
    });
    let found = all.map(limit);
    indexer.kill().unwrap();
    indexer.wait().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(in_time, "{found:?}");
}
