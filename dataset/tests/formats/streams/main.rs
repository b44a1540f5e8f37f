//! Streams and shards, written by their own writers and compared with their own readers.
//!
//! The fixtures and the expected results come from `scripts/fixtures`. A truncated or damaged
//! object must be an error if the format can detect it, and must never lead outside of the object.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod damage;
mod fields;
mod litdata;
mod mds;
mod megatron;
mod tfrecord;
mod webdataset;
mod webdataset_index;

use std::path::PathBuf;

use serde_json::Value;
use tierfeed_dataset::format::Range;
use xxhash_rust::xxh3::xxh3_64;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The result of a format's reader for one of its fixtures.
fn expected(format: &str, name: &str) -> Value {
    let json = fixture(&format!("{format}/expected.json"));
    serde_json::from_slice::<Value>(&json).unwrap()[name].take()
}

/// Bytes in the form of `expected.json`.
fn described(bytes: &[u8]) -> Value {
    serde_json::json!([bytes.len(), format!("{:016x}", xxh3_64(bytes))])
}

fn slice(object: &[u8], range: Range) -> &[u8] {
    let start = usize::try_from(range.offset).unwrap();
    &object[start..start + usize::try_from(range.len).unwrap()]
}

fn samples(object: &[u8], ranges: &[Range]) -> Value {
    ranges.iter().map(|range| described(slice(object, *range))).collect()
}

/// Fails unless the ranges ascend, do not overlap, and lie in an object of `len` bytes.
fn assert_sound(ranges: &[Range], len: usize) {
    let mut end = 0;
    for range in ranges {
        assert!(range.offset >= end, "{range:?} starts before {end}");
        end = range.offset.checked_add(range.len).unwrap();
        assert!(range.label != Some(i64::MIN), "{range:?}");
    }
    assert!(end <= len as u64, "{end} in {len} bytes");
}
