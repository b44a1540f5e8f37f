//! Array and columnar formats; `scripts/fixtures/` has the writers and the expected results.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::{fs, path::PathBuf};

use serde_json::Value;
use tierfeed_dataset::format::{Range, ReadAt};
use xxhash_rust::xxh3::xxh3_64;

mod any_bytes;
mod readers;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The names of the fixtures in `folder` that end in `extension`, without it.
fn stems(folder: &str, extension: &str) -> Vec<String> {
    let mut stems: Vec<String> = fs::read_dir(path(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    stems.sort();
    assert!(!stems.is_empty(), "no fixture in {folder}");
    stems
}

/// Compares bytes with a `{"len", "xxh3"}` of a reader.
#[track_caller]
fn check_bytes(found: &[u8], expected: &Value, what: &str) {
    assert_eq!(found.len() as u64, expected["len"].as_u64().unwrap(), "{what}");
    let digest = format!("{:016x}", xxh3_64(found));
    assert_eq!(digest, expected["xxh3"].as_str().unwrap(), "{what}");
}

#[track_caller]
fn check_range(object: &dyn ReadAt, range: Range, expected: &Value, what: &str) {
    check_bytes(&read(object, range), expected, what);
}

fn read(object: &dyn ReadAt, range: Range) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(range.len).unwrap()];
    object.read_exact_at(&mut bytes, range.offset).unwrap();
    bytes
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}
